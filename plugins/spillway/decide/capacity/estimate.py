"""The capacity of every operator and edge of a world: which estimator has the say, and what latency makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.decide.capacity.feedback import Regulation, carried_within, regulate
from spillway.decide.capacity.initial import initial_capacity
from spillway.decide.capacity.useful import NOTHING, Estimate, of_instances, useful_rate
from spillway.model.capacity import CapacityWorld, EdgeCapacity, Estimator, FlowEdge, FlowOperator
from spillway.policy import Policy

NETWORK_ONLY = 0.5
"""Confidence in an initial capacity: it knows the network, and nothing of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    operator: Mapping[str, Estimate]
    """Of all inputs together."""
    edge: tuple[Estimate, ...]
    """Of an edge alone, in the order of the world; nothing where only its operator is known."""

    def known(self, operator: str, edges: tuple[int, ...]) -> bool:
        """Whether anything bounds what the operator takes from each of these."""
        return self.operator[operator].capacity is not None or all(self.edge[e].capacity is not None for e in edges)


def capacities(world: CapacityWorld, policy: Policy) -> Capacities:
    """What is given counts most, then the useful rate, then the initial capacity; latency regulates whichever it is.

    >>> from spillway.decide.capacity.examples import chain
    >>> found = capacities(chain(), Policy())
    >>> found.edge[1].capacity, found.edge[1].estimator, found.operator["count"].capacity
    (300.0, <Estimator.GIVEN: 'given'>, None)
    """
    inputs = _inputs(world)
    of_name = {o.name: o for o in world.operators}
    operators = {name: _regulated(_of_operator(o), inputs[name], policy) for name, o in of_name.items()}
    return Capacities(
        operator=operators,
        edge=tuple(
            _regulated(_of_edge(e, of_name[e.consumer], len(inputs[e.consumer]), operators[e.consumer]), [e], policy)
            for e in world.edges
        ),
    )


def _inputs(world: CapacityWorld) -> dict[str, list[FlowEdge]]:
    found: dict[str, list[FlowEdge]] = {o.name: [] for o in world.operators}
    for edge in world.edges:
        found[edge.consumer].append(edge)
    return found


def _of_operator(operator: FlowOperator) -> Estimate:
    if operator.capacity is not None:
        return _given(operator.capacity, operator.confidence)
    if (measured := useful_rate(operator.batches)).capacity is not None:
        return measured
    return of_instances(operator.instances, operator.skew)


def _of_edge(edge: FlowEdge, consumer: FlowOperator, inputs: int, whole: Estimate) -> Estimate:
    if edge.capacity is not None:
        return _given(edge.capacity, edge.confidence)
    if edge.links:
        return _given(math.fsum(edge.links) / (consumer.skew or 1.0), edge.confidence)
    if edge.bandwidth is not None and whole.capacity is None:
        first = initial_capacity(edge.bandwidth, inputs=inputs, instances=consumer.parallelism)
        return Estimate(capacity=first, estimator=Estimator.BANDWIDTH, confidence=NETWORK_ONLY)
    return NOTHING


def _given(capacity: float, confidence: float | None) -> Estimate:
    return Estimate(capacity=capacity, estimator=Estimator.GIVEN, confidence=1.0 if confidence is None else confidence)


def _regulated(estimate: Estimate, edges: Sequence[FlowEdge], policy: Policy) -> Estimate:
    """By the latency of these edges, each counting by its rows; the shortest of their constraints holds for all."""
    if estimate.capacity is None or not edges:
        return estimate
    timed = [(e.flow, e.latency_ms, e.latency_constraint_ms, e.carried) for e in edges]
    flow = math.fsum(f for f, _, _, _ in timed if f is not None)
    constraint = min((c for _, _, c, _ in timed if c is not None), default=None)
    if constraint is None or any(f is None or (f > 0.0 and latency is None) for f, latency, _, _ in timed):
        return estimate
    latency = (
        math.fsum(f * latency for f, latency, _, _ in timed if f and latency is not None) / flow if flow > 0.0 else constraint
    )
    carried = math.fsum(c for _, _, _, c in timed if c is not None) or None
    done = regulate(estimate.capacity, flow=flow, latency_ms=latency, constraint_ms=constraint, carried=carried, policy=policy)
    changed = done.regulation not in (Regulation.NO_LOAD, Regulation.IN_BAND)
    return replace(estimate, capacity=done.capacity, estimator=Estimator.FEEDBACK if changed else estimate.estimator)


def by_edge(world: CapacityWorld, found: Capacities) -> tuple[EdgeCapacity, ...]:
    """One capacity for every edge, to be kept: its own, or its part of its operator's, whichever is less.

    Inputs of an operator share what it manages as they use it at present, evenly while nothing flows.

    >>> from spillway.decide.capacity.examples import join
    >>> [(e.name, e.capacity) for e in by_edge(join(), capacities(join(), Policy()))]
    [('clicks:match', 400.0), ('views:match', 600.0)]
    """
    kept = []
    inputs = _inputs(world)
    for number, edge in enumerate(world.edges):
        own, whole = found.edge[number], found.operator[edge.consumer]
        part = None if whole.capacity is None else whole.capacity * _part(inputs[edge.consumer], edge)
        smaller = own if part is None or (own.capacity is not None and own.capacity <= part) else whole
        kept.append(
            EdgeCapacity(
                producer=edge.producer,
                topic=edge.topic,
                consumer=edge.consumer,
                flow=edge.flow,
                capacity=own.capacity if smaller is own else part,
                estimator=smaller.estimator,
                confidence=smaller.confidence,
                backlog=edge.backlog,
                carried=_carried(edge),
            )
        )
    return tuple(kept)


def _part(beside: Sequence[FlowEdge], edge: FlowEdge) -> float:
    flows = [e.flow for e in beside if e.flow is not None]
    if len(flows) < len(beside) or sum(flows) <= 0.0:
        return 1.0 / len(beside)
    return (edge.flow or 0.0) / math.fsum(flows)


def _carried(edge: FlowEdge) -> float | None:
    if edge.flow is None or edge.latency_ms is None or edge.latency_constraint_ms is None:
        return edge.carried
    return carried_within(edge.flow, edge.latency_ms, edge.latency_constraint_ms, edge.carried)
