"""The interchange of `spillway decide capacity`: JSON to a checked CapacityWorld, CapacityWorld and CapacityFinding to JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from spillway.model.capacity import (
    Bandwidth,
    Busy,
    CapacityFinding,
    CapacityWorld,
    EdgeCapacity,
    FlowEdge,
    FlowOperator,
    OperatorLimit,
)
from spillway.model.capacity_check import BYTES, check_network
from spillway.model.fields import Fields, given, parse
from spillway.model.qod import ObservationError


def read(text: str | bytes | dict[str, Any]) -> CapacityWorld:
    """
    >>> read('{"operators": [{"name": "parse", "parallelism": 2}], "edges": [{"from": null, "topic": "ads", "to": "parze"}]}')
    Traceback (most recent call last):
    spillway.model.qod.ObservationError: edges.ads:parze.to is parze, which is not an operator; did you mean parse?
    """
    top = Fields(parse(text) if isinstance(text, str | bytes) else text, "")
    world = CapacityWorld(
        operators=tuple(map(_operator, top.objects("operators"))), edges=tuple(map(_edge, top.objects("edges")))
    )
    top.end()
    check_network(world)
    return world


def _operator(raw: Fields) -> FlowOperator:
    name = raw.name("name")
    raw.path = f"operators.{name}"
    operator = FlowOperator(
        name=name,
        parallelism=raw.count("parallelism", low=1, needed=True),
        capacity=raw.number("capacity"),
        confidence=raw.number("confidence", high=1.0),
        batches=tuple(map(_busy, raw.objects("batches", needed=False))),
        instances=tuple(map(_busy, raw.objects("instances", needed=False))),
        skew=raw.number("skew"),
    )
    raw.end()
    return operator


def _busy(raw: Fields) -> Busy:
    busy = Busy(rows=raw.number("rows", needed=True), busy_s=raw.number("busy_s", needed=True))
    raw.end()
    return busy


def _edge(raw: Fields) -> FlowEdge:
    edge = FlowEdge(
        producer=raw.name("from", needed=False),
        topic=raw.name("topic", needed=False),
        consumer=raw.name("to"),
        flow=raw.number("flow"),
        capacity=raw.number("capacity"),
        confidence=raw.number("confidence", high=1.0),
        backlog=raw.number("backlog"),
        partitions=raw.numbers("partitions"),
        selectivity=raw.number("selectivity"),
        arrival=raw.number("arrival"),
        links=raw.numbers("links"),
        bandwidth=_bandwidth(Fields(link, raw.at("bandwidth"))) if (link := raw.take("bandwidth")) is not None else None,
        latency_ms=raw.number("latency_ms"),
        latency_constraint_ms=raw.number("latency_constraint_ms"),
        carried=raw.number("carried"),
    )
    raw.end()
    if edge.producer is None and edge.topic is None:
        raise ObservationError(f"{raw.path} has neither from nor topic; name the operator or the topic its rows come from")
    return edge


def _bandwidth(raw: Fields) -> Bandwidth:
    bandwidth = Bandwidth(**{name: raw.number(name, needed=True) for name in BYTES})
    raw.end()
    return bandwidth


def world_dict(world: CapacityWorld) -> dict[str, Any]:
    """The interchange; what is None is left out, for absent is missing."""
    return {
        "operators": [
            given(
                name=o.name,
                parallelism=o.parallelism,
                capacity=o.capacity,
                confidence=o.confidence,
                batches=[_plain(b) for b in o.batches] or None,
                instances=[_plain(i) for i in o.instances] or None,
                skew=o.skew,
            )
            for o in world.operators
        ],
        "edges": [_edge_dict(e) for e in world.edges],
    }


def _edge_dict(e: FlowEdge) -> dict[str, Any]:
    return {
        **_ends(e),
        **given(
            flow=e.flow,
            capacity=e.capacity,
            confidence=e.confidence,
            backlog=e.backlog,
            partitions=list(e.partitions) or None,
            selectivity=e.selectivity,
            arrival=e.arrival,
            links=list(e.links) or None,
            bandwidth=_plain(e.bandwidth) if e.bandwidth else None,
            latency_ms=e.latency_ms,
            latency_constraint_ms=e.latency_constraint_ms,
            carried=e.carried,
        ),
    }


def finding_dict(finding: CapacityFinding) -> dict[str, Any]:
    return {
        "max_flow": finding.max_flow,
        "cut_value": finding.cut_value,
        "cut": [list(ends) for ends in finding.cut],
        "bottlenecks": list(finding.bottlenecks),
        "potential": list(finding.potential),
        "drain": [{"path": list(d.path), "value": d.value} for d in finding.drain],
        "in_source_units": finding.in_source_units,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "source": finding.source,
        "present": finding.present,
        "arrival": finding.arrival,
        "operators": [_plain(o) for o in finding.operators],
        "edges": [
            {**_ends(e), **{name: value for name, value in _plain(e).items() if name not in ("producer", "topic", "consumer")}}
            for e in finding.edges
        ],
        "missing": list(finding.missing),
    }


def _ends(e: FlowEdge | EdgeCapacity) -> dict[str, str | None]:
    return {"from": e.producer, **({"topic": e.topic} if e.topic is not None else {}), "to": e.consumer}


def _plain(value: Busy | Bandwidth | OperatorLimit | EdgeCapacity) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}
