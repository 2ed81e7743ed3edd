"""What no flow network may have: wrong numbers, names that are not declared or not unique, a cycle."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.model.capacity import CapacityWorld, FlowEdge, FlowOperator
from spillway.model.qod import ObservationError
from spillway.model.qod_check import as_number, close, cycle, unique

RATES = ("flow", "capacity", "backlog", "selectivity", "arrival", "latency_ms", "latency_constraint_ms", "carried")
BYTES = ("link", "system", "heartbeat", "checkpoint", "others", "row_bytes")


def check(world: CapacityWorld) -> None:
    """What `read` checks, for a CapacityWorld that was made in Python."""
    for operator in world.operators:
        where = f"operators.{operator.name}"
        _numbers(where, operator, ("parallelism", "capacity", "skew"))
        _numbers(where, operator, ("confidence",), high=1.0)
        for name in ("batches", "instances"):
            for number, busy in enumerate(getattr(operator, name)):
                _numbers(f"{where}.{name}[{number}]", busy, ("rows", "busy_s"))
    for edge in world.edges:
        where = f"edges.{edge.name}"
        _numbers(where, edge, RATES)
        _numbers(where, edge, ("confidence",), high=1.0)
        for name in ("partitions", "links"):
            for number, value in enumerate(getattr(edge, name)):
                as_number(f"{where}.{name}[{number}]", value)
        if edge.bandwidth:
            _numbers(f"{where}.bandwidth", edge.bandwidth, BYTES)
    check_network(world)


def check_network(world: CapacityWorld) -> None:
    operators = unique("operators", (o.name for o in world.operators))
    unique("edges", (e.name for e in world.edges))
    for operator in world.operators:
        _operator(operator)
    of_name = {o.name: o for o in world.operators}
    for edge in world.edges:
        for field, name in (("from", edge.producer), ("to", edge.consumer)):
            if name is not None and name not in operators:
                raise ObservationError(f"edges.{edge.name}.{field} is {name}, which is not an operator{close(name, operators)}")
        _edge(edge, of_name[edge.consumer])
    if around := cycle((e.producer, e.consumer) for e in world.edges):
        raise ObservationError(f"the edges {' → '.join(around)} form a cycle; a pipeline must end somewhere")


def _operator(operator: FlowOperator) -> None:
    where = f"operators.{operator.name}"
    if operator.parallelism < 1:
        raise ObservationError(f"{where}.parallelism is {operator.parallelism}, but must be a whole number from 1 on")
    if operator.skew is not None and operator.skew < 1.0:
        raise ObservationError(
            f"{where}.skew is {operator.skew:g}, but must be at least 1: the fullest bucket has no less than the mean"
        )
    if operator.instances and len(operator.instances) != operator.parallelism:
        raise ObservationError(
            f"{where} has {len(operator.instances)} instances, but parallelism {operator.parallelism}; give one for each or none"
        )


def _edge(edge: FlowEdge, consumer: FlowOperator) -> None:
    where = f"edges.{edge.name}"
    if edge.links and len(edge.links) != consumer.parallelism:
        raise ObservationError(
            f"{where} has {len(edge.links)} links, but {consumer.name} has parallelism {consumer.parallelism}; "
            "give one for each or none"
        )
    if edge.links and edge.capacity is not None:
        raise ObservationError(f"{where} has a capacity and links; give one of them, for the links add up to a capacity")
    if edge.bandwidth is not None and edge.bandwidth.row_bytes == 0.0:
        raise ObservationError(f"{where}.bandwidth.row_bytes is 0, but must be more than 0")
    for field in ("latency_ms", "latency_constraint_ms"):
        if getattr(edge, field) == 0.0:
            raise ObservationError(f"{where}.{field} is 0, but must be more than 0; leave it out where it is not known")


def _numbers(where: str, value: object, names: Iterable[str], high: float | None = None) -> None:
    for name in names:
        if (number := getattr(value, name)) is not None:
            as_number(f"{where}.{name}", number, *([] if high is None else [high]))
