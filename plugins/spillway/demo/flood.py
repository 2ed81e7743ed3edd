"""What an operator carries, measured by a flood: it becomes warm by one, and then falls behind another that is as high as a rush,
so that everybody beside it is as busy as then, and its own batches tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from spillway.demo.course import Batch, capacity, peak
from spillway.demo.hand import Hand
from spillway.demo.line import DRAIN_LIMIT_S, SHOW_EVERY_S, Line, LineFailed, Playing
from spillway.demo.lineage import edges_before
from spillway.inject.profiles import Constant
from spillway.inject.scenario import Scenario

T = TypeVar("T")

FLOOD, LIMIT_S, EVERY_S = 2.0, 120.0, 1.0
"""The first one, as a multiple of a scenario's peak."""
SPARE = 1.2
"""How many times the rows that a hand wants to meet it brings: some are read before the keep is in force."""
MORE = 1.5
"""The second one, as a multiple of what the operator did at its best until then."""
SOON, SURELY = 3, 10
"""Batches filled by it before what they tell is believed. What is new carries half of what it will: it is not compiled yet."""


def saturate(line: Line, scenario: Scenario, operator: str, hand: Hand, batches: int = SURELY) -> float:
    """Rows per second an operator manages at keep 1 while everybody else carries more than that, by so many of its batches.

    The first flood comes to operators that have run nothing yet: their first batches start JVMs and Python processes. A keep set
    by hand drains it, while the operator becomes warm."""
    since, target_s = line.now(), line.pipeline.batch_target_s
    line.say(f"a flood, which makes {operator} warm …")
    with _flood(line, scenario, FLOOD * _peak(scenario)) as playing:
        _until(lambda: _waiting(line, operator) >= SPARE * hand.left(), line, operator, playing)
    _until(lambda: _batches(line, since, playing, operator), line, operator)
    hand.take()
    _drain(line, operator)
    while hand.left():
        with _flood(line, scenario, FLOOD * _peak(scenario)) as playing:
            _until(lambda: _waiting(line, operator) >= SPARE * hand.left(), line, operator, playing)
        _drain(line, operator)
    best = max(b.kept / (b.ended_s - b.began_s) for b in _batches(line, since, playing, operator))
    hand.release()
    since = line.now()
    line.say(f"{MORE * best:,.0f} events a second, until it is known how many of them {operator} carries …")
    with _flood(line, scenario, MORE * best) as playing:
        found = _until(lambda: capacity(_whole(line, since, playing, operator), target_s, least=batches), line, operator, playing)
    line.say(f"{operator} carries {found:,.0f} events a second")
    _drain(line, operator)
    return found


def _drain(line: Line, operator: str) -> None:
    if not line.drain():
        raise LineFailed(f"{DRAIN_LIMIT_S:.0f} s after a flood of {operator} its rows still waited: see `spillway events`.")


@contextmanager
def _flood(line: Line, scenario: Scenario, rate: float) -> Iterator[Playing]:
    """So many events a second, in the proportions of a scenario's peak."""
    share = rate / _peak(scenario)
    topics = tuple(replace(load, rate=Constant(share * peak(load, scenario.duration_s))) for load in scenario.topics)
    playing = line.play(replace(scenario, name="flood", duration_s=2 * LIMIT_S, pipelines=(), topics=topics))
    try:
        yield playing
    finally:
        playing.end()


def _batches(line: Line, since: datetime, playing: Playing, operator: str) -> list[Batch]:
    return [b for b in line.course(since, playing) if b.consumer == operator]


def _whole(line: Line, since: datetime, playing: Playing, operator: str) -> list[Batch]:
    return [b for b in _batches(line, since, playing, operator) if b.keep == 1.0]


def _peak(scenario: Scenario) -> float:
    return sum(peak(load, scenario.duration_s) for load in scenario.topics)


def _waiting(line: Line, operator: str) -> int:
    """Rows on the way to it."""
    lags = line.lags()
    return sum(lags[e.name] for e in edges_before(line.pipeline, operator))


def _until(true: Callable[[], T | None], line: Line, operator: str, playing: Playing | None = None) -> T:
    """What it finds, once it finds something."""
    began = shown = time.monotonic()
    while not (found := true()):
        if playing is not None and playing.error:
            raise LineFailed(f"The injector stopped: {playing.error}.")
        if time.monotonic() - began > LIMIT_S:
            raise LineFailed(
                f"{LIMIT_S:.0f} s of flood were too short to tell how much {operator} can carry: see `spillway events`."
            )
        if time.monotonic() - shown >= SHOW_EVERY_S:
            shown = time.monotonic()
            line.say(line.look())
        time.sleep(EVERY_S)
    return found
