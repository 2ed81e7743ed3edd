"""What is known of a pipeline when a person asks to rescale an operator of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from spillway.model.rescale import OperatorLoad, RescaleWorld, Room
from spillway.model.topology import Kind, Operator, Pipeline
from spillway.store.connection import translate
from spillway.store.pipelines import load
from spillway.store.queries import rows
from spillway.store.rescale import history, open_plans

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

REPARTITION_SINCE = (4, 2)
"""The first version of Spark that can change the number of partitions of a checkpoint's state."""
MEASURED = timedelta(seconds=120)
"""How far back rates are looked for, and nodes."""
IDLE = timedelta(seconds=30)
"""How far back is looked for what nodes have idle: at the height of a rush it is another CPU than a minute later."""
REMEMBERED = timedelta(days=14)
"""A week and more: what was made smaller is looked for as far back as that, and how an operator scales."""


def world(conn: Connection, pipeline: str, *, now: datetime) -> RescaleWorld:
    """Raises Refused where there is no such pipeline."""
    with translate():
        spec = load(conn, pipeline)
        applications = {r["application"]: r for r in rows(conn, "rescale_applications", pipeline=pipeline)}
        states = {r["operator"]: r for r in rows(conn, "rescale_operators", pipeline=pipeline, since=now - MEASURED)}
        nodes = rows(conn, "rescale_nodes", since=now - MEASURED, idle_since=now - IDLE, now=now)
        why = repartition_refused()
        return RescaleWorld(
            now=now,
            operators=tuple(_operator(spec, o, applications, states) for o in spec.operators),
            nodes=tuple(Room(name=r["node"], idle=r["idle"]) for r in nodes),
            history=history(conn, pipeline, now - REMEMBERED),
            running=tuple(p.application for p in open_plans(conn) if p.pipeline == pipeline),
            repartition=why is None,
            repartition_why=why or "",
        )


def _operator(
    spec: Pipeline, operator: Operator, applications: Mapping[str, Mapping[str, Any]], states: Mapping[str, Mapping[str, Any]]
) -> OperatorLoad:
    declared = next(a for a in spec.applications if operator.name in a.operators)
    has, state = applications.get(declared.name, {}), states.get(operator.name, {})
    busy_s, span_s, taken = state.get("busy_s") or 0.0, state.get("span_s") or 0.0, state.get("input_rows") or 0
    stateful = operator.kind is not Kind.STATELESS
    return OperatorLoad(
        name=operator.name,
        application=declared.name,
        parallelism=has.get("executors", declared.executors),
        min=operator.parallelism.min,
        max=operator.parallelism.max,
        buckets=state.get("buckets", operator.buckets) if stateful else None,
        stateful=stateful,
        state_rows=state.get("state_rows"),
        state_bytes=state.get("state_bytes"),
        node=has.get("node"),
        committed=bool(state.get("committed")) or not stateful,
        rate=taken / span_s if span_s > 0 else None,
        capacity=taken / busy_s if busy_s > 0 else None,
        utilisation=min(1.0, busy_s / span_s) if span_s > 0 else None,
    )


def repartition_refused(engine: str | None = None) -> str | None:
    """Why the engine of this installation cannot change the number of buckets of a checkpoint.

    >>> repartition_refused("4.2.0")
    >>> repartition_refused("4.1.1")
    'Spark 4.1.1 cannot repartition a checkpoint, 4.2 or newer is needed'
    """
    needed = ".".join(str(part) for part in REPARTITION_SINCE)
    try:
        engine = engine or version("pyspark")
    except PackageNotFoundError:
        return f"the version of Spark is not known, and {needed} or newer is needed to repartition a checkpoint"
    major, minor = (int("".join(c for c in part if c.isdigit()) or 0) for part in (*engine.split("."), "0")[:2])
    if (major, minor) >= REPARTITION_SINCE:
        return None
    return f"Spark {engine} cannot repartition a checkpoint, {needed} or newer is needed"
