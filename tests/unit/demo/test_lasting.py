"""A rush that stays is as high as what an operator carries asks for, and judged by what it carried."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spillway.demo.course import Batch, Factor, offered, rush, scaled
from spillway.demo.lasting import AHEAD_S, Lasting
from spillway.demo.line import Line, Playing
from spillway.inject.scenario import load
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
(TAXI,) = check_files([ROOT / "pipelines" / "taxi.yaml"]).pipelines
SHAPE = load(ROOT / "scenarios" / "long_rush.yaml")
SINCE = datetime(2031, 5, 5, tzinfo=UTC)
BEGINS_S = rush(SHAPE).begins_s
ELAPSED_S = BEGINS_S + 20.0
"""Its height lasts some seconds more."""


def batch(began_s: float, kept: int, *, took_s: float = 4.0, keep: float = 1.0) -> Batch:
    times = {"began_s": began_s, "ended_s": began_s + took_s}
    rows = {"read": int(kept / keep), "kept": kept, "lag": 500}
    return Batch(edge="union:heavy", consumer="heavy", keep=keep, decision=None, **times, **rows)


class Quiet(Line):
    """A line on no services, on which nobody was named or rescaled."""

    def __init__(self, batches: list[Batch]) -> None:
        self.pipeline, self.batches, self.told = TAXI, batches, list[str]()
        self.say = self.told.append

    def course(self, since: datetime, playing: Playing) -> list[Batch]:
        return self.batches

    def named(self, since: datetime, playing: Playing) -> list[tuple[float, tuple[str, ...]]]:
        return []

    def plan(self, since: datetime) -> None:
        return None


def lasting(line: Line, carries: float = 100.0) -> tuple[Lasting, Playing]:
    """In the middle of its peak."""
    factor = Factor(2.0 * carries / rush(SHAPE).peak)
    found = Lasting(line=line, shape=SHAPE, operator="heavy", overload=2.0, cycle_s=15.0, carries=carries, factor=factor)
    return found, Playing(scenario=scaled(SHAPE, factor), began=time.time() - ELAPSED_S)


def test_the_rates_to_come_follow_what_two_filled_batches_of_the_rush_tell() -> None:
    rushing, playing = lasting(Quiet([batch(BEGINS_S + 2, 800), batch(BEGINS_S + 6, 840)]))
    assert offered(playing.scenario, ELAPSED_S + 4.0) == pytest.approx(200.0)
    rushing.follow(playing, SINCE)
    assert (rushing.known, rushing.carries) == (True, pytest.approx(205.0))
    assert offered(playing.scenario, ELAPSED_S - 1.0) == pytest.approx(200.0), "what was sent is as it was"
    assert offered(playing.scenario, ELAPSED_S + AHEAD_S + 0.5) == pytest.approx(2 * 205.0)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [batch(BEGINS_S + 2, 800)],  # one is not enough
        [batch(BEGINS_S - 12, 800), batch(BEGINS_S - 6, 800)],  # before the rush
        [batch(BEGINS_S + 2, 300, took_s=1.5), batch(BEGINS_S + 6, 300, took_s=1.5)],  # it was not busy
        [batch(BEGINS_S + 2, 400), batch(BEGINS_S + 6, 800)],  # it becomes quicker
    ],
)
def test_until_then_it_is_as_high_as_was_guessed(batches: list[Batch]) -> None:
    rushing, playing = lasting(Quiet(batches))
    rushing.follow(playing, SINCE)
    assert (rushing.known, offered(playing.scenario, ELAPSED_S + 4.0)) == (False, pytest.approx(200.0))


def test_what_it_is_compared_with_is_what_was_carried_while_nothing_was_shed() -> None:
    line = Quiet([batch(BEGINS_S + 2, 800), batch(BEGINS_S + 6, 800), batch(BEGINS_S + 10, 200, keep=0.2)])
    rushing, playing = lasting(line)
    rushing.follow(playing, SINCE)
    found = rushing.measured(playing, SINCE)
    stays = offered(SHAPE, SHAPE.duration_s - 2.0) / rush(SHAPE).peak
    assert found.load == pytest.approx(2.0 * stays)
    assert (found.change, found.is_named, found.is_rescaled, found.stays_whole(15.0)) == (None, False, False, False)


class Rescaled(Quiet):
    """On which the operator was named, and a hand-over was told to it at a moment of what is played."""

    def __init__(self, batches: list[Batch], told_s: float) -> None:
        super().__init__(batches)
        self.told_s, self.began = told_s, time.time() - ELAPSED_S

    def named(self, since: datetime, playing: Playing) -> list[tuple[float, tuple[str, ...]]]:
        return [(BEGINS_S + 20.0, ("heavy",))]

    def plan(self, since: datetime) -> Any:
        told = SimpleNamespace(ended_at=datetime.fromtimestamp(self.began + self.told_s, UTC))
        return SimpleNamespace(
            operator="heavy", changes="executors 1 → 2", kind="handover", state="done", executors_from=1, executors_to=2,
            requested_at=datetime.fromtimestamp(self.began + self.told_s - 60.0, UTC), observed={"pause_s": 2.5, "steady_s": 3.0},
            done=lambda step: told if step == "cutover" else None,
        )  # fmt: skip


AT_KEEP_1 = [batch(BEGINS_S + 2, 800), batch(BEGINS_S + 6, 800)]


@pytest.mark.parametrize(
    ("shed_until_s", "shed_before", "whole"),
    [
        (160.0, True, True),  # what was rescaled was shed until then
        (100.0, False, False),  # it was whole long before: the rush had calmed, and nothing was needed
        (300.0, True, False),  # it was no help
    ],
)
def test_a_rescale_counts_only_if_it_ended_the_shedding(shed_until_s: float, shed_before: bool, whole: bool) -> None:
    shed = [batch(t, 300, keep=0.5) for t in (40.0, 80.0, shed_until_s - 1.0)]
    rushing, playing = lasting(Rescaled([*AT_KEEP_1, *shed, batch(shed_until_s, 400, took_s=2.0)], told_s=150.0), carries=200.0)
    found = rushing.measured(playing, SINCE)
    assert (found.is_named, found.is_rescaled, found.shed_before) == (True, True, shed_before)
    assert found.change is not None and found.change.told_s == pytest.approx(150.0, abs=1.0)
    assert found.load == pytest.approx(1.1, abs=0.01) and found.stays_whole(15.0) is whole
    if whole:
        assert found.held_s == pytest.approx(SHAPE.duration_s - shed_until_s)


def test_what_was_never_filled_before_the_change_is_not_known() -> None:
    rushing, playing = lasting(Rescaled([batch(200.0, 800), batch(204.0, 800)], told_s=150.0))
    rushing.follow(playing, SINCE)
    assert not rushing.known, "these are of what was rescaled"
    assert rushing.measured(playing, SINCE).load is None


def test_its_height_is_when_the_scenario_says() -> None:
    rushing, playing = lasting(Quiet([batch(BEGINS_S + 2, 400), batch(BEGINS_S + 6, 400)]), carries=400.0)
    before = rushing.height
    rushing.follow(playing, SINCE)
    assert rushing.height == before, "a guess that was too high does not make it shorter"
