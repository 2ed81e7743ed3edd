"""What to move off a node whose floors do not fit on it: algorithm 2 of the paper, as its worked example has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance, by its position in the world."""

    required: float
    """CPU it needs for its min_accuracy: what moving it releases."""
    priority: int
    instance: int = 0


def choose(candidates: Sequence[Candidate], target: float) -> list[Candidate]:
    """Instances that together release at least `target`, low priorities first and no more than needed.

    Priorities are walked from the lowest up until what they hold releases enough. Then, from the most important and largest down,
    an instance stays where the others still release the target. The printed pseudo-code walks from the highest priority and
    lowers its target on the way, which contradicts the example beside it; the example holds:

    >>> given = [Candidate(*c) for c in ((20, 4), (10, 3), (40, 3), (10, 2), (10, 2), (10, 1))]
    >>> [(c.required, c.priority) for c in choose(given, 40)]
    [(10, 3), (10, 2), (10, 2), (10, 1)]

    >>> choose([Candidate(50, 1)], 0)
    []
    """
    chosen: list[Candidate] = []
    released = 0.0
    for priority in sorted({c.priority for c in candidates}):
        if released >= target:
            break
        rung = [c for c in candidates if c.priority == priority]
        chosen += rung
        released += sum(c.required for c in rung)
    for candidate in sorted(chosen, key=lambda c: (-c.priority, -c.required, c.instance)):
        if released - candidate.required >= target:
            chosen.remove(candidate)
            released -= candidate.required
    return sorted(chosen, key=lambda c: (-c.priority, -c.required, c.instance))
