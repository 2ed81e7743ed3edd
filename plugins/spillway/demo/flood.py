"""What an operator carries, measured by two floods: the first makes it warm, and a keep set by hand drains it; behind the second
it falls while everybody beside it is as busy as in a rush, so that its own batches tell."""

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

FLOOD, LIMIT_S, EVERY_S = 2.0, 120.0, 1.0
"""The first one, as a multiple of a scenario's peak."""
SPARE = 1.2
"""How many times the rows that a hand wants to meet it brings: some are read before the keep is in force."""
MORE, RAMP_S = (1.5, 3.0), 60.0
"""The second one rises from the first to the second multiple of what the operator did at its best until then: at last it is more
than it carries, however cold it was."""
SOON, SURELY = 3, 10
"""Batches filled by it before what they tell is believed. What is new carries half of what it will: it is not compiled yet."""
FLOODS = 3
"""So many are made at most for a keep by hand."""


def saturate(line: Line, scenario: Scenario, operator: str, hand: Hand, batches: int = SURELY) -> float:
    """Rows per second an operator manages at keep 1 while everybody else carries more than that, by so many of its batches."""
    best = _warmed(line, scenario, operator, hand)
    since, target_s = line.now(), line.pipeline.batch_target_s
    line.say(f"{MORE[0] * best:,.0f} events a second and more, until it is known how many of them {operator} carries …")
    with _flood(line, scenario, MORE[0] * best, MORE[1] * best) as playing:
        found = _until(
            lambda: capacity(_whole(line, since, playing, operator), target_s, least=batches),
            f"{operator} filled too few batches, or became quicker all along",
            line,
            playing,
        )
    line.say(f"{operator} carries {found:,.0f} events a second")
    _drain(line, operator)
    return found


def _warmed(line: Line, scenario: Scenario, operator: str, hand: Hand) -> float:
    """The first flood comes to operators that have run nothing yet: their first batches start JVMs and Python processes. Returns
    the most rows per second that the operator has kept of it."""
    since, rate = line.now(), FLOOD * _peak(scenario)
    line.say(f"a flood, which makes {operator} warm …")
    try:
        for number in range(FLOODS):
            with _flood(line, scenario, rate, rate) as playing:
                few = f"what is written does not wait for {operator}"
                _until(lambda: _waiting(line, operator) >= SPARE * hand.left(), few, line, playing)
            _until(lambda: _batches(line, since, playing, operator), f"{operator} ran no batch", line)
            if number == 0:
                hand.take()
            _drain(line, operator)
            if not hand.left():
                return max(b.kept / (b.ended_s - b.began_s) for b in _batches(line, since, playing, operator))
        raise LineFailed(
            f"After {FLOODS} floods {hand.left():,} rows are still to meet the keep set by hand: see `spillway events`."
        )
    finally:
        hand.release()


def _drain(line: Line, operator: str) -> None:
    if not line.drain():
        raise LineFailed(f"{DRAIN_LIMIT_S:.0f} s after a flood of {operator} its rows still waited: see `spillway events`.")


@contextmanager
def _flood(line: Line, scenario: Scenario, start: float, end: float) -> Iterator[Playing]:
    """From so many events a second to so many, in the proportions of a scenario's peak."""
    topics = []
    for load in scenario.topics:
        share = peak(load, scenario.duration_s) / _peak(scenario)
        topics.append(replace(load, rate=Ramp(start=share * start, end=share * end, over_s=RAMP_S)))
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


def _until(true: Callable[[], T | None], otherwise: str, line: Line, playing: Playing | None = None) -> T:
    """What it finds, once it finds something."""
    began = shown = time.monotonic()
    while not (found := true()):
        if playing is not None and playing.error:
            raise LineFailed(f"The injector stopped: {playing.error}.")
        if time.monotonic() - began > LIMIT_S:
            raise LineFailed(f"After {LIMIT_S:.0f} s of flood {otherwise}: see `spillway events`.")
        if time.monotonic() - shown >= SHOW_EVERY_S:
            shown = time.monotonic()
            line.say(line.look())
        time.sleep(EVERY_S)
    return found
