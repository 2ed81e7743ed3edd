"""Drivers as detached processes of this machine: `spark-submit` in client mode, ended with their whole process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from spillway.act.launch import DriverStatus, Found, LaunchRefused, LaunchSpec, Sighting, program
from spillway.act.launch.conf import LOCAL_FILES, STORE, Cluster, cluster_from, spark_properties

# $1: where the exit code goes; the rest: the command. The shell outlives the command by one write.
KEEP_EXIT_CODE = 'to=$1; shift; "$@"; code=$?; echo $code > "$to.part" && mv "$to.part" "$to"; exit $code'


class LocalLauncher:
    """Handles are `pid@start time@name`, so that a process that inherited the pid is never taken for the driver."""

    name = "local"

    def __init__(self, cluster: Cluster, *, folder: Path, app: str, command: tuple[str, ...] = ()) -> None:
        self._cluster = cluster
        self._folder = folder
        self._app = app
        self._command = command or (str(Path(sys.executable).with_name("spark-submit")),)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LocalLauncher:
        folder = Path(environment.get("SPILLWAY_HOME", ".spillway")) / "drivers"
        master = environment.get("SPILLWAY_SPARK_MASTER", "local[2]")
        return cls(cluster_from(environment, master), folder=folder, app=environment.get("SPILLWAY_APP") or program())

    def submit(self, spec: LaunchSpec) -> str:
        properties = {**spark_properties(spec, self._cluster), "spark.master": self._cluster.master}
        if self._cluster.jars:
            properties |= {"spark.driver.extraClassPath": f"{self._cluster.jars}/*", **LOCAL_FILES}
        confs = [part for key, value in sorted(properties.items()) for part in ("--conf", f"{key}={value}")]
        log = self._folder / f"{spec.name}.log"
        exit_code = self._folder / f"{spec.name}.exit"
        command = [*self._command, *confs, self._app, *spec.arguments]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            exit_code.unlink(missing_ok=True)
            with log.open("ab") as out:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", KEEP_EXIT_CODE, "spillway-driver", str(exit_code), *command],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                    env={"PYSPARK_PYTHON": sys.executable, **os.environ},
                )  # fmt: skip
            return _handle(process.pid, psutil.Process(process.pid).create_time(), spec.name)
        except (OSError, psutil.Error) as error:
            raise LaunchRefused(f"{spec.name} could not be started on this machine: {error}.") from error

    def status(self, handle: str) -> DriverStatus:
        if _process(handle) is not None:
            return DriverStatus.RUNNING
        code = self._folder / f"{handle.split('@')[-1]}.exit"
        return DriverStatus.FINISHED if code.exists() and code.read_text().strip() == "0" else DriverStatus.FAILED

    def kill(self, handle: str) -> None:
        if (process := _process(handle)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(psutil.Error):
                process.wait(timeout=5)

    def find(self, store: str) -> Sighting:
        return Sighting(found=tuple(_drivers(store)))


def _handle(pid: int, started: float, name: str) -> str:
    return f"{pid}@{started:.2f}@{name}"


def _process(handle: str) -> psutil.Process | None:
    pid, started, _ = handle.split("@", 2)
    with contextlib.suppress(psutil.Error, ValueError):
        process = psutil.Process(int(pid))
        if f"{process.create_time():.2f}" == started and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _is_driver(process: psutil.Process, store: str) -> bool:
    line = process.info["cmdline"] or []
    living = process.info["status"] != psutil.STATUS_ZOMBIE
    return line[3:4] == ["spillway-driver"] and living and f"{STORE}={store}" in line


def _drivers(store: str) -> Iterator[Found]:
    """A child that a driver has forked, and that has not become another program yet, still looks like the driver."""
    seen = {
        p.info["pid"]: p for p in psutil.process_iter(["pid", "ppid", "cmdline", "create_time", "status"]) if _is_driver(p, store)
    }
    for process in seen.values():
        if process.info["ppid"] in seen:
            continue
        line = process.info["cmdline"]
        name = next((part.partition("=")[2] for part in line if part.startswith("spark.app.name=")), None)
        if name:
            yield Found(handle=_handle(process.info["pid"], process.info["create_time"], name), name=name)
