"""Partitions of a pipeline and what they let through (paper 002, sections 2.3 and 3.2; equations 4, 5 and 11).

A partition D = (X, Y) has the source in X. With shares fixed at forks, what it lets through of the source is not the sum over its
edges but the least of them: a copied row must pass both branches. So every partition comes down to those with one operator first
in Y and its inputs across; all instances of an operator are on one side. `c(X,Y)` and `f(X,Y)` are sums over these inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillway.decide.capacity.estimate import Capacities
from spillway.decide.capacity.shares import Passed, inputs_of
from spillway.decide.capacity.useful import Estimate
from spillway.model.capacity import CapacityWorld
from spillway.policy import Policy

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    operator: str
    """First in Y."""
    edges: tuple[int, ...]
    """Across, from X to Y."""
    capacity: float
    """(4), rows per second on these edges."""
    flow: float | None
    """(5), the same; None when one of them was not measured. No edge leads back, for a pipeline has no cycle."""
    gain: float
    held: float
    confidence: float
    waiting: float
    """Rows that wait on these edges."""

    @property
    def limit(self) -> float | None:
        """The largest rate of the source under study that passes; negative when the others alone are too much; None: any."""
        return math.fsum((self.capacity, -self.held)) / self.gain if self.gain > 0.0 else None


def partitions(world: CapacityWorld, found: Capacities, flows: Passed) -> tuple[Partition, ...]:
    """All whose capacity is known: one for each operator, and one for each input that has a capacity of its own.

    >>> from spillway.decide.capacity.estimate import capacities
    >>> from spillway.decide.capacity.examples import fork
    >>> from spillway.decide.capacity.shares import passed
    >>> found = capacities(fork(), Policy())
    >>> [(p.operator, p.limit) for p in partitions(fork(), found, passed(fork(), found, "ads"))]
    [('parse', 2000.0), ('slow', 500.0), ('fast', 800.0)]
    """
    result = []
    inputs_by_name = inputs_of(world)
    for name in flows.order:
        inputs = inputs_by_name[name]
        groups: list[tuple[tuple[int, ...], Estimate]] = [((n,), found.edge[n]) for n in inputs]
        if inputs:
            groups.append((inputs, found.operator[name]))
        for edges, estimate in groups:
            if estimate.capacity is None:
                continue
            measured = [world.edges[n].flow for n in edges]
            result.append(
                Partition(
                    operator=name,
                    edges=edges,
                    capacity=estimate.capacity,
                    flow=None if None in measured else math.fsum(f for f in measured if f is not None),
                    gain=math.fsum(flows.gain[n] for n in edges),
                    held=math.fsum(flows.held[n] for n in edges),
                    confidence=estimate.confidence,
                    waiting=math.fsum(world.edges[n].backlog or 0.0 for n in edges),
                )
            )
    return tuple(result)


def least(found: Sequence[Partition]) -> float | None:
    """What the minimum partition lets through of the source; None: nothing that is known bounds it."""
    return min((p.limit for p in found if p.limit is not None), default=None)


def narrowest(found: Sequence[Partition], rate: float, policy: Policy) -> tuple[Partition, ...]:
    """Those that let no more through than `rate`, or so little more that it is the same."""
    most = rate * (1.0 + max(policy.capacity_space_min, ROUNDING))
    return tuple(p for p in found if p.limit is not None and p.limit <= most)


def potential(found: Sequence[Partition], policy: Policy) -> tuple[Partition, ...]:
    """(11): `f(X,Y) ≥ λ·c(X,Y)`. One through which nothing flows is none.

    >>> from spillway.decide.capacity.estimate import capacities
    >>> from spillway.decide.capacity.examples import fork
    >>> from spillway.decide.capacity.shares import passed
    >>> world = fork(flow=430.0)
    >>> found = capacities(world, Policy())
    >>> [p.operator for p in potential(partitions(world, found, passed(world, found, "ads")), Policy())]
    ['slow']
    """
    level = policy.capacity_lambda * (1.0 - ROUNDING)
    return tuple(p for p in found if p.flow is not None and p.flow > 0.0 and p.flow >= level * p.capacity)
