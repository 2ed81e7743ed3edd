"""How the rows of one source spread over a pipeline, and what the other sources bring meanwhile.

Each edge carries a fixed share of the rows into its producer, whatever the rate: a fork copies or splits by content, it does not
balance. So rows anywhere are a straight line over the rate of the source under study, `rows = gain · rate + held`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from spillway.decide.capacity.estimate import Capacities
from spillway.model.capacity import CapacityWorld, FlowEdge, Fork

WHOLE = 1e-3
"""Shares of a fork that add up to 1 within this part of it split the rows."""


def fork(shares: Sequence[float]) -> Fork | None:
    """What an operator with these edges does to its rows, as far as shares can tell; None when it has no two.

    >>> fork([1.0, 1.0]), fork([0.3, 0.7]), fork([0.3, 0.2]), fork([0.5])
    (<Fork.COPY: 'copy'>, <Fork.SPLIT: 'split'>, <Fork.FILTER: 'filter'>, None)
    """
    if len(shares) < 2:
        return None
    whole = math.fsum(shares)
    return Fork.SPLIT if abs(whole - 1.0) <= WHOLE else Fork.COPY if whole > 1.0 else Fork.FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Of the source under study: rows for each of its rows (`gain`), and rows per second of the others (`held`)."""

    source: str
    order: tuple[str, ...]
    """Operators, producers before what they feed."""
    gain: tuple[float, ...]
    """By edge."""
    held: tuple[float, ...]
    into: Mapping[str, tuple[float, float]]
    """Gain and held rows of all inputs of an operator together."""
    missing: tuple[str, ...]
    """Rates of other sources that nobody knows."""

    def reaches(self, operator: str) -> bool:
        return self.into[operator][0] > 0.0


def passed(world: CapacityWorld, found: Capacities, source: str) -> Passed:
    """Rows from the topic `source` downward, the other sources held at what arrives at them, else at what they carry.

    Where rows of the source under study do not come, the others are cut to what is let through there: what an operator of their
    own cannot take does not arrive further down.

    >>> from spillway.decide.capacity.estimate import capacities
    >>> from spillway.decide.capacity.examples import fork, join
    >>> from spillway.policy import Policy
    >>> passed(fork(left=0.25), capacities(fork(), Policy()), "ads").gain
    (1.0, 0.25, 1.0)
    >>> passed(join(), capacities(join(), Policy()), "clicks").into
    {'match': (1.0, 300.0)}
    """
    order, inputs_by_name = in_order(world), inputs_of(world)
    gain, held = [0.0] * len(world.edges), [0.0] * len(world.edges)
    into: dict[str, tuple[float, float]] = {}
    missing = []
    for name in order:
        inputs = inputs_by_name[name]
        for number in inputs:
            edge = world.edges[number]
            if edge.producer is not None and inputs_by_name[edge.producer]:
                above = into[edge.producer]
                gain[number], held[number] = edge.share * above[0], edge.share * above[1]
            elif edge.producer is None and edge.topic == source:
                gain[number] = edge.share
            elif (rate := _present(edge)) is None:
                missing.append(f"edges.{edge.name}.flow")
            else:
                held[number] = rate
            own = found.edge[number].capacity
            if gain[number] == 0.0 and own is not None:
                held[number] = min(held[number], own)
        if all(gain[n] == 0.0 for n in inputs):
            _let_through(inputs, held, found, name)
        into[name] = math.fsum(gain[n] for n in inputs), math.fsum(held[n] for n in inputs)
    return Passed(source=source, order=order, gain=tuple(gain), held=tuple(held), into=into, missing=tuple(missing))


def inputs_of(world: CapacityWorld) -> dict[str, tuple[int, ...]]:
    """By operator: the numbers of its input edges."""
    found: dict[str, list[int]] = {o.name: [] for o in world.operators}
    for number, edge in enumerate(world.edges):
        found[edge.consumer].append(number)
    return {name: tuple(numbers) for name, numbers in found.items()}


def in_order(world: CapacityWorld) -> tuple[str, ...]:
    """Operators, producers before what they feed."""
    above: dict[str, list[str]] = {o.name: [] for o in world.operators}
    for edge in world.edges:
        if edge.producer is not None:
            above[edge.consumer].append(edge.producer)
    return tuple(TopologicalSorter(above).static_order())


def _present(edge: FlowEdge) -> float | None:
    """Rows per second that come over the edge of another source."""
    return edge.share * edge.arrival if edge.arrival is not None else edge.flow


def _let_through(inputs: Sequence[int], held: list[float], found: Capacities, operator: str) -> None:
    rows = math.fsum(held[n] for n in inputs)
    if (most := found.operator[operator].capacity) is not None and rows > most:
        for number in inputs:
            held[number] *= most / rows
