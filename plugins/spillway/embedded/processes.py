"""Processes that are ours: started with a mark in their environment, recorded with pid and start time, ended by that only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# Only the supervisor sets this variable, so a shell in which somebody exported SPILLWAY_HOME is never taken for ours.
MARK = "SPILLWAY_EMBEDDED"
BECOME = Path(__file__).with_name("become.py")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process by pid and start time; a recycled pid has another start time."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Identity:
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """The process if it still is the recorded one."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.created) > 1.0 or found.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.Error:
            return None
        return found


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    user: tuple[int, int] | None = None,
    cpus: Iterable[int] = (),
    nice: int = 0,
) -> subprocess.Popen[bytes]:
    """Start a service in a session of its own, with nothing open but its log; if asked as another user, on chosen cores, less
    urgent."""
    options: list[str] = []
    if user is not None:
        options += ["--user", f"{user[0]}:{user[1]}"]
    if cpus := list(cpus):
        options += ["--cpus", ",".join(map(str, cpus))]
    if nice:
        options += ["--nice", str(nice)]
    if options:
        command = [sys.executable, "-I", "-S", str(BECOME), *options, "--", *command]
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command), env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def family(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for root in roots:
        found[root.pid] = root
        with contextlib.suppress(psutil.Error):
            for child in root.children(recursive=True):
                found[child.pid] = child
    return list(found.values())


def marked(home: Path) -> list[psutil.Process]:
    """Every process that a supervisor of this run folder started, or that such a process started."""
    found = []
    for p in psutil.process_iter():
        if p.pid == os.getpid():
            continue
        try:
            if p.environ().get(MARK) == str(home):
                found.append(p)
        except (psutil.Error, OSError):
            continue
    return found


def _wait(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that still live after the time is up."""
    deadline = time.monotonic() + timeout_s
    while alive := [p for p in processes if p.is_running() and _lives(p)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.02)
    return []


def end(processes: Iterable[psutil.Process], grace_s: float) -> None:
    """SIGTERM, wait, SIGKILL what is left, wait until it is gone."""
    alive = list(processes)
    if grace_s > 0:
        for p in alive:
            with contextlib.suppress(psutil.Error):
                p.terminate()
        alive = _wait(alive, grace_s)
    for p in alive:
        with contextlib.suppress(psutil.Error):
            p.kill()
    _wait(alive, 10)


def _lives(process: psutil.Process) -> bool:
    """A zombie has ended; whoever started it has yet to notice."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def sweep(home: Path, recorded: Iterable[Identity]) -> int:
    """End every process of a run folder, recorded or marked; returns how many there were."""
    count = 0
    mine = {p.pid for p in psutil.Process().parents()} | {os.getpid()}
    for _ in range(5):
        roots = [p for i in recorded if (p := i.process()) is not None] + marked(home)
        ours = [p for p in family(p for p in roots if p.pid not in mine) if p.pid not in mine and _lives(p)]
        if not ours:
            break
        count += len(ours)
        end(ours, grace_s=0)
    return count


def recorded(state: Mapping[str, Any]) -> list[Identity]:
    """Every process that a state names."""
    rows = [state.get("supervisor") or {}, *(state.get("services") or {}).values()]
    return [Identity(int(r["pid"]), float(r["created"])) for r in rows if r.get("pid") and r.get("created")]


def signal_group(pid: int, sig: signal.Signals) -> None:
    """Signal a service's session, where it is the group leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)
