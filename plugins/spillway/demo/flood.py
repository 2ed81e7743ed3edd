"""What an operator carries, measured by two floods: a burst makes everything warm, and a keep that is set by hand drains it;
behind the second one it falls while everybody beside it is as busy as in a rush, so that its own batches tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from spillway.demo.course import Batch, capacity, pace, peak
from spillway.demo.hand import Hand
from spillway.demo.line import DRAIN_LIMIT_S, SHOW_EVERY_S, Line, LineFailed, Playing
from spillway.demo.lineage import edges_before
from spillway.inject.profiles import Ramp
from spillway.inject.scenario import Scenario

T = TypeVar("T")

BURST, BURSTS = 3.0, 3
"""What is sent for a keep by hand to meet, as a multiple of a scenario's peak; so often at most."""
SPARE = 1.2
"""How many times the rows that a hand wants to meet are to wait: some are read before the keep is in force."""
MORE, RAMP_S = (1.5, 3.0), 60.0
"""The second one rises from the first to the second multiple of what the operator did in the first: at last it is more than it
carries, however cold it was."""
MEASURED_BY = 10
"""Batches filled by it before what they tell is believed."""
LIMIT_S, EVERY_S = 120.0, 1.0


def saturate(line: Line, scenario: Scenario, operator: str, hand: Hand) -> float:
    """Rows per second an operator manages at keep 1 while everybody else carries more than that."""
    guess = warm(line, scenario, operator, hand)
    since = line.now()
    line.say(f"{MORE[0] * guess:,.0f} events a second and more, until it is known how many of them {operator} carries …")
    with _flood(line, scenario, MORE[0] * guess, MORE[1] * guess) as playing:
        found = _until(
            lambda: capacity(_batches(line, since, playing, operator), line.pipeline.batch_target_s, least=MEASURED_BY),
            f"{operator} filled too few batches, or became quicker all along",
            line,
            playing,
        )
    line.say(f"{operator} carries {found:,.0f} events a second")
    _drain(line, operator)
    return found


def pour(line: Line, scenario: Scenario, operator: str, hand: Hand, *, faster: float = 1.0) -> Playing:
    """A burst: as many rows as a hand still wants to meet, with some to spare, wait for an operator."""
    rate = faster * BURST * _peak(scenario)
    with _flood(line, scenario, rate, rate) as playing:
        few = f"what is written does not wait for {operator}"
        _until(lambda: _waiting(line, operator) >= SPARE * hand.left(), few, line, playing)
    return playing


def warm(line: Line, scenario: Scenario, operator: str, hand: Hand, poured: Playing | None = None) -> float:
    """A burst comes to operators that have run nothing yet: their first batches start JVMs and Python processes. A keep by hand
    drains it. Returns how many rows per second the operator kept in the last half of its batches; the best of them would tell of
    more than it carries, for its rows had been waiting and others were idle."""
    since = line.now()
    try:
        for number in range(BURSTS):
            playing = poured if poured is not None and number == 0 else pour(line, scenario, operator, hand)
            if number == 0:
                _until(lambda: _before(line, operator), f"nothing came to {operator}", line)
                hand.take()
            _drain(line, operator)
            if not hand.left():
                done = _batches(line, since, playing, operator)
                return pace(done[len(done) // 2 :])
        raise LineFailed(
            f"After {BURSTS} bursts {hand.left():,} rows are still to meet the keep set by hand: see `spillway events`."
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


def _peak(scenario: Scenario) -> float:
    return sum(peak(load, scenario.duration_s) for load in scenario.topics)


def _waiting(line: Line, operator: str) -> int:
    """Rows on the way to it."""
    lags = line.lags()
    return sum(lags[e.name] for e in edges_before(line.pipeline, operator))


def _before(line: Line, operator: str) -> int:
    """Rows right in front of it: it has begun with them, or is about to."""
    lags = line.lags()
    return sum(lags[e.name] for e in line.pipeline.inputs(operator))


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
