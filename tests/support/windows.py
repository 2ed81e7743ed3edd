"""Windows made by hand: a pipeline of two queries on two nodes, everything measured and well."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.model.topology import Application, Edge, Operator, Pipeline, Query
from spillway.model.window import Declared, EdgeRow, InstanceRow, Interval, NodeRow, OperatorRow, Window

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def pipeline(name: str = "taxi", priorities: tuple[int, int] = (5, 1), floors: tuple[float, float] = (0.8, 0.3)) -> Pipeline:
    return Pipeline(
        name=name,
        operators=(
            Operator(name="union", function="x:y"),
            Operator(name="light", function="x:y", query=Query(priority=priorities[0], min_accuracy=floors[0])),
            Operator(name="heavy", function="x:y", query=Query(priority=priorities[1], min_accuracy=floors[1])),
        ),
        edges=(
            Edge(name=f"{name}.yellow:union", topic=f"{name}.yellow", producer=None, consumer="union", partitions=2),
            Edge(name=f"{name}.green:union", topic=f"{name}.green", producer=None, consumer="union", partitions=2),
            Edge(name="union:light", topic=f"{name}.union.light", producer="union", consumer="light", partitions=2),
            Edge(name="union:heavy", topic=f"{name}.union.heavy", producer="union", consumer="heavy", partitions=2),
        ),
        applications=(
            Application(name="front", operators=("union", "light"), node="n1", executors=2),
            Application(name="heavy", operators=("heavy",), node="n2", executors=1),
        ),
    )


def window(*pipelines: Pipeline, modes: dict[str, str] | None = None, rate: float = 100.0, cpu: float = 20.0) -> Window:
    """Each pipeline as it should be: 200 rows a second, every instance with the same CPU."""
    specs = pipelines or (pipeline(),)
    instances, operators, edges = [], [], []
    for spec in specs:
        for application in spec.applications:
            for operator in application.operators:
                instances += [
                    InstanceRow(
                        pipeline=spec.name, operator=operator, executor=str(executor), node=application.node or "n1",
                        in_rate=2 * rate / application.executors, cpu=cpu, warming=False, age_s=0.2, ahead_s=-0.1,
                    )
                    for executor in range(application.executors)
                ]  # fmt: skip
                operators.append(
                    OperatorRow(
                        pipeline=spec.name, operator=operator, application=application.name, declared=application.executors,
                        measured=application.executors, warming=False, share=1.0, out_rate=None, batches=7, age_s=1.0,
                        ahead_s=-0.5,
                    )
                )  # fmt: skip
        for edge in spec.edges:
            outside = edge.producer is None
            edges.append(
                EdgeRow(
                    pipeline=spec.name, edge=edge.name, producer=edge.producer, topic=edge.topic, consumer=edge.consumer,
                    out_rate=rate if outside else 2 * rate, share=1.0, keep=1.0, decision_id=None, lag=0,
                    age_s=0.2 if outside else None, ahead_s=0.0,
                )
            )  # fmt: skip
    used = {n: sum(i.cpu or 0.0 for i in instances if i.node == n) for n in ("n1", "n2")}
    return Window(
        interval=Interval(start=NOON - timedelta(seconds=15), end=NOON),
        declared={s.name: Declared(pipeline=s, version=1, mode=(modes or {}).get(s.name, "apply")) for s in specs},
        nodes=tuple(NodeRow(node=n, cores=4, cpu=10.0 + used[n], age_s=0.2, ahead_s=-0.1) for n in ("n1", "n2")),
        instances=tuple(instances),
        operators=tuple(operators),
        edges=tuple(edges),
    )


def changed(found: Window, table: str, row: int = 0, **values: Any) -> Window:
    """The window with one row of a table changed."""
    rows = list(getattr(found, table))
    rows[row] = replace(rows[row], **values)
    return replace(found, **{table: tuple(rows)})
