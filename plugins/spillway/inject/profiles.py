"""Rates over time. Each profile knows its rate and, in closed form, the events due since its beginning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Profile(Protocol):
    def rate(self, t: float) -> float:
        """Events per second at `t` seconds."""

    def events(self, t: float) -> float:
        """Integral of the rate from 0 to `t`."""


@dataclass(frozen=True, slots=True)
class Constant:
    per_s: float

    def rate(self, t: float) -> float:
        return self.per_s

    def events(self, t: float) -> float:
        return self.per_s * t


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    before: float
    after: float
    at_s: float

    def rate(self, t: float) -> float:
        return self.before if t < self.at_s else self.after

    def events(self, t: float) -> float:
        return self.before * min(t, self.at_s) + self.after * max(0.0, t - self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """From one rate to another in `over_s`, then on at the second."""

    start: float
    end: float
    over_s: float

    def rate(self, t: float) -> float:
        return self.start + (self.end - self.start) * min(t / self.over_s, 1.0)

    def events(self, t: float) -> float:
        ramped = min(t, self.over_s)
        return ramped * (self.start + self.rate(ramped)) / 2 + self.end * (t - ramped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sine:
    """Swings around `mean`; begins at it and rises first unless `phase_s` shifts it."""

    mean: float
    amplitude: float
    period_s: float
    phase_s: float = 0.0

    def rate(self, t: float) -> float:
        return self.mean + self.amplitude * math.sin(self._angle(t))

    def events(self, t: float) -> float:
        swing = math.cos(self._angle(0.0)) - math.cos(self._angle(t))
        return self.mean * t + self.amplitude * self.period_s / (2 * math.pi) * swing

    def _angle(self, t: float) -> float:
        return 2 * math.pi * (t + self.phase_s) / self.period_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """`base`, and `peak` during the last `length_s` of every `every_s`."""

    base: float
    peak: float
    every_s: float
    length_s: float

    def rate(self, t: float) -> float:
        return self.base if t % self.every_s < self.every_s - self.length_s else self.peak

    def events(self, t: float) -> float:
        rounds, rest = divmod(t, self.every_s)
        bursting = rounds * self.length_s + max(0.0, rest - (self.every_s - self.length_s))
        return self.base * (t - bursting) + self.peak * bursting


@dataclass(frozen=True, slots=True)
class Piecewise:
    """Profiles one after the other, each from its own beginning; the last one goes on."""

    pieces: tuple[tuple[float, Profile], ...]
    """(length in seconds, profile)"""

    def rate(self, t: float) -> float:
        for length, profile in self.pieces[:-1]:
            if t < length:
                return profile.rate(t)
            t -= length
        return self.pieces[-1][1].rate(t)

    def events(self, t: float) -> float:
        total = 0.0
        for length, profile in self.pieces[:-1]:
            if t < length:
                return total + profile.events(t)
            total += profile.events(length)
            t -= length
        return total + self.pieces[-1][1].events(t)


def due(profile: Profile, t: float) -> int:
    """Whole events due by `t`; what rounding leaves over is due later, so none is lost or doubled between two calls."""
    return math.floor(profile.events(t) + 1e-6)
