"""A restart on more executors begins when they are there and warm."""

from __future__ import annotations

import threading

import pytest

from spark_jobs.runtime.crew import FIRST_S, PATIENCE_S, Crew


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Play:
    """A warm-up that ends when told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self._may_end, self._error = 0, threading.Event(), error

    def __call__(self) -> None:
        self.begun += 1
        self._may_end.wait(10)
        if self._error is not None:
            raise self._error

    def end(self, crew: Crew) -> None:
        self._may_end.set()
        assert crew._warming is not None
        crew._warming.join(10)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crew(clock: Clock) -> Crew:
    """Of a driver that has run with two executors for a while."""
    made = Crew(clock=clock)
    made.look(["0"], 2)
    clock.now += 3.0
    made.look(["0", "1"], 2)
    clock.now += 2 * FIRST_S
    return made


def never() -> None:
    raise AssertionError("there is nobody to make warm")


def test_a_restart_without_anybody_new_begins_at_once(crew: Crew) -> None:
    crew.look(["0", "1"], 2)
    assert crew.ready(never)
    crew.look(["0"], 1)
    assert crew.ready(never), "also with fewer"


@pytest.mark.parametrize("error", [None, RuntimeError("no copy")])
def test_those_who_are_new_come_first_and_are_made_warm_once(crew: Crew, clock: Clock, error: Exception | None) -> None:
    play = Play(error)
    for there in (["0", "1"], ["0", "1", "2"]):
        crew.look(there, 4)
        assert not crew.ready(play)
        clock.now += 1.0
    assert play.begun == 0, "while somebody is missing nobody plays"
    crew.look(["0", "1", "2", "3"], 4)
    assert not crew.ready(play) and not crew.ready(play)
    assert play.begun == 1
    play.end(crew)
    assert crew.ready(never), "a play that failed is not played again"


def test_it_does_not_wait_for_ever(crew: Crew, clock: Clock) -> None:
    crew.look(["0", "1", "2"], 4)
    assert not crew.ready(never)
    while clock.now < 1_000.0 + 3.0 + 2 * FIRST_S + PATIENCE_S:
        clock.now += 1.0
        assert not crew.ready(never)
    clock.now += 2.0
    assert crew.ready(never), "it is made with those that are there"
    clock.now += 100.0
    crew.look(["0", "1", "2"], 4)
    assert not crew.ready(never), "the next one is patient again"
