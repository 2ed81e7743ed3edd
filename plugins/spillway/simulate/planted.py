"""Pipelines with a bottleneck that is known by construction: what a detector and a planner are measured against.

A world is a random DAG of operators with selectivities, forks that copy or split, joins and up to three sources. Every operator
has a true rate per instance and a true law by which more instances make it faster; the planted ones were given the lowest limits.
Nothing here calls a decision: limits follow from the construction, by passing rows forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spillway.model.capacity import CapacityWorld

SAME = 1e-9
"""Limits that differ by less than this share are the same."""
MOST_INSTANCES = 100_000
SERIAL = (1.0 / 0.54 - 1.0) / 25.0
"""Share of the work that instances do one after the other: 26 of them reach 54 % of 26 times the rate of one."""


class Law(StrEnum):
    """How much faster more instances are."""

    LINEAR = "linear"
    SUBLINEAR = "sublinear"


class Told(StrEnum):
    """What an observer measures of an operator's capacity."""

    BATCHES = "batches"
    INSTANCES = "instances"
    """And its skew; only of keyed operators."""
    EDGE = "edge"
    """The capacity of its only input."""


class NeverEnough(ValueError):
    """One sentence: the rate that no parallelism reaches, and where."""


def speedup(instances: int, law: Law) -> float:
    """Rate of so many instances over the rate of one.

    >>> [round(speedup(p, Law.SUBLINEAR), 2) for p in (1, 2, 4, 26)], speedup(26, Law.LINEAR)
    ([1.0, 1.93, 3.63, 14.04], 26.0)
    """
    return float(instances) if law is Law.LINEAR else instances / (1.0 + SERIAL * (instances - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedOperator:
    name: str
    rate: float
    """Rows per second of its first instance, when no key is more frequent than others."""
    parallelism: int
    """At the beginning."""
    skew: float = 1.0
    """Its fullest bucket gets so many times as many rows as the mean."""
    told: Told = Told.BATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedEdge:
    producer: str | None
    topic: str | None
    consumer: str
    share: float
    """Rows on it for each row into its producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedWorld:
    seed: int
    operators: tuple[PlantedOperator, ...]
    """Producers before what they feed."""
    edges: tuple[PlantedEdge, ...]
    topic: str
    """The source under study."""
    others: Mapping[str, float]
    """Rows per second of the other sources, which stay as they are."""
    sustained: float
    """The largest rate of the source under study at the parallelism of the beginning."""
    rate: float
    """More than that: what the source is to be raised to."""
    planted: tuple[str, ...]
    """The bottleneck at the beginning, and where there are two of them, the one that is as narrow or nearly."""
    law: Law = Law.LINEAR
    noise: float = 0.0
    """Standard deviation of a measured time, as a share of it; counts are nearly exact."""
    passed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By operator: rows into it for each row at the source under study, and rows per second that the others bring."""

    @property
    def parallelism(self) -> dict[str, int]:
        """At the beginning."""
        return {o.name: o.parallelism for o in self.operators}

    def capacity(self, operator: str, instances: int) -> float:
        """Rows per second that so many instances of it really take."""
        one = next(o for o in self.operators if o.name == operator)
        return one.rate * speedup(instances, self.law) / one.skew

    def load(self, operator: str, rate: float) -> float:
        """Rows per second into it when everybody keeps up."""
        gain, held = self.passed[operator]
        return gain * rate + held

    def limits(self, parallelism: Mapping[str, int]) -> dict[str, float]:
        """By operator that the source reaches: the largest rate of it that this operator can follow."""
        return {
            o.name: (self.capacity(o.name, parallelism[o.name]) - held) / gain
            for o in self.operators
            for gain, held in [self.passed[o.name]]
            if gain > 0.0
        }

    def truth(self, parallelism: Mapping[str, int], rate: float) -> frozenset[str]:
        """The operators that limit the source, all that are equally narrow; none while the rate can be followed."""
        limits = self.limits(parallelism)
        least = min(limits.values())
        if rate <= least * (1.0 + SAME):
            return frozenset()
        return frozenset(name for name, limit in limits.items() if limit <= least * (1.0 + SAME))

    def needed(self, rate: float) -> dict[str, int]:
        """The smallest parallelism of every operator with which all of them follow."""
        return {o.name: self._needed(o.name, self.load(o.name, rate)) for o in self.operators}

    def observe(self, parallelism: Mapping[str, int], rate: float, *, seed: int = 0) -> CapacityWorld:
        """What is measured after a minute at this rate; `seed` is for the noise."""
        from spillway.simulate.planted_watch import watched

        return watched(self, parallelism, rate, seed=seed)

    def _needed(self, operator: str, rows: float) -> int:
        enough = rows * (1.0 - SAME)
        low, high = 0, 1
        while self.capacity(operator, high) < enough:
            low, high = high, high * 2
            if high > MOST_INSTANCES:
                raise NeverEnough(f"no parallelism of {operator} takes {rows:g} rows/s; ask for a lower rate")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.capacity(operator, middle) >= enough else (middle, high)
        return high


def planted(seed: int, *, operators: int | None = None, law: Law = Law.LINEAR, noise: float = 0.0) -> PlantedWorld:
    """The world of this seed, of 3 to 40 operators unless told; law and noise change neither its shape nor its beginning.

    >>> world = planted(7)
    >>> world.truth(world.parallelism, world.rate) <= set(world.planted)
    True
    >>> world.truth(world.needed(world.rate), world.rate)
    frozenset()
    """
    from spillway.simulate.planted_shape import shaped

    return shaped(seed, operators=operators, law=law, noise=noise)
