"""A load whose level is changed while it is sent. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


class Level:
    """Events per second over all topics, from some moments on.

    >>> level = Level(100.0)
    >>> level.set(10.0, 50.0)
    >>> level.rate(9.0), level.rate(10.0), level.events(10.0), level.events(12.0)
    (100.0, 50.0, 1000.0, 1100.0)
    """

    def __init__(self, rate: float) -> None:
        self._steps: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, rate),)

    def set(self, at_s: float, rate: float) -> None:
        """From `at_s` on, which is later than all that was set before."""
        self._steps = (*self._steps, (at_s, self.events(at_s), rate))

    def rate(self, t: float) -> float:
        return self._at(t)[2]

    def events(self, t: float) -> float:
        since, before, rate = self._at(t)
        return before + rate * (t - since)

    def _at(self, t: float) -> tuple[float, float, float]:
        steps = self._steps
        return steps[max(0, bisect_right(steps, t, key=lambda step: step[0]) - 1)]


@dataclass(frozen=True, slots=True)
class Part:
    """One topic's share of a level: a profile."""

    level: Level
    share: float

    def rate(self, t: float) -> float:
        return self.share * self.level.rate(t)

    def events(self, t: float) -> float:
        return self.share * self.level.events(t)
