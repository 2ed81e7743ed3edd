"""The interchange of `spillway decide qod`: JSON to a checked Observation, Observation and Decision to JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spillway.model.fields import Fields, given, parse
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
from spillway.model.qod_check import check_graph


def read(text: str | bytes | dict[str, Any]) -> Observation:
    """
    >>> read('{"nodes": [], "operators": [], "edges": [], "age": 3}')
    Traceback (most recent call last):
    spillway.model.qod.ObservationError: the unknown field age; did you mean age_s?
    """
    top = Fields(parse(text) if isinstance(text, str | bytes) else text, "")
    observation = Observation(
        nodes=tuple(map(_node, top.objects("nodes"))),
        operators=tuple(map(_operator, top.objects("operators"))),
        edges=tuple(map(_edge, top.objects("edges"))),
        previous=_previous(Fields(raw, "previous")) if (raw := top.take("previous")) is not None else None,
        age_s=top.number("age_s"),
        cycle_s=top.number("cycle_s"),
        now=top.text("now"),
    )
    top.end()
    check_graph(observation)
    return observation


def _node(raw: Fields) -> Node:
    node = Node(name=raw.name("name"), cores=raw.number("cores", needed=True), cpu=raw.number("cpu"))
    raw.end()
    return node


def _operator(raw: Fields) -> Operator:
    name = raw.name("name")
    raw.path = f"operators.{name}"
    operator = Operator(
        name=name,
        instances=tuple(map(_instance, raw.objects("instances"))),
        priority=raw.whole("priority"),
        min_accuracy=raw.number("min_accuracy", high=1.0),
        may_rise=raw.flag("may_rise") is not False,
        cost=_cost(Fields(cost, raw.at("cost"))) if (cost := raw.take("cost")) is not None else None,
    )
    raw.end()
    return operator


def _instance(raw: Fields) -> Instance:
    instance = Instance(
        node=raw.name("node"),
        in_rate=raw.number("in_rate"),
        cpu=raw.number("cpu"),
        done_rate=raw.number("done_rate"),
        warming=bool(raw.flag("warming")),
        movable=raw.flag("movable") is not False,
        executor=raw.name("executor", needed=False),
        cores=1.0 if (cores := raw.number("cores")) is None else cores,
    )
    raw.end()
    return instance


def _cost(raw: Fields) -> Cost:
    cost = Cost(
        fixed=raw.number("fixed", needed=True),
        per_arrived=raw.number("per_arrived", needed=True),
        per_kept=raw.number("per_kept", needed=True),
    )
    raw.end()
    return cost


def _edge(raw: Fields) -> Edge:
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


def _previous(raw: Fields) -> Previous:
    previous = Previous(keeps=raw.table("keeps", high=1.0), raise_ready=raw.counts("raise_ready"))
    raw.end()
    return previous


def observation_dict(observation: Observation) -> dict[str, Any]:
    """The interchange; what is None is left out, for absent is missing."""
    previous = observation.previous
    return given(
        nodes=[given(name=n.name, cores=n.cores, cpu=n.cpu) for n in observation.nodes],
        operators=[
            given(
                name=o.name,
                priority=o.priority,
                min_accuracy=o.min_accuracy,
                may_rise=None if o.may_rise else False,
                cost=_plain(o.cost, ("fixed", "per_arrived", "per_kept")) if o.cost else None,
                instances=[_instance_dict(i) for i in o.instances],
            )
            for o in observation.operators
        ],
        edges=[
            {**_ends(e.producer, e.topic, e.consumer), **given(out_rate=e.out_rate, keep=e.keep, lag=e.lag)}
            for e in observation.edges
        ],
        previous={"keeps": dict(previous.keeps), "raise_ready": dict(previous.raise_ready)} if previous else None,
        age_s=observation.age_s,
        cycle_s=observation.cycle_s,
        now=observation.now,
    )


def _instance_dict(i: Instance) -> dict[str, Any]:
    return given(
        node=i.node,
        in_rate=i.in_rate,
        cpu=i.cpu,
        done_rate=i.done_rate,
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
