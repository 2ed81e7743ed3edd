"""The drain plan: by how much admission at a source can be raised, and along which path that is decided (equations 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable

from spillway.decide.capacity.shares import Passed
from spillway.model.capacity import CapacityWorld, DrainPath


def drain(world: CapacityWorld, flows: Passed, narrow: str, value: float) -> DrainPath:
    """The optimisation path through the operator `narrow`, which has the smallest space of all.

    In rows at the source, with shares fixed, a row more at the source is one more on every edge below it. So the path through
    the smallest space is the one whose value (2) may be dispatched, and once it is (3) no path is left: the plan has one step.

    >>> from spillway.decide.capacity.estimate import capacities
    >>> from spillway.decide.capacity.examples import fork
    >>> from spillway.decide.capacity.shares import passed
    >>> from spillway.policy import Policy
    >>> drain(fork(), passed(fork(), capacities(fork(), Policy()), "ads"), "slow", 100.0).path
    ('ads', 'parse', 'slow')
    """
    edges = [e for n, e in enumerate(world.edges) if flows.gain[n] > 0.0]
    above: dict[str, str | None] = {}
    below: dict[str, str] = {}
    for edge in edges:
        above.setdefault(edge.consumer, edge.producer)
        if edge.producer is not None:
            below.setdefault(edge.producer, edge.consumer)
    up = _followed(narrow, above.get)
    down = _followed(narrow, below.get)
    return DrainPath(path=(flows.source, *reversed(up), *down[1:]), value=value)


def _followed(first: str, next_of: Callable[[str], str | None]) -> list[str]:
    path = [first]
    while (further := next_of(path[-1])) is not None:
        path.append(further)
    return path
