"""Whose process is it? Only ours are ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from spillway.embedded.processes import MARK, Identity, recorded, spawn, sweep

SLEEP = "import time; time.sleep(600)"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a sleeping Python with extra environment."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str = SLEEP, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-S", "-c", code], env=os.environ | env)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_a_recorded_process_is_ended(start: Start, tmp_path: Path) -> None:
    process = start()
    assert sweep(tmp_path, [Identity.of(process.pid)]) == 1
    assert process.wait(5) == -9


def test_a_process_with_a_recycled_pid_is_left_alone(start: Start, tmp_path: Path) -> None:
    process = start()
    dead = Identity(process.pid, psutil.Process(process.pid).create_time() - 100)
    assert dead.process() is None
    assert sweep(tmp_path, [dead]) == 0
    assert process.poll() is None


def test_a_marked_process_is_ended_with_its_children(start: Start, tmp_path: Path) -> None:
    code = f"import os, subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', '{SLEEP}'], env={{}})\n{SLEEP}"
    process = start(code, **{MARK: str(tmp_path)})
    while not (children := psutil.Process(process.pid).children()):
        time.sleep(0.02)
    assert sweep(tmp_path, []) == 2
    assert process.wait(5) == -9
    assert not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE


def test_an_exported_home_in_a_shell_does_not_make_it_ours(start: Start, tmp_path: Path) -> None:
    process = start(SPILLWAY_HOME=str(tmp_path))
    other = start(**{MARK: str(tmp_path / "other")})
    assert sweep(tmp_path, []) == 0
    assert (process.poll(), other.poll()) == (None, None)


def test_the_sweeper_spares_itself_and_its_parents(tmp_path: Path) -> None:
    assert sweep(tmp_path, [Identity.of(os.getpid()), Identity.of(os.getppid())]) == 0


def test_a_state_cut_off_or_empty_names_nobody() -> None:
    assert recorded({}) == []
    assert recorded({"supervisor": None, "services": {"kafka": {"pid": None, "created": None}}}) == []
    assert recorded({"supervisor": {"pid": 7, "created": 1.5}}) == [Identity(7, 1.5)]


def test_a_service_is_confined_to_its_core_and_as_urgent_as_it_should_be(tmp_path: Path) -> None:
    core, mine = min(os.sched_getaffinity(0)), os.nice(0)
    log = tmp_path / "log"
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.getsid(0) == os.getpid(), os.nice(0))"
    spawn([sys.executable, "-S", "-c", code], env=os.environ, log=log, cwd=tmp_path, cpus=[core], nice=2).wait(20)
    assert log.read_text().split() == [f"[{core}]", "True", str(min(mine + 2, 19))]
