"""The interchange of `spillway decide qod`: JSON to a checked Observation, Observation and Decision to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from spillway.model.qod import (
    Cost,
    Decision,
    Edge,
    Instance,
    Node,
    Observation,
    ObservationError,
    Operator,
    Previous,
)
from spillway.model.qod_check import MOST, as_count, as_number, check_graph, kind, span


def read(text: str | bytes | dict[str, Any]) -> Observation:
    """
    >>> read('{"nodes": [], "operators": [], "edges": [], "age": 3}')
    Traceback (most recent call last):
    spillway.model.qod.ObservationError: the unknown field age; did you mean age_s?
    """
    top = _Fields(_parse(text) if isinstance(text, str | bytes) else text, "")
    observation = Observation(
        nodes=tuple(map(_node, top.objects("nodes"))),
        operators=tuple(map(_operator, top.objects("operators"))),
        edges=tuple(map(_edge, top.objects("edges"))),
        previous=_previous(_Fields(raw, "previous")) if (raw := top.take("previous")) is not None else None,
        age_s=top.number("age_s"),
        cycle_s=top.number("cycle_s"),
        now=top.text("now"),
    )
    top.end()
    check_graph(observation)
    return observation


def _parse(text: str | bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            name = next(n for i, (n, _) in enumerate(pairs) if n in {m for m, _ in pairs[:i]})
            raise ObservationError(f"the field {name} is given twice in one object; give it once")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ObservationError(
            f"line {error.lineno}, column {error.colno} is not valid JSON ({error.msg}); give one JSON object"
        ) from None
    except UnicodeDecodeError:
        raise ObservationError("the input is not UTF-8; give one JSON object in UTF-8") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, ObservationError):
            raise
        raise ObservationError(
            "the input is nested too deeply or has an endless number; give one JSON object as docs/algorithms.md shows it"
        ) from None


def _node(raw: _Fields) -> Node:
    node = Node(name=raw.name("name"), cores=raw.number("cores", needed=True), cpu=raw.number("cpu"))
    raw.end()
    return node


def _operator(raw: _Fields) -> Operator:
    name = raw.name("name")
    raw.path = f"operators.{name}"
    operator = Operator(
        name=name,
        instances=tuple(map(_instance, raw.objects("instances"))),
        priority=raw.whole("priority"),
        min_accuracy=raw.number("min_accuracy", high=1.0),
        cost=_cost(_Fields(cost, raw.at("cost"))) if (cost := raw.take("cost")) is not None else None,
    )
    raw.end()
    return operator


def _instance(raw: _Fields) -> Instance:
    instance = Instance(
        node=raw.name("node"),
        in_rate=raw.number("in_rate"),
        cpu=raw.number("cpu"),
        warming=bool(raw.flag("warming")),
        movable=raw.flag("movable") is not False,
        executor=raw.name("executor", needed=False),
        cores=1.0 if (cores := raw.number("cores")) is None else cores,
    )
    raw.end()
    return instance


def _cost(raw: _Fields) -> Cost:
    cost = Cost(
        fixed=raw.number("fixed", needed=True),
        per_arrived=raw.number("per_arrived", needed=True),
        per_kept=raw.number("per_kept", needed=True),
    )
    raw.end()
    return cost


def _edge(raw: _Fields) -> Edge:
    edge = Edge(
        producer=raw.name("from", needed=False),
        topic=raw.name("topic", needed=False),
        consumer=raw.name("to"),
        out_rate=raw.number("out_rate"),
        keep=raw.number("keep", high=1.0),
        lag=raw.number("lag"),
    )
    raw.end()
    if edge.producer is None and edge.topic is None:
        raise ObservationError(f"{raw.path} has neither from nor topic; name the operator or the topic its rows come from")
    return edge


def _previous(raw: _Fields) -> Previous:
    previous = Previous(keeps=raw.table("keeps", high=1.0), raise_ready=raw.counts("raise_ready"))
    raw.end()
    return previous


class _Fields:
    """One JSON object, read field by field; `end` refuses what nobody asked for."""

    def __init__(self, raw: Any, path: str) -> None:
        self.path = path
        if not isinstance(raw, dict):
            raise ObservationError(f"{path or 'the observation'} is {kind(raw)}, but must be an object")
        self.raw: dict[str, Any] = raw
        self.known: list[str] = []

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str) -> Any:
        self.known.append(name)
        return self.raw.get(name)

    def end(self) -> None:
        for name in self.raw:
            if name not in self.known:
                close = get_close_matches(str(name), self.known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(self.known)}"
                raise ObservationError(f"{f'{self.path} has ' if self.path else ''}the unknown field {name}; {hint}")

    def number(self, name: str, *, high: float = MOST, needed: bool = False) -> Any:
        value = self.take(name)
        if value is None:
            if needed:
                raise ObservationError(f"{self.at(name)} is missing; it must be {span(high)}")
            return None
        return as_number(self.at(name), value, high)

    def whole(self, name: str) -> int | None:
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be a whole number")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be true or false")
        return value

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be text")
        return value

    def name(self, name: str, *, needed: bool = True) -> Any:
        value = self.text(name)
        if value == "" or (needed and value is None):
            raise ObservationError(f"{self.at(name)} is {'empty' if value == '' else 'missing'}; it must be a name")
        return value

    def objects(self, name: str) -> list[_Fields]:
        value = self.take(name)
        if not isinstance(value, list):
            what = "missing" if value is None else kind(value)
            raise ObservationError(f"{self.at(name)} is {what}, but must be an array of objects")
        return [_Fields(raw, f"{self.at(name)}[{number}]") for number, raw in enumerate(value)]

    def table(self, name: str, *, high: float) -> dict[str, float]:
        value = self._mapping(name)
        return {key: as_number(f"{self.at(name)}.{key}", number, high) for key, number in value.items()}

    def counts(self, name: str) -> dict[str, int]:
        value = self._mapping(name)
        return {key: as_count(f"{self.at(name)}.{key}", number) for key, number in value.items()}

    def _mapping(self, name: str) -> dict[str, Any]:
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be an object")
        return value


def observation_dict(observation: Observation) -> dict[str, Any]:
    """The interchange; what is None is left out, for absent is missing."""
    previous = observation.previous
    return _given(
        nodes=[_given(name=n.name, cores=n.cores, cpu=n.cpu) for n in observation.nodes],
        operators=[
            _given(
                name=o.name,
                priority=o.priority,
                min_accuracy=o.min_accuracy,
                cost=_plain(o.cost, ("fixed", "per_arrived", "per_kept")) if o.cost else None,
                instances=[_instance_dict(i) for i in o.instances],
            )
            for o in observation.operators
        ],
        edges=[
            {**_ends(e.producer, e.topic, e.consumer), **_given(out_rate=e.out_rate, keep=e.keep, lag=e.lag)}
            for e in observation.edges
        ],
        previous={"keeps": dict(previous.keeps), "raise_ready": dict(previous.raise_ready)} if previous else None,
        age_s=observation.age_s,
        cycle_s=observation.cycle_s,
        now=observation.now,
    )


def _instance_dict(i: Instance) -> dict[str, Any]:
    return _given(
        node=i.node,
        in_rate=i.in_rate,
        cpu=i.cpu,
        warming=i.warming or None,
        movable=None if i.movable else False,
        executor=i.executor,
        cores=None if i.cores == 1.0 else i.cores,
    )


def decision_dict(decision: Decision) -> dict[str, Any]:
    infeasible = decision.infeasible
    return {
        "feasible": decision.feasible,
        "edges": [
            {
                **_ends(e.producer, e.topic, e.consumer),
                **_plain(e, ("keep", "published", "code", "reason", "expected_accuracy")),
            }
            for e in decision.edges
        ],
        "queries": {n: _plain(q, ("desired", "floor", "priority", "possible")) for n, q in decision.queries.items()},
        "moves": [
            {"operator": m.operator, "instance": m.instance, "from": m.source, "to": m.target, "reason": m.reason}
            for m in decision.moves
        ],
        "missing": list(decision.missing),
        "infeasible": {
            "queries": list(infeasible.queries),
            "cores_needed": infeasible.cores_needed,
            "at": dict(infeasible.at),
            "instances_needed": dict(infeasible.instances_needed),
        }
        if infeasible
        else None,
        "held": decision.held,
        "remember": {"keeps": dict(decision.remember.keeps), "raise_ready": dict(decision.remember.raise_ready)},
        "expected": {"accuracy": dict(decision.expected.accuracy), "cpu": dict(decision.expected.cpu)},
    }


def _ends(producer: str | None, topic: str | None, consumer: str) -> dict[str, str | None]:
    return {"from": producer, **({"topic": topic} if topic is not None else {}), "to": consumer}


def _plain(value: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
