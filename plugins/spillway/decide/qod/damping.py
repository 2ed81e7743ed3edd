"""Against flapping: small changes are not made, lowering is immediate, raising waits for a second opinion and goes in steps.
Nobody waits while a query of the same stream that matters less rises.

Damping works on the accuracy of queries, not on single edges: all keeps follow from the damped accuracies, so that it can neither
skew the inputs of an operator nor hold a query below its floor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from spillway.decide.qod.world import Flags, Floats, Ints, lowest
from spillway.policy import Policy


@dataclass(frozen=True, slots=True)
class Damped:
    accuracy: Floats
    ready: Ints
    """For how many cycles in a row more was possible."""
    small: Flags
    waits: Flags
    limited: Flags
    lifted: Flags
    """Rows on the way need more than that for their floor."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which queries lie below which operator, and how much each matters: see `World`."""

    rank: Ints
    pair_operator: Ints
    pair_query: Ints

    def overtaken(self, rises: Flags) -> Flags:
        """Queries that share an operator with one that matters less and rises.

        >>> order = Order(np.array([1, 0, 2]), np.array([0, 0, 1]), np.array([0, 1, 2]))
        >>> order.overtaken(np.array([False, True, False])).tolist()
        [True, False, False]
        """
        nobody = float(len(self.rank))
        rank = np.where(rises, self.rank, nobody)
        operators = int(self.pair_operator.max(initial=-1)) + 1
        least = lowest(self.pair_operator, rank[self.pair_query], operators, nobody)
        found: Flags = lowest(self.pair_query, least[self.pair_operator], len(self.rank), nobody) < self.rank
        return found

    def nobody_overtaken(self, rises: Flags, could: Flags) -> Flags:
        """Those that rise, and whoever `could` and would be overtaken by one of them, and by one of these in turn.

        >>> order = Order(np.array([0, 1, 2]), np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]))
        >>> order.nobody_overtaken(np.array([True, False, False]), np.ones(3, dtype=bool)).tolist()
        [True, True, True]
        """
        more = rises
        while more.any():
            more = could & ~rises & self.overtaken(rises)
            rises = rises | more
        return rises


def damp(
    before: Floats, possible: Floats, floor: Floats, ready: Ints, may_rise: Flags, policy: Policy, order: Order | None = None
) -> Damped:
    """By query: `before` is the accuracy the keeps in force deliver, `possible` what the CPU allows now.

    Lowering is immediate; 0.01 is too little to act on, unless it breaks a floor; the first cycle that allows more only counts,
    the second gains 0.1; a floor is never waited for:

    >>> before, possible = np.array([0.9, 0.50, 0.50, 0.5, 0.5, 0.2]), np.array([0.5, 0.51, 0.49, 0.9, 0.9, 0.6])
    >>> floor, ready = np.array([0.0, 0.0, 0.5, 0.0, 0.0, 0.4]), np.array([0, 0, 0, 0, 1, 0])
    >>> damp(before, possible, floor, ready, np.ones(6, dtype=bool), Policy()).accuracy.tolist()
    [0.5, 0.5, 0.49, 0.5, 0.6, 0.4]
    """
    gap = possible - before
    whole = (possible >= 1.0) & (gap > 0.0)  # the last bit to 1 is made, however small
    first = (before <= 0.0) & (gap > 0.0)  # what gets nothing shows nothing of what it could do
    breaks = (possible < floor) & (before >= floor)  # else all that waits would go on waiting, a little more every cycle
    small = (np.abs(gap) < policy.qod_tolerance) & ~whole & ~first & ~breaks
    higher = (gap > 0.0) & ~small
    ready = np.where(higher, ready + 1, 0)
    rises = higher & may_rise & (ready >= policy.qod_raise_cycles)
    if order is not None:
        rises = order.nobody_overtaken(rises, higher & may_rise)
    step = np.where(rises, np.minimum(before + policy.qod_raise_limit, possible), before)
    accuracy = np.where((gap < 0.0) & ~small, possible, step)
    accuracy = np.maximum(accuracy, np.minimum(floor, possible))
    return Damped(
        accuracy=accuracy,
        ready=ready,
        small=small & (gap != 0.0) & (accuracy != possible),
        waits=higher & ~rises & (accuracy < possible),
        limited=rises & (accuracy < possible),
        lifted=np.zeros(len(accuracy), dtype=bool),
    )


def lift(damped: Damped, accuracy: Floats) -> Damped:
    """With more for some queries."""
    return replace(damped, accuracy=accuracy, lifted=accuracy > damped.accuracy)
