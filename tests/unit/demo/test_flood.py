"""What an operator carries is measured warm, alone and at keep 1."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from spillway.demo import flood
from spillway.demo.course import Batch
from spillway.demo.flood import MORE, saturate
from spillway.demo.hand import ENOUGH_ROWS, KEEP
from spillway.demo.line import Line, LineFailed, Playing
from spillway.demo.verdict import HandKeep
from spillway.inject.scenario import Scenario, load
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
(TAXI,) = check_files([ROOT / "pipelines" / "taxi.yaml"]).pipelines
SCENARIO = load(ROOT / "scenarios" / "rush_hour.yaml")
PEAK = 600.0


class Flooded(Line):
    """A line on no services. Every look at its batches is four seconds later, and one of its heavy query ends between two."""

    def __init__(self, paces: list[float], *, drains: bool = True) -> None:
        self.pipeline, self.say, self.drains, self.paces = TAXI, lambda _: None, drains, paces
        self.told: list[Batch] = []
        self.keep, self.waiting, self.busy = 1.0, 0, 3
        self.profile: Callable[[], float] = lambda: 0.0
        self.rates: list[float] = []
        self.left: list[int] = []
        self.deeds: list[str] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(4.0 * len(self.told), UTC)

    def play(self, scenario: Scenario, options: Any = None) -> Playing:
        assert scenario.name == "flood"
        line, began = self, len(self.told)
        line.profile = lambda: sum(t.rate.rate(4.0 * (len(line.told) - began)) for t in scenario.topics)
        line.rates.append(line.profile())

        class Flood(Playing):
            def end(self) -> None:
                line.profile = lambda: 0.0
                line.left.append(line.waiting)

        return Flood(scenario=scenario, began=0.0)

    @property
    def rate(self) -> float:
        return self.profile()

    def look(self) -> str:
        return ""

    def step(self) -> None:
        pace = self.paces[min(len(self.told), len(self.paces) - 1)]
        self.waiting += int(4 * self.rate)
        self.busy -= not self.rate
        read = min(self.waiting, int(4 * pace / self.keep))
        self.waiting -= read
        began, kept = 4.0 * len(self.told), int(read * self.keep)
        took = 4.0 * kept / (4 * pace)
        batch = Batch(edge="union:heavy", consumer="heavy", began_s=began, ended_s=began + took, read=read, kept=kept,
                      keep=self.keep, decision=None, lag=self.waiting)  # fmt: skip
        self.told.append(batch)

    def lags(self) -> dict[str, int]:
        if not self.rate:
            self.step()
        return {**{e.name: 0 for e in TAXI.edges}, "union:light": max(0, self.busy), "union:heavy": self.waiting}

    def course(self, since: datetime, playing: Playing) -> list[Batch]:
        if self.rate:
            self.step()
        return [b for b in self.told if b.began_s >= since.timestamp() and b.ended_s > b.began_s]

    def drain(self, limit_s: float = 0.0) -> bool:
        return self.drains


class Hand:
    """Sets the keep of that line."""

    def __init__(self, line: Flooded) -> None:
        self.line = line

    def take(self) -> None:
        self.line.keep = KEEP
        self.line.deeds.append("take")

    def kept(self) -> HandKeep:
        self.line.step()
        met = [b for b in self.line.told if b.keep == KEEP]
        read, kept = sum(b.read for b in met), sum(b.kept for b in met)
        return HandKeep(edge="union:heavy", keep=KEEP, rows_read=read, rows_kept=kept, batches_until=1)

    def left(self) -> int:
        return max(0, ENOUGH_ROWS - self.kept().rows_read)

    def release(self) -> None:
        assert self.left() == 0 and not self.line.rate
        self.line.keep = 1.0
        self.line.deeds.append("release")


def flooded(line: Flooded) -> float:
    hand: Any = Hand(line)
    return saturate(line, SCENARIO, "heavy", hand)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "EVERY_S", 0.0)
    monkeypatch.setattr(flood, "LIMIT_S", 3.0)


def test_what_becomes_quicker_is_not_believed_yet() -> None:
    line = Flooded([100.0 * 1.15**n for n in range(12)] + [500.0])
    assert flooded(line) == pytest.approx(500.0, rel=0.05)


def test_what_it_does_while_the_flood_is_worked_off_by_the_others_does_not_count() -> None:
    line = Flooded([300.0] * 12 + [200.0])
    line.busy = 10
    assert flooded(line) == pytest.approx(200.0)


def test_it_is_measured_beside_the_peak_of_the_scenario() -> None:
    line = Flooded([450.0])
    assert flooded(line) == pytest.approx(450.0) and line.rates == [PEAK, PEAK]


def test_the_flood_ends_when_the_hand_will_have_met_enough() -> None:
    line = Flooded([100.0])
    flooded(line)
    met = sum(b.read for b in line.told if b.keep == KEEP)
    assert 0 < line.left[0] <= met and ENOUGH_ROWS <= met < 1.2 * ENOUGH_ROWS


def test_one_that_carries_more_than_the_peak_is_given_more() -> None:
    line = Flooded([800.0])
    assert flooded(line) == pytest.approx(800.0)
    assert line.rates == [PEAK, pytest.approx(MORE * 800.0)]


def test_a_hand_sheds_while_it_becomes_warm_and_is_gone_when_it_is_measured() -> None:
    line = Flooded([100, 120, 150, 200, 210, 220, 230, 240])
    assert flooded(line) == pytest.approx(240.0)
    assert line.deeds == ["take", "release"]


def test_an_operator_without_a_batch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Flooded):
        def course(self, since: datetime, playing: Playing) -> list[Batch]:
            return []

    monkeypatch.setattr(flood, "LIMIT_S", 0.1)
    with pytest.raises(LineFailed, match="0 s of flood were too short to tell how much heavy can carry"):
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
