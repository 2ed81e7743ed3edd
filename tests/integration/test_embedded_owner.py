"""Services that belong to a process end with it: at once when it can still act, at the next start when it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spillway.embedded import Stack
from spillway.embedded.config import REPO
from spillway.embedded.owner import sweep_scratch
from spillway.embedded.processes import Identity

from tests.support.embedded import nothing_runs
from tests.support.line import until

pytestmark = pytest.mark.integration

Owner = Callable[..., "subprocess.Popen[str]"]

DEMO = """
import sys, time
from pathlib import Path
from spillway.demo import run

def course(stack, console):
    print("running", flush=True)
    time.sleep(600)

run.ALL, run._course = ("postgres",), course
sys.exit(run.run(keep_up="keep" in sys.argv, home=Path(sys.argv[1])))
"""
"""The demo with one service and without its course."""

SESSION = """
import time
from spillway.embedded import Stack
from spillway.embedded.owner import scratch

with scratch("test") as folder:
    Stack(folder / "own", services=("postgres",)).up()
    print("running", flush=True)
    time.sleep(600)
"""
"""A test session or a bench, as far as its services go."""


@pytest.fixture
def stack(run_root: Path, unique: Callable[[str], str]) -> Iterator[Stack]:
    stack = Stack(run_root / unique("bound"), services=("postgres",))
    yield stack
    stack.clean()


def listen_to_signals() -> None:
    """A test run in the background, or under nohup, hands ignored signals on."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Starts a program and returns when its services run."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=os.environ | env,
            cwd=REPO,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=listen_to_signals,
        )
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line == "running\n":
                return process
        raise AssertionError(f"it ended with {process.wait()}")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def up(stack: Stack) -> str:
    command = [sys.executable, "-m", "spillway.embedded", "--home", str(stack.layout.home), "up", "--services", "postgres"]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPO, timeout=120, check=True).stdout


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_demo_that_is_told_to_end_leaves_nothing(stack: Stack, owner: Owner, ending: signal.Signals) -> None:
    demo = owner(DEMO, str(stack.layout.home))
    assert stack.pids().keys() == {"postgres"}
    demo.send_signal(ending)
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Interrupted." in said
    assert nothing_runs(stack)


def test_a_demo_whose_make_is_killed_ends_by_itself(stack: Stack, owner: Owner, tmp_path: Path) -> None:
    program, recipes = tmp_path / "demo.py", tmp_path / "Makefile"
    program.write_text(DEMO)
    recipes.write_text(f"SHELL := /bin/bash\ndemo:\n\t@{sys.executable} {program} {stack.layout.home}\n")
    make = owner("import os, sys; os.execvp('make', ['make', '-f', sys.argv[1]])", str(recipes))
    assert stack.pids().keys() == {"postgres"}
    make.kill()
    make.wait()
    until(lambda: nothing_runs(stack), 60, "all that the killed make had started has ended")


def test_a_second_demo_leaves_the_first_alone(stack: Stack, owner: Owner) -> None:
    first = owner(DEMO, str(stack.layout.home))
    before = stack.pids()
    second = subprocess.run(
        [sys.executable, "-c", DEMO, str(stack.layout.home)], cwd=REPO, capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 1
    assert f"Process {first.pid} uses the services of" in " ".join(second.stdout.split())
    assert (first.poll(), stack.pids()) == (None, before)


def test_the_next_start_takes_down_what_a_killed_demo_left(stack: Stack, owner: Owner) -> None:
    demo = owner(DEMO, str(stack.layout.home))
    left = [Identity.of(stack.pids()["postgres"]), Identity(**stack.state()["supervisor"])]
    demo.kill()
    demo.wait()
    assert all(i.process() for i in left)

    said = up(stack).splitlines()
    assert f"stopping the services that process {demo.pid} left behind when it was killed" in said[0]
    assert not any(i.process() for i in left)
    assert stack.pids().keys() == {"postgres"}


def test_a_killed_demo_is_followed_by_one_that_leaves_nothing(stack: Stack, owner: Owner) -> None:
    first = owner(DEMO, str(stack.layout.home))
    first.kill()
    first.wait()
    second = owner(DEMO, str(stack.layout.home))
    second.terminate()
    second.communicate(timeout=60)
    assert nothing_runs(stack)


@pytest.mark.parametrize("asked_by", ["the demo", "make up"])
def test_services_that_somebody_asked_to_keep_are_kept(stack: Stack, owner: Owner, asked_by: str) -> None:
    demo = owner(DEMO, str(stack.layout.home), *(["keep"] if asked_by == "the demo" else []))
    before = stack.pids()
    if asked_by == "make up":
        up(stack)
    demo.terminate()
    said, _ = demo.communicate(timeout=60)
    assert "The services stay up" in said
    assert "left behind" not in up(stack)
    assert stack.pids() == before


def test_the_next_session_ends_the_services_of_one_that_was_killed(run_root: Path, owner: Owner) -> None:
    session = owner(SESSION, TMPDIR=str(run_root))
    (folder,) = run_root.glob("spillway-test-*")
    stack = Stack(folder / "own")
    assert sweep_scratch(run_root) == []
    assert stack.alive()
    session.kill()
    session.wait()
    assert stack.alive()
    assert sweep_scratch(run_root) == [folder]
    assert nothing_runs(stack)
    assert not folder.exists()
