"""The embedded services from outside: start, look, stop. The same for the command line, the tests and the demo."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from spillway.embedded import config, services
from spillway.embedded.config import REPO, Layout, default_home
from spillway.embedded.errors import EmbeddedError, tail
from spillway.embedded.owner import claim, owner
from spillway.embedded.processes import Identity, family, marked, recorded, sweep
from spillway.embedded.services import postgres
from spillway.embedded.state import load_secrets, read_state, write_atomic

NEED_MB = 500
Progress = Callable[[dict[str, Any]], None]


class Stack:
    """The services of one run folder. Safe to make for a run that is already up, or that somebody else started."""

    def __init__(self, home: Path | None = None, services: Iterable[str] = ("postgres", "kafka", "spark")) -> None:
        self.layout = Layout((home or default_home()).absolute())
        self.names = tuple(services)

    # ---- looking ----

    def state(self) -> dict[str, Any]:
        """What is recorded, with a note whether the supervisor lives."""
        return read_state(self.layout) | {"alive": self.alive()}

    def alive(self) -> bool:
        """Whether a supervisor of this run folder lives."""
        try:
            with self.layout.lock.open("r+") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    @property
    def env(self) -> dict[str, str]:
        """The addresses and roles of the run, as in `$SPILLWAY_HOME/env`."""
        try:
            lines = self.layout.env.read_text(encoding="utf-8").splitlines()
        except OSError as e:
            raise EmbeddedError(f"{self.layout.env} is not there: start the services first with `make up`.") from e
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def airflow_login(self) -> tuple[str, str]:
        """User and password of the Airflow UI."""
        return config.stack()["airflow"]["user"], load_secrets(self.layout)["airflow_admin"]

    def pids(self) -> dict[str, int]:
        """Service → pid of those that run."""
        rows = (self.state().get("services") or {}).items()
        return {n: r["pid"] for n, r in rows if r.get("pid") and Identity(r["pid"], r["created"]).process()}

    def processes(self) -> list[Any]:
        """Every process of this run: supervisor, services and all they started."""
        roots = [p for i in recorded(read_state(self.layout)) if (p := i.process()) is not None]
        return family([*roots, *marked(self.layout.home)])

    # ---- acting ----

    def up(self, progress: Progress = lambda _: None, *, bound: bool = False) -> None:
        """Start what is not running, wait until all of it is healthy; a failure leaves nothing running that was not before.

        A run started with `bound` belongs to the calling process: once that is gone, the next `up` takes the run down first.
        Without it the run is to stay, also one that a living process had bound to itself.
        """
        wanted = services.expand(self.names)
        self.layout.make()
        if (free := shutil.disk_usage(self.layout.home).free // 2**20) < NEED_MB:
            raise EmbeddedError(
                f"{self.layout.home} has {free} MB free and the services need {NEED_MB}: free some, or move SPILLWAY_HOME."
            )
        mine = False
        try:
            with (self.layout.run / "up.lock").open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                self._take_over(progress)
                mine = not self.alive()
                if bound and not mine and (other := owner(self.layout.owner)) is not None and not self.bound():
                    raise EmbeddedError(
                        f"Process {other.pid} uses the services of {self.layout.home} and stops them when it ends: "
                        "wait for it, or end it with `make down`."
                    )
                if not bound:
                    self.layout.owner.unlink(missing_ok=True)
                elif mine:
                    claim(self.layout.owner)
                if mine:
                    self._spawn(wanted)
            if not mine:
                self._request("start", wanted)
                known = self.state().get("services") or {}
                if strange := [n for n in wanted if n not in known]:
                    raise EmbeddedError(
                        f"The running supervisor does not know {strange[0]}, so it is of another version: run `make down` first."
                    )
            self._await(lambda s: all(_health(s, n) == "healthy" for n in wanted), wanted, progress)
        except BaseException:
            if mine:
                self.down()
            raise

    def bound(self) -> bool:
        """Whether the run belongs to this process."""
        return owner(self.layout.owner) == Identity.of(os.getpid())

    def _take_over(self, progress: Progress) -> None:
        """Take down a run whose owner was killed before it could."""
        gone = owner(self.layout.owner)
        if gone is not None and gone.process() is None and self.alive():
            progress({"message": f"stopping the services that process {gone.pid} left behind when it was killed"})
            self.down()

    def _spawn(self, wanted: tuple[str, ...]) -> None:
        self.layout.env.unlink(missing_ok=True)
        if state := read_state(self.layout):  # its pids are still needed, its health is of the past
            rows = {n: r | {"health": "waiting", "reason": ""} for n, r in (state.get("services") or {}).items()}
            write_atomic(self.layout.state, json.dumps(state | {"phase": "preparing", "message": "", "services": rows}))
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME")}
        env["PYTHONPATH"] = f"{REPO / 'plugins'}:{REPO}"
        with self.layout.log("supervisor").open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "spillway.embedded.supervisor", str(self.layout.home), *wanted],
                env=env, cwd=self.layout.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self.alive():
            if self._child.poll() is not None or time.monotonic() > deadline:
                state = read_state(self.layout)
                raise EmbeddedError(state.get("message") or f"The supervisor did not start: see {self.layout.log('supervisor')}.")
            time.sleep(0.05)

    def _await(self, done: Callable[[dict[str, Any]], bool], wanted: tuple[str, ...], progress: Progress) -> None:
        while True:
            state = self.state()
            progress(state)
            if state.get("phase") == "failed":
                raise EmbeddedError(state.get("message") or "The services did not start.")
            failed = next((n for n in wanted if _health(state, n) == "failed"), None)
            if failed:
                raise EmbeddedError(state["services"][failed]["reason"])
            if done(state):
                return
            if not state["alive"]:
                raise EmbeddedError(f"The supervisor ended before all was up: see {self.layout.log('supervisor')}.")
            time.sleep(0.1)

    def _request(self, verb: str, names: Iterable[str]) -> None:
        """Leave a request for the supervisor and wait until it has taken it."""
        if not self.alive():
            raise EmbeddedError("The services are not up: start them with `make up`.")
        path = self.layout.requests / f"{time.time_ns()}.json"
        write_atomic(path, json.dumps({"verb": verb, "services": list(names)}))
        deadline = time.monotonic() + 30
        while path.exists():
            if not self.alive() or time.monotonic() > deadline:
                path.unlink(missing_ok=True)
                raise EmbeddedError(f"The supervisor does not follow: see {self.layout.log('supervisor')}.")
            time.sleep(0.05)

    def stop(self, name: str) -> None:
        """Stop a service (or group) gracefully; it stays stopped until it is started."""
        members = services.members(name)
        self._request("stop", members)
        self._await(lambda s: all(_health(s, n) in ("stopped", None) for n in members), (), lambda _: None)

    def start(self, name: str) -> None:
        """Start a stopped service (or group) and what it needs, and wait until it is healthy."""
        members = services.expand([name])
        self._request("start", members)
        self._await(lambda s: all(_health(s, n) == "healthy" for n in members), members, lambda _: None)

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def kill(self, name: str) -> int:
        """kill -9 a service's own process, as a fault would; the supervisor will bring it back. Returns the pid."""
        row = (self.state().get("services") or {}).get(name) or {}
        process = Identity(row["pid"], row["created"]).process() if row.get("pid") else None
        if process is None:
            raise EmbeddedError(f"{name} is not running: there is nothing to kill.")
        process.kill()
        psutil.wait_procs([process], timeout=10)  # until the supervisor has taken note: before that it still counts as healthy
        return int(process.pid)

    def wait_healthy(self, name: str, timeout_s: float = 120) -> None:
        """Wait until a service (or group) is healthy, such as after `kill`."""
        members, deadline = services.members(name), time.monotonic() + timeout_s
        while not all(_health(self.state(), n) == "healthy" and n in self.pids() for n in members):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{name} is not healthy after {timeout_s:.0f} s: see {self.layout.log(name)}.")
            time.sleep(0.2)

    def down(self, progress: Progress = lambda _: None) -> int:
        """Stop everything, gracefully where it still listens, and leave no process; returns how many had to be swept."""
        if self.alive():
            before = read_state(self.layout)
            identity = Identity(**before["supervisor"]) if before.get("supervisor") else None
            if identity and (process := identity.process()):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 120
            while self.alive() and time.monotonic() < deadline:
                progress(self.state())
                time.sleep(0.1)
        state = read_state(self.layout)
        self._end_child()
        swept = sweep(self.layout.home, recorded(state))
        if not self.layout.marker.exists():
            return swept
        if state:
            rows = {n: r | {"pid": None, "created": None, "health": "stopped"} for n, r in (state.get("services") or {}).items()}
            phase = state.get("phase") if state.get("phase") == "failed" else "down"
            state |= {"phase": phase, "supervisor": None, "services": rows}
            write_atomic(self.layout.state, json.dumps(state, indent=1))
            progress(state)
        self.layout.env.unlink(missing_ok=True)
        self.layout.owner.unlink(missing_ok=True)
        return swept

    def _end_child(self) -> None:
        """The supervisor this process started, also one that was interrupted before it could write down who it is."""
        child: subprocess.Popen[bytes] | None = getattr(self, "_child", None)
        if child is not None:
            if child.poll() is None:
                child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def clean(self) -> None:
        """Stop everything and remove all that the run made, never what was there before."""
        self.layout.check()
        self.down()
        self.layout.remove()
        shutil.rmtree(postgres.outside(self.layout), ignore_errors=True)

    def log_tail(self, name: str, lines: int = 15) -> str:
        return tail(str(self.layout.log(name)), lines)

    def __enter__(self) -> Stack:
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.down()


def _health(state: dict[str, Any], name: str) -> str | None:
    row = (state.get("services") or {}).get(name)
    return row["health"] if row else None
