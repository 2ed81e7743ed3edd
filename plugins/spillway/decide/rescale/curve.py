"""How an operator's capacity grows with its parallelism: one parameter, learned from what it could carry before."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from spillway.model.rescale import Sample

SERIAL_MOST = 0.9
PRIOR_WEIGHT = 0.1
"""How much the prior counts beside one sample at twice the parallelism: the square of a measurement's error, about 3 %, over that
of the prior's, about 10 %."""
ROUNDS = 40
NEVER = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`c(p) = γ · p / (1 + σ · (p − 1))`: Amdahl's law, Gunther's universal law without its second parameter.

    γ is the capacity of one executor and σ the share of the work that further ones do not speed up. It goes through what is
    measured now, so that only σ is a guess.
    """

    parallelism: int
    capacity: float
    serial: float
    learned: bool = False
    """σ comes from the operator's own past, and not from the prior alone."""

    @property
    def one(self) -> float:
        """γ"""
        return self.capacity * (1.0 + self.serial * (self.parallelism - 1)) / self.parallelism

    def at(self, parallelism: int) -> float:
        """
        >>> round(Curve(parallelism=1, capacity=100.0, serial=0.0341).at(26) / 2600, 2)
        0.54
        """
        return self.one * parallelism / (1.0 + self.serial * (parallelism - 1))

    def worth(self, share: float) -> int:
        """The largest parallelism whose last executor brings at least this share of what the first one brings.

        >>> [Curve(parallelism=1, capacity=100.0, serial=serial).worth(0.25) for serial in (0.04, 0.0)]
        [24, 1000000000]
        """
        if self.serial * NEVER <= 1.0:
            return NEVER
        return max(1, math.floor(1.0 + (math.sqrt((1.0 - self.serial) / share) - 1.0) / self.serial))

    def enough(self, rate: float) -> int:
        """The smallest parallelism that carries the rate; `NEVER` where none does.

        >>> curve = Curve(parallelism=2, capacity=200.0, serial=0.0)
        >>> curve.enough(450.0), curve.enough(400.0)
        (5, 4)
        >>> Curve(parallelism=2, capacity=200.0, serial=0.2).enough(900.0) == NEVER
        True
        """
        left = self.one - self.serial * rate
        if left <= 0.0 or rate * (1.0 - self.serial) / left >= NEVER:
            return NEVER
        return max(1, math.ceil(rate * (1.0 - self.serial) / left - 1e-9))


def fit(parallelism: int, capacity: float, samples: Iterable[Sample], prior: float) -> Curve:
    """The curve through what is measured now whose σ fits the samples, held towards the prior.

    Minimises `Σ (ln c(p_i) − ln c_i)² + w · (ln c(2p) with σ − ln c(2p) with the prior)²` over σ by ternary search: in doubling
    the parallelism, which the second term is about, a prior counts as a fraction of a measurement. Samples at the present
    parallelism say nothing about σ; a capacity of zero nothing at all.

    >>> truth = Curve(parallelism=1, capacity=100.0, serial=0.05)
    >>> found = fit(4, truth.at(4), [Sample(parallelism=1, capacity=100.0), Sample(parallelism=2, capacity=truth.at(2))], 0.02)
    >>> round(found.serial, 2), found.learned
    (0.05, True)
    >>> fit(4, 380.0, [], 0.02).serial
    0.02
    """
    useful = [s for s in samples if s.parallelism != parallelism and s.capacity > 0.0]
    if not useful or capacity <= 0.0:
        return Curve(parallelism=parallelism, capacity=capacity, serial=prior)

    def curve(serial: float) -> Curve:
        return Curve(parallelism=parallelism, capacity=capacity, serial=serial, learned=True)

    expected = math.log(curve(prior).at(2 * parallelism))

    def error(serial: float) -> float:
        tried = curve(serial)
        off = sum(math.log(tried.at(s.parallelism) / s.capacity) ** 2 for s in useful)
        return off + PRIOR_WEIGHT * (math.log(tried.at(2 * parallelism)) - expected) ** 2

    low, high = 0.0, SERIAL_MOST
    for _ in range(ROUNDS):
        third = (high - low) / 3.0
        low, high = (low, high - third) if error(low + third) <= error(high - third) else (low + third, high)
    return curve((low + high) / 2.0)
