"""A measured window, and what the last evaluation remembers, → the flow network that bottlenecks are looked for in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.model.capacity import CapacityWorld, FlowEdge, FlowOperator
from spillway.model.capacity_window import CapacityWindow, EdgeFlow, OperatorFlow
from spillway.model.qod import edge_name

FORGET = 0.9
"""What is remembered counts this much less with every evaluation that does not see it again."""


def capacity_world(found: CapacityWindow, before: Mapping[str, Any] | None = None) -> CapacityWorld:
    """What `detect` takes; `before` is the finding of the last evaluation, as it was stored.

    What an operator can do is measured by its batches. Where it ran none that tell, the capacities of the last evaluation stand,
    if it still has as many executors; latency regulates them further. Selectivities belong to the producer of an edge.
    """
    operators = {o.operator: o for o in found.operators}
    same = _same(before or {}, operators)
    return CapacityWorld(
        operators=tuple(
            FlowOperator(name=o.operator, parallelism=max(1, o.measured), batches=o.batches, skew=o.skew) for o in found.operators
        ),
        edges=tuple(_edge(e, operators, same.get(e.edge, {})) for e in found.edges),
    )


def _same(before: Mapping[str, Any], operators: Mapping[str, OperatorFlow]) -> dict[str, Mapping[str, Any]]:
    """Edges of the last finding whose consumer has the parallelism it had."""
    had = {o["operator"]: o["parallelism"] for o in before.get("operators", ())}
    return {
        edge_name(e["from"], e.get("topic"), e["to"]): e
        for e in before.get("edges", ())
        if e["to"] in operators and had.get(e["to"]) == operators[e["to"]].measured
    }


def _edge(edge: EdgeFlow, operators: Mapping[str, OperatorFlow], last: Mapping[str, Any]) -> FlowEdge:
    consumer = operators[edge.consumer]
    capacity = None if consumer.batches else last.get("capacity")
    return FlowEdge(
        producer=edge.producer,
        topic=edge.topic,
        consumer=edge.consumer,
        flow=unshed(edge.flow, edge.keep, consumer.busy_share),
        capacity=capacity,
        confidence=None if capacity is None else FORGET * last["confidence"],
        backlog=edge.backlog,
        partitions=edge.partitions,
        selectivity=operators[edge.producer].selectivity if edge.producer is not None else None,
        arrival=edge.arrival,
        latency_ms=edge.latency_ms,
        latency_constraint_ms=edge.latency_constraint_ms,
        carried=None if last.get("carried") is None else FORGET * last["carried"],
    )


def unshed(flow: float | None, keep: float, busy_share: float | None) -> float | None:
    """What would flow if nothing were shed: as much as is offered, or as much as the operator can take.

    An edge sheds because not all of it fits, somewhere. Counted by what it kept it would look as if there were room.

    >>> unshed(300.0, 1.0, 0.4), unshed(300.0, 0.5, 0.4), unshed(300.0, 0.2, 0.75)
    (300.0, 600.0, 400.0)
    """
    if flow is None or keep >= 1.0 or busy_share is None:
        return flow
    return flow / max(keep, busy_share) if max(keep, busy_share) > 0.0 else flow
