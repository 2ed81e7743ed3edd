"""What a line does before it is measured."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from spillway.demo.course import Batch
from spillway.demo.line import Line, LineFailed, Playing
from spillway.inject.scenario import Scenario, load
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
(TAXI,) = check_files([ROOT / "pipelines" / "taxi.yaml"]).pipelines


class Flooded(Line):
    """A line on no services, whose heavy query fills its batches."""

    def __init__(self, drains: bool) -> None:
        self.pipeline, self._say, self._drains = TAXI, lambda _: None, drains

    def now(self) -> datetime:
        return datetime.now(UTC)

    def play(self, scenario: Scenario, options: Any = None) -> Playing:
        class Alive:
            def is_alive(self) -> bool:
                return True

            def join(self, _: float | None = None) -> None: ...

        thread: Any = Alive()
        return Playing(scenario=scenario, began=0.0, thread=thread)

    def course(self, since: datetime, playing: Playing) -> list[Batch]:
        return [
            Batch(edge="union:heavy", consumer="heavy", began_s=4.0 * n, ended_s=4.0 * n + 4.0, read=2400, kept=2400, keep=1.0,
                  decision=None, lag=900)
            for n in range(3)
        ]  # fmt: skip

    def drain(self, limit_s: float = 0.0) -> bool:
        return self._drains


def test_a_flood_that_does_not_drain_is_not_taken_into_the_rush() -> None:
    scenario = load(ROOT / "scenarios" / "rush_hour.yaml")
    assert Flooded(drains=True).saturate(scenario, "heavy") == 600.0
    with pytest.raises(LineFailed, match="150 s after a flood of heavy its rows still waited"):
        Flooded(drains=False).saturate(scenario, "heavy")


class Looked(Flooded):
    def __init__(self) -> None:
        super().__init__(drains=True)
        self.modes: list[str] = []

    def mode(self, mode: str) -> None:
        self.modes.append(mode)


def test_the_controller_takes_over_once_and_not_before_it_has_seen_a_whole_cycle() -> None:
    line = Looked()
    playing = Playing(scenario=load(ROOT / "scenarios" / "rush_hour.yaml"), began=time.time() - 10.0)
    line.hand_over(playing, 15.0)
    assert line.modes == []
    playing.began -= 6.0
    line.hand_over(playing, 15.0)
    line.hand_over(playing, 15.0)
    assert line.modes == ["apply"]
