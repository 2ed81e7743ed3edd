"""Whoever carries plans out: a process in the place of Airflow's scheduler, that can be killed.

It does by the same functions what the tasks of spillway_streams and spillway_rescale do; only the jobs that count state are
submitted without Airflow's provider. `Carrier` is that process seen from outside; run as a program, this file is it:

    _carrier.py FOLDER
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from _common import REPO, say
from spillway.act.launch.conf import OWNED, QUICK_JVM
from spillway.act.launch.standalone import StandaloneLauncher
from spillway.act.rescale import offline
from spillway.act.rescale.carry import advance
from spillway.act.streams import converge
from spillway.embedded.config import package_dir
from spillway.embedded.java import java_home
from spillway.policy import Policy
from spillway.store import rescale, session

TUNABLES = {"rescale_quota_per_day": 100_000, "backoff_first_s": 1.0, "backoff_most_s": 5.0}
"""A bench asks for more than a day has, and does not wait for what it has killed itself."""
PACE_S, CONVERGE_S = 0.3, 1.0
HOLD, HELD = "hold", "held"


class Carrier:
    def __init__(self, env: dict[str, str], folder: Path, **tunables: Any) -> None:
        given = {f"SPILLWAY_POLICY_{name.upper()}": str(value) for name, value in {**TUNABLES, **tunables}.items()}
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        java = str(java_home(folder / "java"))
        self._env = {**os.environ, **env, **given, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "carrier.log"

    def start(self) -> Carrier:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self.folder)], env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def kill(self) -> int:
        """kill -9, with all it started. Returns how many processes that were."""
        assert self._process is not None
        members = [psutil.Process(self._process.pid)]
        members += members[0].children(recursive=True)
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL)
        self._process.wait(10)
        (self.folder / HELD).unlink(missing_ok=True)
        return len(members)

    def __enter__(self) -> Carrier:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    # -- between two passes, when a plan has come to a step

    def hold_at(self, step: str) -> None:
        """The next plan that comes to it; one that is held goes on first."""
        (self.folder / HELD).unlink(missing_ok=True)
        new = self.folder / f"{HOLD}.new"
        new.write_text(step)
        new.replace(self.folder / HOLD)

    @property
    def held(self) -> bool:
        return (self.folder / HELD).exists()

    def release(self, then: str | None = None) -> None:
        """Until it comes to another step, where one is given."""
        if then is not None:
            self.hold_at(then)
        else:
            (self.folder / HOLD).unlink(missing_ok=True)


class _Carry:
    def __init__(self, folder: Path) -> None:
        self._folder, self._policy = folder, Policy.load()
        self._launcher = StandaloneLauncher.from_environment(os.environ)

    def run(self) -> None:
        threading.Thread(target=self._often, args=(self._converge,), daemon=True).start()
        self._often(self._passes)

    def _often(self, what: Callable[[], None]) -> None:
        while True:
            try:
                what()
            except Exception as error:  # a service is away: the next pass finds it
                say(f"{what.__name__}: {type(error).__name__}: {error}")
                time.sleep(1.0)

    def _converge(self) -> None:
        with session("control") as conn:
            for action in converge(conn, StandaloneLauncher.from_environment(os.environ), self._policy):
                if action.kind.launches:
                    say(action.words)
        time.sleep(CONVERGE_S)

    def _passes(self) -> None:
        with session("control") as conn:
            while True:
                self._hold(rescale.open_plans(conn))
                conn.commit()
                went = advance(conn, self._launcher, self._policy)
                for one in went:
                    say(str(one))
                for job in offline.due(conn, self._policy):
                    self._submit(conn, job)
                conn.commit()
                if not any(one.moved for one in went):
                    time.sleep(PACE_S)

    def _hold(self, plans: Sequence[rescale.Plan]) -> None:
        hold = self._folder / HOLD
        with contextlib.suppress(FileNotFoundError):
            step = hold.read_text()
            if any(p.at is not None and p.at.step == step and p.state in ("planned", "running") for p in plans):
                (self._folder / HELD).touch()
                while hold.read_text() == step:
                    time.sleep(0.01)

    def _submit(self, conn: Any, job: offline.Job) -> None:
        """On this machine alone, and with little priority: what counts state must not disturb what is measured next."""
        offline.begin(conn, job)
        conf = {
            **OWNED,
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "WARN",
        }
        command = ["nice", "-n", "10", f"{package_dir('pyspark')}/bin/spark-submit", "--master", "local[1]"]
        command += ["--driver-memory", "1g", *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}"))]
        command += [offline.application(os.environ), *job.arguments]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{REPO / 'plugins'}:{REPO}"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "spillway.offline ERROR" in line]
            say(offline.failed(conn, job, RuntimeError(said[-1] if said else f"exit code {done.returncode}")))
        else:
            say(f"{job.name}: {' '.join(done.stdout.strip().splitlines()[-1:])}")


if __name__ == "__main__":
    # What the gates load looks for optional modules by name, and benches have such names.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    _Carry(Path(sys.argv[1])).run()
