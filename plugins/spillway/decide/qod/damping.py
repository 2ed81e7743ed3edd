"""Against flapping: small changes are not made, lowering is immediate, raising waits for a second opinion and goes in steps.

Damping works on the accuracy of queries, not on single edges: all keeps follow from the damped accuracies, so that it can neither
skew the inputs of an operator nor hold a query below its floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.world import Flags, Floats, Ints
from spillway.policy import Policy


@dataclass(frozen=True, slots=True)
class Damped:
    accuracy: Floats
    ready: Ints
    """For how many cycles in a row more was possible."""
    small: Flags
    waits: Flags
    limited: Flags


def damp(before: Floats, possible: Floats, floor: Floats, ready: Ints, may_rise: Flags, policy: Policy) -> Damped:
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
    step = np.where(rises, np.minimum(before + policy.qod_raise_limit, possible), before)
    accuracy = np.where((gap < 0.0) & ~small, possible, step)
    accuracy = np.maximum(accuracy, np.minimum(floor, possible))
    return Damped(
        accuracy=accuracy,
        ready=ready,
        small=small & (gap != 0.0) & (accuracy != possible),
        waits=higher & ~rises & (accuracy < possible),
        limited=rises & (accuracy < possible),
    )
