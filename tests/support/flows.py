"""Flow networks made by hand: the pipeline of `windows`, everything measured and well."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from spillway.model.capacity import Busy
from spillway.model.capacity_window import CapacityWindow, EdgeFlow, InstanceFlow, OperatorFlow
from spillway.model.topology import Pipeline
from spillway.model.window import Interval

from tests.support.windows import NOON, pipeline

MINUTE = Interval(start=NOON - timedelta(seconds=60), end=NOON)


def flow_window(spec: Pipeline | None = None, *, rate: float = 100.0, able: float = 400.0) -> CapacityWindow:
    """`rate` rows a second come from each topic, and every operator manages `able`, whatever its parallelism."""
    spec = spec or pipeline()
    busy = 2 * rate / able
    return CapacityWindow(
        interval=MINUTE,
        pipeline=spec.name,
        operators=tuple(
            OperatorFlow(
                operator=name, application=a.name, declared=a.executors, measured=a.executors, finished=30,
                batches=tuple(Busy(rows=4 * rate, busy_s=2 * busy) for _ in range(30)), busy_share=min(1.0, busy),
                selectivity=1.0, ahead_s=-0.5,
            )
            for a in spec.applications
            for name in a.operators
        ),
        edges=tuple(
            EdgeFlow(
                edge=e.name, producer=e.producer, topic=e.topic, consumer=e.consumer,
                flow=rate if e.producer is None else min(2 * rate, able), arrival=rate if e.producer is None else 2 * rate,
                backlog=0.0, partitions=(0.0, 0.0), latency_ms=1500.0, latency_constraint_ms=10_000.0, ahead_s=0.0,
            )
            for e in spec.edges
        ),
        instances=tuple(
            InstanceFlow(operator=name, executor=str(n), node=a.node or "n1", rows=12_000.0 * rate / a.executors, ahead_s=-0.1)
            for a in spec.applications
            for name in a.operators
            for n in range(a.executors)
        ),
    )  # fmt: skip


def changed(found: CapacityWindow, table: str, row: int = 0, **values: Any) -> CapacityWindow:
    """The window with one row of a table changed."""
    rows = list(getattr(found, table))
    rows[row] = replace(rows[row], **values)
    return replace(found, **{table: tuple(rows)})
