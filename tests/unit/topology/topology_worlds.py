"""A good topology to break, and random valid ones."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from typing import Any

from spillway.model.topology import (
    Application,
    Delivery,
    Edge,
    Kind,
    Operator,
    Output,
    Parallelism,
    Pipeline,
    Query,
    Shed,
    Silent,
    SinkType,
)

WHOLE_KEYS = (Kind.DEDUP, Kind.JOIN, Kind.SESSION)

GOOD = """\
pipeline: taxi
description: trips
trigger: 2s
latency: 10s
batch_target: 4s
lineage: true
operators:
  union:
    function: jobs.taxi:union
    schema: "trip_id bigint not null, zone string"
    key: zone
    buckets: 4
    parallelism: {start: 1, min: 1, max: 4}
  bill:
    function: jobs.taxi:bill
    kind: aggregate
    query: {priority: 2, min_accuracy: 0.5}
    output: {topic: taxi.bill.out}
  once:
    function: jobs.taxi:once
    kind: dedup
edges:
  - {topic: taxi.yellow, to: union, partitions: 4, starting: latest}
  - {from: union, to: bill, delivery: at_least_once, when_silent: open}
  - {from: union, to: once}
applications:
  front: {operators: [union, bill], node: n1, conf: {spark.ui.enabled: false}}
  back: {operators: [once], executors: 2, driver_memory: 1g}
"""


def random_pipeline(seed: int) -> Pipeline:
    """A valid pipeline of 1 to 12 operators; edges only lead from earlier operators to later ones."""
    rng = random.Random(seed)
    name = f"p{seed}"
    count = rng.randint(1, 12)
    names = [f"op{i}" for i in range(count)]
    producers = {n: rng.sample(names[:i], rng.randint(0, min(i, 3))) for i, n in enumerate(names)}
    fed = {p for ps in producers.values() for p in ps}
    weight = rng.random() < 0.3
    by_name = {n: replace(_operator(rng, n, name, n in fed), weight=weight) for n in names}

    def needs_keys(operator: str) -> bool:
        consumers = [n for n in names if operator in producers[n]]
        return by_name[operator].kind in WHOLE_KEYS or (
            by_name[operator].kind is Kind.STATELESS and any(needs_keys(c) for c in consumers)
        )

    edges = []
    for consumer, sources in producers.items():
        outside = [f"in.{consumer}"] if not sources or rng.random() < 0.2 else []
        for topic, source in [*((t, None) for t in outside), *(("", s) for s in sources)]:
            kinds = [Shed.RANDOM, Shed.BY_KEY] if weight else list(Shed)
            shed = Shed.BY_KEY if needs_keys(consumer) else rng.choice(kinds)
            edges.append(_edge(rng, topic, source, by_name[consumer], name, shed))
            if source and shed is Shed.BY_KEY:
                by_name[source] = replace(by_name[source], key="a")
    operators = tuple(by_name.values())
    cut = rng.randint(1, count)
    groups = [g for g in (names[:cut], names[cut:]) if g]
    applications = tuple(
        Application(
            name=f"app{i}",
            operators=tuple(group),
            node=rng.choice([None, "n1", "n2"]),
            executors=rng.randint(1, 4),
            slots=rng.randint(1, 4),
            driver_memory_mb=rng.choice([256, 512, 2048]),
            executor_memory_mb=rng.choice([256, 512, 2048]),
            conf={"spark.x": str(rng.random())} if rng.random() < 0.3 else {},
        )
        for i, group in enumerate(groups)
    )
    return Pipeline(
        name=name,
        description=rng.choice(["", "a: b # c", "ünï"]),
        trigger_s=rng.choice([0.0, 0.5, 60.0]),
        latency_constraint_s=rng.choice([0.1, 10.0]),
        batch_target_s=rng.choice([0.1, 4.0]),
        lineage=rng.random() < 0.5,
        operators=operators,
        edges=tuple(sorted(edges, key=lambda e: (names.index(e.consumer), e.name))),
        applications=applications,
    )


def _operator(rng: random.Random, name: str, pipeline: str, has_downstream: bool) -> Operator:
    low = rng.randint(1, 3)
    start = rng.randint(low, 5)
    high = rng.randint(start, 8)
    operator = Operator(
        name=name,
        function=f"jobs.{pipeline}:{name}",
        kind=rng.choice(list(Kind)),
        schema=rng.choice([None, "a bigint not null, b array<struct<c: string>>"]),
        key=rng.choice([None, "a"]),
        buckets=rng.randint(high, 16),
        parallelism=Parallelism(start=start, min=low, max=high),
        args=rng.choice([{}, {"n": 3, "deep": {"x": [1, 2.5, "t", True, None]}}]),
    )
    if has_downstream:
        return operator
    output = rng.choice(
        [
            Output(topic=f"{pipeline}.{name}.out", delivery=rng.choice(list(Delivery))),
            Output(type=SinkType.POSTGRES, table="out.t", keys=("a", "b")),
            Output(type=SinkType.NONE),
        ]
    )
    return replace(operator, query=Query(priority=rng.randint(-3, 9), min_accuracy=rng.choice([0.0, 0.25, 1.0])), output=output)


def _edge(rng: random.Random, topic: str, producer: str | None, consumer: Operator, pipeline: str, shed: Shed) -> Edge:
    return Edge(
        name=f"{producer or topic}:{consumer.name}",
        topic=f"{pipeline}.{producer}.{consumer.name}" if producer else topic,
        producer=producer,
        consumer=consumer.name,
        partitions=rng.randint(1, 16),
        delivery=rng.choice(list(Delivery)) if producer else Delivery.EXACTLY_ONCE,
        shed=shed,
        utility="length(value) / 100" if shed is Shed.BY_UTILITY else None,
        when_silent=rng.choice(list(Silent)),
        starting="earliest" if producer else rng.choice(["earliest", "latest"]),
        shared=not producer and rng.random() < 0.5,
    )


def as_document(pipeline: Pipeline) -> dict[str, Any]:
    """The fields of a topology file that declares this pipeline."""
    return {
        "pipeline": pipeline.name,
        "description": pipeline.description,
        "trigger": f"{pipeline.trigger_s}s",
        "latency": f"{pipeline.latency_constraint_s}s",
        "batch_target": f"{pipeline.batch_target_s * 1000:.0f}ms",
        "lineage": pipeline.lineage,
        "operators": {o.name: _given(_operator_fields(o)) for o in pipeline.operators},
        "edges": [_given(_edge_fields(e)) for e in pipeline.edges],
        "applications": {a.name: _given(_application_fields(a)) for a in pipeline.applications},
    }


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _operator_fields(o: Operator) -> dict[str, Any]:
    output = None
    if o.output:
        kafka, postgres = o.output.type is SinkType.KAFKA, o.output.type is SinkType.POSTGRES
        output = _given(
            {
                "type": o.output.type,
                "topic": o.output.topic,
                "table": o.output.table,
                "keys": list(o.output.keys) if postgres else None,
                "delivery": o.output.delivery if kafka else None,
            }
        )
    return {
        "function": o.function,
        "kind": o.kind,
        "schema": o.schema,
        "key": o.key,
        "weight": o.weight,
        "output_mode": o.output_mode,
        "buckets": o.buckets,
        "parallelism": asdict(o.parallelism),
        "query": asdict(o.query) if o.query else None,
        "output": output,
        "args": o.args,
    }


def _edge_fields(e: Edge) -> dict[str, Any]:
    outside = e.producer is None
    return {
        "topic": e.topic if outside else None,
        "from": e.producer,
        "to": e.consumer,
        "partitions": e.partitions,
        "delivery": None if outside else e.delivery,
        "shed": e.shed,
        "utility": e.utility,
        "when_silent": e.when_silent,
        "starting": e.starting if outside else None,
        "shared": e.shared if outside else None,
    }


def _application_fields(a: Application) -> dict[str, Any]:
    return {
        "operators": list(a.operators),
        "node": a.node,
        "executors": a.executors,
        "slots": a.slots,
        "driver_memory": f"{a.driver_memory_mb}m",
        "executor_memory": f"{a.executor_memory_mb}m",
        "conf": a.conf,
    }
