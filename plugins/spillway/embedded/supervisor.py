"""The one detached process that holds a run together: `python -m spillway.embedded.supervisor HOME SERVICE…`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import IO, Any

from spillway.embedded import classes, jars, java, services
from spillway.embedded.config import Layout, stack
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.ports import PortBook
from spillway.embedded.processes import Identity, recorded, sweep
from spillway.embedded.runner import Runner
from spillway.embedded.services import spark
from spillway.embedded.services.base import Context
from spillway.embedded.state import load_secrets, read_state, write_atomic, write_state


class Supervisor:
    """Starts the runners, keeps state.json true, follows requests, ends in order."""

    def __init__(self, layout: Layout, names: list[str]) -> None:
        self.layout, self.names = layout, names
        self.phase, self.message = "preparing", ""
        self.runners: dict[str, Runner] = {}
        self.context: Context | None = None
        self.me = Identity.of(os.getpid())
        self._stop = threading.Event()
        self._dirty = threading.Event()
        self._write_lock = threading.Lock()
        self._book = PortBook()
        self._saved: dict[str, Any] = {}
        self._ports_before: dict[str, int] = {}

    def changed(self) -> None:
        self._dirty.set()

    def say(self, message: str) -> None:
        self.message = message
        self.save()

    def save(self) -> None:
        state = {
            "home": str(self.layout.home),
            "phase": self.phase,
            "message": self.message,
            "supervisor": {"pid": self.me.pid, "created": self.me.created},
            "ports": dict(self.context.ports) if self.context else self._ports_before,
            "services": {n: r.status() for n, r in list(self.runners.items())},
        }
        with self._write_lock, contextlib.suppress(OSError):
            if state != self._saved:
                write_state(self.layout, state)
                self._saved = state

    def run(self) -> int:
        before = read_state(self.layout)
        self._ports_before = before.get("ports") or {}
        try:
            others = [i for i in recorded(before) if i.pid != os.getpid()]
            sweep(self.layout.home, others)
            for leftover in self.layout.requests.iterdir():
                leftover.unlink()
            shutil.rmtree(self.layout.data / "spark" / "local", ignore_errors=True)  # blocks of processes that are gone
            self.say("looking for Java")
            home = java.java_home(self.layout.run / "java")
            folders = {name: jars.ensure(name, home / "bin" / "java", self.say) for name in stack()["jars"]}
            archive = classes.ensure(home, folders["connector"], self.say) if spark.MASTER.name in self.names else None
            ports = {n: self._book.choose(n, p, self._ports_before.get(n)) for n, p in stack()["ports"].items()}
            extra = {k: v for k, v in os.environ.items() if k.startswith("SPILLWAY_") and not k.startswith("SPILLWAY_DSN_")}
            self.context = Context(
                layout=self.layout,
                ports=ports,
                secrets=load_secrets(self.layout),
                java_home=home,
                jars=folders,
                archive=archive,
                extra_env=extra,
            )
            write_atomic(self.layout.env, "".join(f"{k}={v}\n" for k, v in self.context.client_env().items()))
            self.message = ""
        except EmbeddedError as e:
            return self._give_up(str(e))
        except OSError as e:
            return self._give_up(f"The run folder {self.layout.home} cannot be used ({e}): check its disk and its owner.")
        self.phase = "starting"
        for name in self.names:
            self._add(name)
        self.save()
        while not self._stop.is_set():
            self._dirty.wait(0.5)
            self._dirty.clear()
            self._settle()
            self._follow_requests()
        return self._shut_down()

    def _add(self, name: str) -> None:
        assert self.context is not None
        if name not in self.runners:
            self.runners[name] = Runner(services.SERVICES[name], self.context, self.runners, self.changed)
        self.runners[name].start()

    def _settle(self) -> None:
        failed = next((r for r in self.runners.values() if r.health == "failed"), None)
        if self.phase == "starting":
            if failed:
                self.phase, self.message = "failed", failed.reason
                self._stop.set()
            elif all(r.health == "healthy" for r in self.runners.values()):
                self.phase = "up"
        self.save()

    def _follow_requests(self) -> None:
        for path in sorted(self.layout.requests.glob("*.json")):
            try:
                request = json.loads(path.read_text())
                verb, names = request["verb"], request["services"]
            except (OSError, ValueError, KeyError):
                path.unlink(missing_ok=True)
                continue
            for name in names:
                if verb == "stop" and name in self.runners:
                    self.runners[name].stop()
                elif verb == "start" and name in services.SERVICES:
                    self._add(name)
            self.save()
            path.unlink(missing_ok=True)

    def _give_up(self, sentence: str) -> int:
        self.phase, self.message = "failed", sentence
        self.save()
        return 1

    def _shut_down(self) -> int:
        """Stage by stage; what belongs to one stage goes together."""
        code = 1 if self.phase == "failed" else 0
        if self.phase != "failed":
            self.phase = "stopping"
        self.save()
        for stage in sorted({r.service.stop_stage for r in self.runners.values()}):
            leaving = [r for r in self.runners.values() if r.service.stop_stage == stage]
            for runner in leaving:
                runner.finish()
            while any(r.alive() for r in leaving):
                self.save()
                time.sleep(0.1)
        sweep(self.layout.home, [])
        if self.phase != "failed":
            self.phase = "down"
        self.save()
        return code

    def stop(self, _: int, __: FrameType | None) -> None:
        self._stop.set()
        self._dirty.set()


def take_lock(layout: Layout) -> IO[str] | None:
    """The lock that says a supervisor lives; released by the kernel however it dies."""
    handle = layout.lock.open("a")
    for _ in range(20):  # who asks whether one lives holds the lock for a moment
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            time.sleep(0.05)
    handle.close()
    return None


def main(argv: list[str]) -> int:
    layout = Layout(Path(argv[0]))
    lock = take_lock(layout)
    if lock is None:
        return 0
    supervisor = Supervisor(layout, argv[1:])
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, supervisor.stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return supervisor.run()
    except Exception as e:
        traceback.print_exc()
        supervisor.phase, supervisor.message = (
            "failed",
            f"The supervisor broke ({type(e).__name__}: {e}): see {layout.log('supervisor')}.",
        )
        supervisor.save()
        sweep(layout.home, [])
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
