"""What no observation may have: wrong numbers, names that are not declared or not unique, a cycle."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from spillway.model.qod import Observation, ObservationError

MOST, LEAST = 1e15, 1e-9
"""Far beyond what is measured, and far enough within a float that products and ratios of several of them still are."""
MOST_COUNT = 10**9


def check(observation: Observation) -> None:
    """What `read` checks, for an Observation that was made in Python."""
    for node in observation.nodes:
        _numbers(f"nodes.{node.name}", node, ("cores", "cpu"))
    for operator in observation.operators:
        where = f"operators.{operator.name}"
        _numbers(where, operator, ("min_accuracy",), high=1.0)
        for number, instance in enumerate(operator.instances):
            _numbers(f"{where}.instances[{number}]", instance, ("in_rate", "cpu", "done_rate", "cores"))
        if operator.cost:
            _numbers(f"{where}.cost", operator.cost, ("fixed", "per_arrived", "per_kept"))
    for edge in observation.edges:
        _numbers(f"edges.{edge.name}", edge, ("out_rate", "lag"))
        _numbers(f"edges.{edge.name}", edge, ("keep",), high=1.0)
    _numbers("observation", observation, ("age_s", "cycle_s"))
    check_graph(observation)


def _numbers(where: str, value: object, names: Iterable[str], high: float = MOST) -> None:
    for name in names:
        if (number := getattr(value, name)) is not None:
            as_number(f"{where}.{name}", number, high)


def check_graph(observation: Observation) -> None:
    nodes = unique("nodes", (n.name for n in observation.nodes))
    operators = unique("operators", (o.name for o in observation.operators))
    unique("edges", (e.name for e in observation.edges))
    for node in observation.nodes:
        if node.cores <= 0:
            raise ObservationError(f"nodes.{node.name}.cores is {node.cores:g}, but must be more than 0")
    executors: dict[str, tuple[str, float]] = {}
    for operator in observation.operators:
        for number, instance in enumerate(operator.instances):
            where = f"operators.{operator.name}.instances[{number}]"
            if instance.node not in nodes:
                raise ObservationError(
                    f"{where}.node is {instance.node}, which is not declared in nodes{close(instance.node, nodes)}"
                )
            if instance.cores <= 0:
                raise ObservationError(f"{where}.cores is {instance.cores:g}, but must be more than 0")
            if instance.executor is not None:
                home, cores = executors.setdefault(instance.executor, (instance.node, instance.cores))
                if (home, cores) != (instance.node, instance.cores):
                    raise ObservationError(
                        f"{where} has {instance.cores:g} cores on {instance.node}, but its executor {instance.executor} has "
                        f"{cores:g} on {home}; an executor is in one place, with the same cores for all"
                    )
    for edge in observation.edges:
        for field, name in (("from", edge.producer), ("to", edge.consumer)):
            if name is not None and name not in operators:
                raise ObservationError(f"edges.{edge.name}.{field} is {name}, which is not an operator{close(name, operators)}")
    if around := cycle((e.producer, e.consumer) for e in observation.edges):
        raise ObservationError(f"the edges {' → '.join(around)} form a cycle; a pipeline must end somewhere")
    producers = {e.producer for e in observation.edges}
    for operator in observation.operators:
        if operator.name in producers and (operator.priority is not None or operator.min_accuracy is not None):
            raise ObservationError(
                f"operators.{operator.name} has something downstream, so its priority and min_accuracy follow from the queries "
                "below it; give them only on queries"
            )


def unique(what: str, names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ObservationError(f"{what} has the name {name} twice; names must be unique")
        seen.add(name)
    return seen


def close(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    some = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    return f"; did you mean {near[0]}?" if near else f"; known are {some}" if names else "; none is declared"


def cycle(edges: Iterable[tuple[str | None, str]]) -> list[str]:
    """Operators along one cycle, the first one again at the end; empty when there is none."""
    below: dict[str, list[str]] = {}
    waiting: dict[str, int] = {}
    for producer, consumer in edges:
        if producer is not None:
            below.setdefault(producer, []).append(consumer)
            waiting[consumer] = waiting.get(consumer, 0) + 1
    free = [name for name in below if name not in waiting]
    while free:
        for consumer in below.get(free.pop(), ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                del waiting[consumer]
                free.append(consumer)
    if not waiting:
        return []
    above = {c: p for p, consumers in below.items() for c in consumers if p in waiting and c in waiting}
    path, name = [], next(iter(above))
    while name not in path:
        path.append(name)
        name = above[name]
    return [name, *reversed(path[path.index(name) :])]


def as_number(where: str, value: Any, high: float = MOST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ObservationError(f"{where} is {kind(value)}, but must be {span(high)}")
    if not 0.0 <= value <= high:
        raise ObservationError(f"{where} is {shown(value)}, but must be {span(high)}")
    return float(value) if value >= LEAST else 0.0


def as_count(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        raise ObservationError(f"{where} is {shown(value)}, but must be a whole number from 0 to {MOST_COUNT}")
    return value


def span(high: float) -> str:
    return f"a number from 0 to {high:g}"


def shown(value: Any) -> str:
    return "a number of too many digits" if isinstance(value, int) and abs(value) >= 1e15 else kind(value)


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) < 40 else "a text"
    return "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else repr(value)
