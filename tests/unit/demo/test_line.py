"""What a line does before it is measured."""

from __future__ import annotations

import time
from pathlib import Path

from spillway.demo.line import Line, Playing
from spillway.inject.scenario import load

ROOT = Path(__file__).resolve().parents[3]


class Looked(Line):
    """A line on no services."""

    def __init__(self) -> None:
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
