"""One service over its life: wait for what it needs, start, check, start again with back-off when it dies, stop."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from spillway.embedded.errors import EmbeddedError, tail
from spillway.embedded.processes import Identity, end, family, signal_group, spawn
from spillway.embedded.services.base import Context, Service, accepts

POLL_S = 0.2  # while something is starting or stopping
WATCH_S = 1.0  # while all is well
PROBE_S = 10.0
BACKOFF_S = (1, 2, 5, 10, 30)
LOG_BYTES = 20_000_000  # a longer log is put aside at the next start
STABLE_S = 60.0  # a service that lived this long starts its back-off anew


class Runner:
    """Runs one service in a thread. `changed` is called after every change of `status`."""

    def __init__(self, service: Service, context: Context, peers: dict[str, Runner], changed: Callable[[], None]) -> None:
        self.service, self.context, self.peers, self._changed = service, context, peers, changed
        self.health = "waiting"  # waiting, starting, healthy, unhealthy, restarting, stopping, stopped, failed
        self.reason = ""
        self.identity: Identity | None = None
        self.restarts = 0
        self.since = time.time()
        self.start_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = threading.Event()
        self._again = threading.Event()  # asked to start, also after a failure
        self._wake = threading.Event()
        self._first = True
        self._thread = threading.Thread(target=self._run, name=service.name, daemon=True)
        self._finished = False

    # ---- what others ask ----

    def start(self) -> None:
        self._wanted.set()
        self._again.set()
        self._wake.set()
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        self._wanted.clear()
        self._wake.set()

    def finish(self) -> None:
        """Stop for good."""
        self._finished = True
        self.stop()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        port = self.context.ports.get(self.service.port) if self.service.port else None
        return {
            "health": self.health,
            "reason": self.reason,
            "pid": self.identity.pid if self.identity else None,
            "created": self.identity.created if self.identity else None,
            "port": port,
            "restarts": self.restarts,
            "since": self.since,
            "start_s": self.start_s,
        }

    # ---- the thread ----

    def _set(self, health: str, reason: str = "") -> None:
        if (health, reason) != (self.health, self.reason):
            if health != self.health:
                self.since = time.time()
            self.health, self.reason = health, reason
            self._changed()

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _run(self) -> None:
        backoff = 0
        while not self._finished:
            if not self._wanted.is_set():
                self._set("stopped")
                self._pause(WATCH_S * 5)
                continue
            began = time.monotonic()
            try:
                if self._needs_met() and self._bring_up():
                    self._first = False
                    began = time.monotonic()
                    self._watch()
            except EmbeddedError as e:
                self._fail(str(e))
            except Exception as e:
                self._fail(f"{self.service.name} cannot be started ({type(e).__name__}: {e}): see {self._log}.")
            self._end_process()
            if self._wanted.is_set() and not self._finished and self.health != "failed":
                backoff = 0 if time.monotonic() - began > STABLE_S else backoff
                self._set("restarting", f"{self.reason}; next start in {BACKOFF_S[backoff]} s".lstrip("; "))
                self._pause(BACKOFF_S[backoff])
                backoff = min(backoff + 1, len(BACKOFF_S) - 1)
                self.restarts += 1
            elif self.health == "failed":
                self._again.clear()
                while self._wanted.is_set() and not self._finished and not self._again.is_set():
                    self._pause(WATCH_S * 5)
        self._end_process()
        if self.health != "failed":
            self._set("stopped")

    def _fail(self, sentence: str) -> None:
        """The first start ends the whole `up`; a later one is tried again."""
        self._set("failed" if self._first else "restarting", sentence)

    @property
    def _log(self) -> Path:
        return self.context.layout.log(self.service.name)

    def _needs_met(self) -> bool:
        while self._wanted.is_set():
            missing = [n for n in self.service.needs if n not in self.peers or self.peers[n].health != "healthy"]
            if not missing:
                return True
            self._set("waiting", f"for {', '.join(missing)}")
            self._pause(POLL_S)
        return False

    def _bring_up(self) -> bool:
        began = time.monotonic()
        self._set("starting")
        self.service.prepare(self.context)
        if not self._wanted.is_set():
            return False
        launch = self.service.launch(self.context)
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        with self._log.open("ab") as log:
            log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} starting {self.service.name}\n".encode())
        try:
            self._process = spawn(
                launch.command,
                env=launch.env,
                log=self._log,
                cwd=launch.cwd,
                user=launch.user,
                cpus=launch.cpus,
                nice=launch.nice,
            )
        except OSError as e:
            raise EmbeddedError(f"{self.service.name} cannot be started: {launch.command[0]} does not run ({e.strerror}).") from e
        with contextlib.suppress(psutil.Error):
            self.identity = Identity.of(self._process.pid)
        self._changed()
        reason: str | None = "no answer"
        while reason is not None:
            if not self._wanted.is_set():
                return False
            code = self._process.poll()
            if code is not None:
                self._died(code, "while starting")
                return False
            if time.monotonic() - began > self.service.start_timeout_s:
                raise EmbeddedError(
                    f"{self.service.name} is not healthy after {self.service.start_timeout_s:.0f} s ({reason}): see {self._log}."
                )
            reason = self.service.healthy(self.context, self._process.pid)
            if reason is not None:
                self._set("starting", reason)
                self._pause(POLL_S)
        self.service.ready(self.context)
        self.start_s = round(time.monotonic() - began, 1)
        self._set("healthy")
        return True

    def _died(self, code: int, when: str) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        said = next((x.strip() for x in reversed(tail(str(self._log), 40).splitlines()) if _complaint(x)), "")
        sentence = f"{self.service.name} {how} {when}{f' ({said[:200]})' if said else ''}: see {self._log}."
        self._fail(sentence) if when == "while starting" else self._set("restarting", sentence)

    def _watch(self) -> None:
        assert self._process is not None
        probed = time.monotonic()
        while self._wanted.is_set():
            code = self._process.poll()
            if code is not None:
                self._died(code, "while running")
                return
            if self.service.port and time.monotonic() - probed > PROBE_S:
                probed = time.monotonic()
                port = self.context.ports[self.service.port]
                self._set(*(("healthy", "") if accepts(port) else ("unhealthy", f"port {port} does not answer")))
            self._pause(WATCH_S)

    def _end_process(self) -> None:
        """Ask, wait, insist; and never leave a child of the service behind."""
        process = self._process
        if process is None:
            return
        ours = family([p]) if self.identity and (p := self.identity.process()) else []
        if process.poll() is None:
            if self.health != "failed":
                self._set("stopping")
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(self.service.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.service.stop_timeout_s)
        signal_group(process.pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
            process.wait(10)
        end([p for p in ours if p.is_running()], grace_s=0)
        self._process, self.identity = None, None
        self._changed()


def _complaint(line: str) -> bool:
    return any(word in line for word in ("FATAL", "PANIC", "ERROR", "Exception", "Error:", "error:", "rror occurred"))
