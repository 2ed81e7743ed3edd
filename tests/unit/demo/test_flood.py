"""What an operator carries is measured warm, alone and at keep 1."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from spillway.demo import flood
from spillway.demo.course import Batch
from spillway.demo.flood import MORE, RESERVE, saturate
from spillway.demo.hand import ENOUGH_ROWS, KEEP
from spillway.demo.line import Line, LineFailed, Playing
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
        self.keep, self.rate, self.waiting, self.busy = 1.0, 0.0, 0, 3
        self.rates: list[float] = []
        self.left: list[int] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(4.0 * len(self.told), UTC)

    def play(self, scenario: Scenario, options: Any = None) -> Playing:
        assert scenario.name == "flood"
        line = self
        line.rate = sum(t.rate.rate(0.0) for t in scenario.topics)
        line.rates.append(line.rate)

        class Flood(Playing):
            def end(self) -> None:
                line.rate = 0.0
                line.left.append(line.waiting)

        return Flood(scenario=scenario, began=0.0)

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
        self.line, self.deeds = line, list[str]()

    def take(self) -> None:
        self.line.keep = KEEP
        self.deeds.append("take")

    def left(self) -> int:
        if not self.line.rate:
            self.line.step()
        return max(0, ENOUGH_ROWS - sum(b.read for b in self.line.told if b.keep == KEEP))

    def release(self) -> None:
        assert self.left() == 0 and not self.line.rate
        self.line.keep = 1.0
        self.deeds.append("release")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "EVERY_S", 0.0)


def test_what_becomes_quicker_is_not_believed_yet() -> None:
    line = Flooded([100.0 * 1.15**n for n in range(12)] + [500.0])
    assert saturate(line, SCENARIO, "heavy") == pytest.approx(500.0, rel=0.05)


def test_what_it_does_while_the_flood_is_worked_off_by_the_others_does_not_count() -> None:
    line = Flooded([300.0] * 12 + [200.0])
    line.busy = 10
    assert saturate(line, SCENARIO, "heavy") == pytest.approx(200.0)


def test_it_is_behind_and_measured_beside_the_peak_of_the_scenario() -> None:
    line = Flooded([450.0])
    saturate(line, SCENARIO, "heavy")
    assert line.left[0] >= RESERVE * 4 * PEAK and line.rates == [1.5 * PEAK, PEAK]


def test_one_that_carries_more_than_the_peak_is_given_more() -> None:
    line = Flooded([800.0])
    assert saturate(line, SCENARIO, "heavy") == pytest.approx(800.0)
    assert line.rates == [1.5 * PEAK, pytest.approx(MORE * 800.0)]


def test_a_hand_sheds_while_it_becomes_warm_and_is_gone_when_it_is_measured() -> None:
    line = Flooded([100, 120, 150, 200, 210, 220, 230, 240])
    hand: Any = Hand(line)
    assert saturate(line, SCENARIO, "heavy", hand) == pytest.approx(240.0)
    assert hand.deeds == ["take", "release"]


def test_an_operator_that_is_never_behind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "LIMIT_S", 0.2)
    with pytest.raises(LineFailed, match="too short to tell how much heavy can carry"):
        saturate(Flooded([20_000.0]), SCENARIO, "heavy")


def test_an_injector_that_fails_is_told() -> None:
    class Broken(Flooded):
        def play(self, scenario: Scenario, options: Any = None) -> Playing:
            playing = super().play(scenario)
            playing.error = "no broker"
            return playing

    with pytest.raises(LineFailed, match="The injector stopped: no broker"):
        saturate(Broken([450.0]), SCENARIO, "heavy")


def test_a_flood_that_does_not_drain_is_not_taken_into_the_rush() -> None:
    with pytest.raises(LineFailed, match="150 s after a flood of heavy its rows still waited"):
        saturate(Flooded([450.0], drains=False), SCENARIO, "heavy")
