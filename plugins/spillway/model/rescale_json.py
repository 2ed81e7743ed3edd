"""The interchange of `spillway decide rescale`: JSON to a checked RescaleWorld, and back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from spillway.model.fields import Fields, given, parse
from spillway.model.qod import ObservationError
from spillway.model.qod_check import close, cycle, kind, unique
from spillway.model.rescale import (
    Change,
    Flow,
    Frozen,
    Kind,
    OperatorLoad,
    Outcome,
    Request,
    RescaleWorld,
    Room,
    Sample,
)

EXECUTORS_MOST = 100_000


def read(text: str | bytes | dict[str, Any], now: datetime | None = None) -> RescaleWorld:
    """
    >>> read('{"now": "2031-05-04T10:00:00+00:00", "operators": [{"name": "a", "paralelism": 2}]}')
    Traceback (most recent call last):
    spillway.model.qod.ObservationError: operators.a.parallelism is missing; it must be a whole number from 1 to 1000000000
    """
    top = Fields(parse(text) if isinstance(text, str | bytes) else text, "")
    moment: Any = top.moment("now", needed=now is None) or now
    world = RescaleWorld(
        now=moment,
        operators=tuple(map(_operator, top.objects("operators"))),
        edges=tuple(map(_edge, top.objects("edges", needed=False))),
        nodes=tuple(map(_node, top.objects("nodes", needed=False))),
        history=tuple(sorted(map(_change, top.objects("history", needed=False)), key=lambda change: change.at)),
        running=_names(top, "running"),
        frozen=tuple(map(_frozen, top.objects("frozen", needed=False))),
        window_s=top.number("window_s") or 0.0,
        floors_infeasible=bool(top.flag("floors_infeasible")),
        repartition=top.flag("repartition") is not False,
        repartition_why=top.text("repartition_why") or "",
        request=_request(Fields(raw, "request")) if (raw := top.take("request")) is not None else None,
        policy=_policy(top.take("policy")),
    )
    top.end()
    return _checked(world)


def _operator(raw: Fields) -> OperatorLoad:
    name = raw.name("name")
    raw.path = f"operators.{name}"
    operator = OperatorLoad(
        name=name,
        application=raw.name("application", needed=False) or name,
        parallelism=raw.count("parallelism", low=1, needed=True),
        min=raw.count("min", low=1) or 1,
        max=raw.count("max", low=1),
        buckets=raw.count("buckets", low=1),
        stateful=bool(raw.flag("stateful")),
        state_rows=raw.count("state_rows"),
        state_bytes=raw.count("state_bytes"),
        node=raw.name("node", needed=False),
        committed=raw.flag("committed") is not False,
        rate=raw.number("rate"),
        capacity=raw.number("capacity"),
        utilisation=raw.number("utilisation", high=1.0),
        needed=raw.number("needed"),
        peak=raw.number("peak"),
        bottleneck_for=raw.count("bottleneck_for") or 0,
        instances_short=raw.count("instances_short") or 0,
        seen=tuple(map(_sample, raw.objects("seen", needed=False))),
    )
    raw.end()
    return operator


def _sample(raw: Fields) -> Sample:
    sample = Sample(parallelism=raw.count("parallelism", low=1, needed=True), capacity=raw.number("capacity", needed=True))
    raw.end()
    return sample


def _edge(raw: Fields) -> Flow:
    selectivity = raw.number("selectivity")
    edge = Flow(
        producer=raw.name("from", needed=False),
        topic=raw.name("topic", needed=False),
        consumer=raw.name("to"),
        selectivity=1.0 if selectivity is None else selectivity,
        arrival=raw.number("arrival"),
        peak=raw.number("peak"),
        backlog=raw.number("backlog"),
    )
    raw.end()
    if edge.producer is None and edge.topic is None:
        raise ObservationError(f"{raw.path} has neither from nor topic; name the operator or the topic its rows come from")
    return edge


def _node(raw: Fields) -> Room:
    room = Room(name=raw.name("name"), free=raw.count("free"), idle=raw.number("idle"))
    raw.end()
    return room


def _change(raw: Fields) -> Change:
    operator = raw.name("operator")
    change = Change(
        at=raw.moment("at", needed=True),
        operator=operator,
        application=raw.name("application", needed=False) or operator,
        kind=raw.word("kind", Kind) or Kind.RESTART,
        executors_from=raw.count("from", low=1, needed=True),
        executors_to=raw.count("to", low=1, needed=True),
        buckets_from=raw.count("buckets_from", low=1),
        buckets_to=raw.count("buckets_to", low=1),
        outcome=raw.word("outcome", Outcome) or Outcome.DONE,
        decision=raw.name("decision", needed=False),
        rate_before=raw.number("rate_before"),
        expected_rate=raw.number("expected_rate"),
        observed_rate=raw.number("observed_rate"),
        effective=raw.flag("effective"),
        pause_s=raw.number("pause_s"),
        state_rows=raw.count("state_rows"),
        ended_at=raw.moment("ended_at"),
    )
    raw.end()
    return change


def _frozen(raw: Fields) -> Frozen:
    frozen = Frozen(start=raw.moment("from", needed=True), end=raw.moment("to", needed=True), why=raw.text("why") or "")
    raw.end()
    if frozen.end <= frozen.start:
        raise ObservationError(f"{raw.path}.to is {frozen.end.isoformat()}, but must be later than its from")
    return frozen


def _request(raw: Fields) -> Request:
    request = Request(
        operator=raw.name("operator"),
        to=raw.count("to"),
        buckets=raw.count("buckets"),
        node=raw.name("node", needed=False),
        kind=raw.word("kind", Kind),
    )
    raw.end()
    return request


def _names(raw: Fields, name: str) -> tuple[str, ...]:
    value = raw.take(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ObservationError(f"{raw.at(name)} is {kind(value)}, but must be an array of names")
    return tuple(value)


def _policy(value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ObservationError(f"policy is {kind(value)}, but must be an object of fields of the policy")
    return dict(value or {})


def _checked(world: RescaleWorld) -> RescaleWorld:
    operators = unique("operators", (o.name for o in world.operators))
    nodes = unique("nodes", (n.name for n in world.nodes))
    unique("edges", (e.name for e in world.edges))
    for operator in world.operators:
        _check_operator(operator, world, nodes)
    for edge in world.edges:
        for field, name in (("from", edge.producer), ("to", edge.consumer)):
            if name is not None and name not in operators:
                raise ObservationError(f"edges.{edge.name}.{field} is {name}, which is not an operator{close(name, operators)}")
        if edge.producer is not None and (edge.arrival is not None or edge.peak is not None):
            raise ObservationError(
                f"edges.{edge.name} has a producer, so what arrives on it follows; give arrival and peak of sources"
            )
    if around := cycle((e.producer, e.consumer) for e in world.edges):
        raise ObservationError(f"the edges {' → '.join(around)} form a cycle; a pipeline must end somewhere")
    for application in world.running:
        if application not in world.applications:
            raise ObservationError(
                f"running has {application}, which is not an application{close(application, world.applications)}"
            )
    late = next((number for number, change in enumerate(world.history) if change.at > world.now), None)
    if late is not None:
        raise ObservationError(f"history has a change at {world.history[late].at.isoformat()}, which is later than now")
    return world


def _check_operator(operator: OperatorLoad, world: RescaleWorld, nodes: set[str]) -> None:
    where = f"operators.{operator.name}"
    if operator.parallelism > EXECUTORS_MOST:
        raise ObservationError(f"{where}.parallelism is {operator.parallelism}, but must be at most {EXECUTORS_MOST}")
    if operator.max is not None and operator.max < operator.min:
        raise ObservationError(f"{where}.max is {operator.max}, but must be at least min, which is {operator.min}")
    if nodes and operator.node is not None and operator.node not in nodes:
        raise ObservationError(f"{where}.node is {operator.node}, which is not declared in nodes{close(operator.node, nodes)}")
    first = world.of_application(operator.application)[0]
    if (first.parallelism, first.node) != (operator.parallelism, operator.node):
        raise ObservationError(
            f"{where} has another parallelism or node than {first.name}, but both are in the application {operator.application}; "
            "they share its executors"
        )


def world_dict(world: RescaleWorld) -> dict[str, Any]:
    """The interchange; what is None or as if absent is left out."""
    return given(
        now=world.now.isoformat(),
        operators=[_operator_dict(o) for o in world.operators],
        edges=[
            {
                "from": e.producer,
                **given(
                    topic=e.topic,
                    to=e.consumer,
                    selectivity=None if e.selectivity == 1.0 else e.selectivity,
                    arrival=e.arrival,
                    peak=e.peak,
                    backlog=e.backlog,
                ),
            }
            for e in world.edges
        ]
        or None,
        nodes=[given(name=n.name, free=n.free, idle=n.idle) for n in world.nodes] or None,
        history=[change_dict(c) for c in world.history] or None,
        running=list(world.running) or None,
        frozen=[given(**{"from": f.start.isoformat(), "to": f.end.isoformat()}, why=f.why or None) for f in world.frozen] or None,
        window_s=world.window_s or None,
        floors_infeasible=world.floors_infeasible or None,
        repartition=None if world.repartition else False,
        repartition_why=world.repartition_why or None,
        request=given(
            operator=world.request.operator,
            to=world.request.to,
            buckets=world.request.buckets,
            node=world.request.node,
            kind=world.request.kind,
        )
        if world.request
        else None,
        policy=dict(world.policy) or None,
    )


def _operator_dict(o: OperatorLoad) -> dict[str, Any]:
    return given(
        name=o.name,
        application=None if o.application == o.name else o.application,
        parallelism=o.parallelism,
        min=None if o.min == 1 else o.min,
        max=o.max,
        buckets=o.buckets,
        stateful=o.stateful or None,
        state_rows=o.state_rows,
        state_bytes=o.state_bytes,
        node=o.node,
        committed=None if o.committed else False,
        rate=o.rate,
        capacity=o.capacity,
        utilisation=o.utilisation,
        needed=o.needed,
        peak=o.peak,
        bottleneck_for=o.bottleneck_for or None,
        instances_short=o.instances_short or None,
        seen=[{"parallelism": s.parallelism, "capacity": s.capacity} for s in o.seen] or None,
    )


def change_dict(c: Change) -> dict[str, Any]:
    return given(
        at=c.at.isoformat(),
        operator=c.operator,
        application=None if c.application == c.operator else c.application,
        kind=c.kind,
        **{"from": c.executors_from, "to": c.executors_to},
        buckets_from=c.buckets_from,
        buckets_to=c.buckets_to,
        outcome=None if c.outcome is Outcome.DONE else c.outcome,
        decision=c.decision,
        rate_before=c.rate_before,
        expected_rate=c.expected_rate,
        observed_rate=c.observed_rate,
        effective=c.effective,
        pause_s=c.pause_s,
        state_rows=c.state_rows,
        ended_at=None if c.ended_at is None else c.ended_at.isoformat(),
    )
