"""A burst makes an operator warm, a keep by hand gets rid of it, and what it carries is measured behind a second flood."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from spillway.demo import flood
from spillway.demo.course import Batch
from spillway.demo.flood import BURST, MORE, SPARE, pour, saturate, warm
from spillway.demo.hand import ENOUGH_ROWS, KEEP
from spillway.demo.line import Line, LineFailed, Playing
from spillway.inject.scenario import Scenario, load
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
(TAXI,) = check_files([ROOT / "pipelines" / "taxi.yaml"]).pipelines
SCENARIO = load(ROOT / "scenarios" / "rush_hour.yaml")
PEAK = 600.0


class Flooded(Line):
    """A line on no services. Every look at it is four seconds later, and a batch of its heavy query ends between two."""

    def __init__(self, paces: list[float], *, drains: bool = True) -> None:
        self.pipeline, self.say, self.drains, self.paces = TAXI, lambda _: None, drains, paces
        self.told: list[Batch] = []
        self.keep, self.waiting = 1.0, 0
        self.profile: Callable[[], float] = lambda: 0.0
        self.rates: list[float] = []
        self.deeds: list[str] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(4.0 * len(self.told), UTC)

    def play(self, scenario: Scenario, options: Any = None) -> Playing:
        line = self
        began = len(self.told)
        line.profile = lambda: sum(t.rate.rate(4.0 * (len(line.told) - began)) for t in scenario.topics)
        line.rates.append(line.rate)

        class Flood(Playing):
            def end(self) -> None:
                line.profile = lambda: 0.0

        return Flood(scenario=scenario, began=0.0)

    @property
    def rate(self) -> float:
        return self.profile()

    def look(self) -> str:
        return ""

    def step(self) -> None:
        pace = self.paces[min(len(self.told), len(self.paces) - 1)]
        self.waiting += int(4 * self.rate)
        read = min(self.waiting, int(4 * pace / self.keep))
        self.waiting -= read
        began, kept = 4.0 * len(self.told), int(read * self.keep)
        batch = Batch(edge="union:heavy", consumer="heavy", began_s=began, ended_s=began + kept / pace, read=read, kept=kept,
                      keep=self.keep, decision=None, lag=self.waiting)  # fmt: skip
        self.told.append(batch)

    def lags(self) -> dict[str, int]:
        self.step()
        return {**{e.name: 0 for e in TAXI.edges}, "union:heavy": self.waiting}

    def course(self, since: datetime, playing: Playing) -> list[Batch]:
        self.step()
        return [b for b in self.told if b.began_s >= since.timestamp() and b.ended_s > b.began_s]

    def drain(self, limit_s: float = 0.0) -> bool:
        while self.waiting and self.drains:
            self.step()
        return not self.waiting


class Hand:
    """Sets the keep of that line."""

    def __init__(self, line: Flooded) -> None:
        self.line = line

    def take(self) -> None:
        self.line.keep = KEEP
        self.line.deeds.append("take")

    def left(self) -> int:
        return max(0, ENOUGH_ROWS - sum(b.read for b in self.line.told if b.keep == KEEP))

    def release(self) -> None:
        self.line.keep = 1.0
        self.line.deeds.append("release")


def flooded(line: Flooded) -> float:
    hand: Any = Hand(line)
    return saturate(line, SCENARIO, "heavy", hand)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "EVERY_S", 0.0)
    monkeypatch.setattr(flood, "LIMIT_S", 3.0)


def test_it_is_measured_once_a_keep_by_hand_has_made_it_warm() -> None:
    line = Flooded([100, 120, 150, 200, 210, 220, 230, 240])
    assert flooded(line) == pytest.approx(240.0)
    assert line.deeds == ["take", "release"]
    assert line.rates == [BURST * PEAK, pytest.approx(MORE[0] * 226.0, rel=0.01)], "of those it had done by then"


def test_what_was_kept_at_last_while_it_was_made_warm_is_told() -> None:
    """Its best batch tells of more than it carries."""
    hand: Any = Hand(Flooded([100.0, 150.0, 260.0, 400.0, 220.0]))
    assert warm(hand.line, SCENARIO, "heavy", hand) == pytest.approx(220.0, rel=0.01)
    assert hand.line.rates == [BURST * PEAK] and hand.left() == 0


def test_a_burst_that_waits_already_is_not_sent_again() -> None:
    line = Flooded([0.1])  # hardly anything runs while it is written
    hand: Any = Hand(line)
    burst = pour(line, SCENARIO, "heavy", hand, faster=3.0)
    assert line.rates == [3.0 * BURST * PEAK] and line.waiting >= SPARE * ENOUGH_ROWS and line.rate == 0.0
    line.paces = [250.0]
    assert warm(line, SCENARIO, "heavy", hand, burst) == pytest.approx(250.0, rel=0.01)
    assert len(line.rates) == 1 and hand.left() == 0 and line.deeds == ["take", "release"]


def test_what_becomes_quicker_is_not_believed_yet() -> None:
    """Its first batches at keep 1 are slower again."""

    class Slower(Hand):
        def release(self) -> None:
            super().release()
            self.line.paces = [400.0] * len(self.line.told) + [200.0 * 1.15**n for n in range(10)] + [800.0]

    hand: Any = Slower(Flooded([400.0]))
    assert saturate(hand.line, SCENARIO, "heavy", hand) == pytest.approx(800.0, rel=0.06)


def test_one_that_carries_more_than_the_scenario_has_is_given_more() -> None:
    line = Flooded([1100.0])
    assert flooded(line) == pytest.approx(1100.0)
    assert line.rates[-1] == pytest.approx(MORE[0] * 1100.0)


def test_rows_that_were_read_before_the_keep_was_in_force_are_sent_again() -> None:
    class Late(Hand):
        def take(self) -> None:
            self.line.deeds.append("take")

        def left(self) -> int:
            if len(self.line.rates) == 2:
                self.line.keep = KEEP
            return super().left()

    hand: Any = Late(Flooded([500.0]))
    assert saturate(hand.line, SCENARIO, "heavy", hand) == pytest.approx(500.0)
    assert len(hand.line.rates) == 3 and hand.left() == 0


def test_a_keep_that_is_never_in_force_is_told_and_taken_back() -> None:
    class Vain(Hand):
        def take(self) -> None:
            self.line.deeds.append("take")

    hand: Any = Vain(Flooded([800.0]))
    with pytest.raises(LineFailed, match="After 3 bursts 16,000 rows are still to meet the keep set by hand"):
        saturate(hand.line, SCENARIO, "heavy", hand)
    assert hand.line.deeds == ["take", "release"]


def test_an_operator_without_a_batch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Flooded):
        def course(self, since: datetime, playing: Playing) -> list[Batch]:
            return [] if "release" in self.deeds else super().course(since, playing)

    monkeypatch.setattr(flood, "LIMIT_S", 0.1)
    with pytest.raises(LineFailed, match="After 0 s of flood heavy filled too few batches"):
        flooded(Silent([450.0]))


def test_an_injector_that_fails_is_told() -> None:
    class Broken(Flooded):
        def play(self, scenario: Scenario, options: Any = None) -> Playing:
            playing = super().play(scenario)
            playing.error = "no broker"
            return playing

    with pytest.raises(LineFailed, match="The injector stopped: no broker"):
        flooded(Broken([450.0]))


def test_a_flood_that_does_not_drain_is_not_taken_into_the_rush() -> None:
    with pytest.raises(LineFailed, match="150 s after a flood of heavy its rows still waited"):
        flooded(Flooded([450.0], drains=False))
