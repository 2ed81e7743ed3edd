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
from spillway.inject.profiles import Ramp
from spillway.inject.scenario import Scenario

T = TypeVar("T")

RISES, RAMP_S, LIMIT_S, EVERY_S = (1.0, 2.0), 60.0, 120.0, 1.0
"""It rises from the first to the second multiple of a scenario's peak."""
MORE = 1.25
"""What goes on arriving is the scenario's peak, or so many times what the operator did at its best: it stays behind."""
STEADY_BATCHES = 3
"""Batches filled by it before what they tell is believed. What is new carries half of what it will: it is not compiled yet."""


def saturate(line: Line, scenario: Scenario, operator: str, hand: Hand) -> float:
    """Rows per second an operator manages at keep 1 while everybody else carries the peak of a scenario.

    The flood comes to operators that have run nothing yet: their first batches start JVMs and Python processes. A keep set by
    hand meets what waits of it, while the operator becomes warm."""
    inputs, since, target_s = {e.name for e in line.pipeline.inputs(operator)}, line.now(), line.pipeline.batch_target_s
    line.say(f"a flood, until {operator} is behind …")
    with _flood(line, scenario, *RISES) as playing:
        _until(lambda: _batches(line, since, playing, operator), line, operator, playing)
        hand.take()
        _until(lambda: hand.kept().rows_read, line, operator, playing)
        _until(lambda: _waiting(line, operator) >= hand.left(), line, operator, playing)
    _until(lambda: hand.left() == 0, line, operator)
    hand.release()
    _until(lambda: not any(rows for edge, rows in line.lags().items() if edge not in inputs), line, operator)
    best = max(b.kept / (b.ended_s - b.began_s) for b in _batches(line, since, playing, operator))
    since, rush = line.now(), max(1.0, MORE * best / _peak(scenario))
    line.say(f"{rush * _peak(scenario):,.0f} events a second, until it is known how many {operator} carries …")
    with _flood(line, scenario, rush, rush) as playing:
        found = _until(
            lambda: capacity(_whole(line, since, playing, operator), target_s, least=STEADY_BATCHES), line, operator, playing
        )
    line.say(f"{operator} carries {found:,.0f} events a second")
    if not line.drain():
        raise LineFailed(f"{DRAIN_LIMIT_S:.0f} s after a flood of {operator} its rows still waited: see `spillway events`.")
    return found


@contextmanager
def _flood(line: Line, scenario: Scenario, start: float, end: float) -> Iterator[Playing]:
    """From the first to the second multiple of a scenario's peak."""
    topics = []
    for load in scenario.topics:
        highest = peak(load, scenario.duration_s)
        topics.append(replace(load, rate=Ramp(start=start * highest, end=end * highest, over_s=RAMP_S)))
    playing = line.play(replace(scenario, name="flood", duration_s=2 * LIMIT_S, pipelines=(), topics=tuple(topics)))
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
