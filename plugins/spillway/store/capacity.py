"""What evaluations of capacity saw, found and proposed. Nothing here commits: a step is one transaction of its caller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spillway.model.qod import edge_name
from spillway.model.window import Declared, Interval
from spillway.store.decisions import Refusal, Run, Seen, Stored
from spillway.store.queries import execute, query, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

WORLD, PLANS = "capacity/", "rescale/"
"""Begin the names of stored inputs, of an evaluation and of a proposal; the pipeline follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision on one window."""

    id: int
    pipeline: str
    mode: str
    version: int
    observation: int | None
    status: str
    reason: str
    output: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an earlier evaluation found."""

    id: int
    interval_end: datetime
    origin: str
    output: dict[str, Any]


def save(
    conn: Connection,
    run: Run,
    interval: Interval,
    declared: Declared,
    *,
    kind: str,
    observation: int | None,
    status: str,
    reason: str = "",
    output: Mapping[str, Any] | None = None,
    expected: Mapping[str, Any] | None = None,
) -> int | None:
    """The id; None when the decision of this window was carried out or refused already and stays as it is.

    What gates found against what was there before goes."""
    saved = row(
        conn,
        "capacity_decision_save",
        **_times(interval),
        **run.key,
        kind=kind,
        pipeline=declared.pipeline.name,
        mode=declared.mode,
        version=declared.version,
        observation=observation,
        status=status,
        reason=reason,
        output=None if output is None else json.dumps(output, allow_nan=False),
        expected=None if expected is None else json.dumps(expected, allow_nan=False),
    )
    if saved is None:
        return None
    execute(conn, "qod_gate_clear", decision=saved["id"])
    return int(saved["id"])


def worlds(conn: Connection, run: Run, interval: Interval) -> list[Seen]:
    """Flow networks that were observed in a window."""
    return [Seen(**found) for found in rows(conn, "capacity_observations", **_times(interval), **run.key)]


def decided(conn: Connection, run: Run, interval: Interval, kind: str) -> dict[str, Decided]:
    """By pipeline."""
    found = rows(conn, "capacity_decided", kind=kind, **_times(interval), **run.key)
    return {r["pipeline"]: Decided(**r) for r in found}


def refused(conn: Connection, run: Run, interval: Interval, kind: str) -> dict[str, Refusal]:
    """By pipeline, what was refused on a window."""
    found = decided(conn, run, interval, kind)
    return {p: Refusal(reason=d.reason, decided=d.output is not None) for p, d in found.items() if d.status == "refused"}


def reopen(conn: Connection, run: Run, interval: Interval, pipelines: Sequence[str]) -> None:
    """A replay that is repeated decides anew what it has just observed; what a live evaluation refused stays refused."""
    if not run.live:
        execute(conn, "capacity_reopen", **_times(interval), **run.key, pipelines=list(pipelines))


def findings(conn: Connection, run: Run, declared: Declared, *, since: datetime, end: datetime, limit: int) -> list[Finding]:
    """What was found of a version of a pipeline after `since` and up to `end`, the newest first; each window once."""
    found: dict[datetime, Finding] = {}
    of = {"pipeline": declared.pipeline.name, "version": declared.version, "begins": run.begins, **run.key}
    for r in rows(conn, "capacity_findings", since=since, end=end, limit=2 * limit, **of):
        found.setdefault(r["interval_end"], Finding(**r))
    return list(found.values())[:limit]


def put(conn: Connection, pipeline: str, at: datetime, decision: int, edges: Iterable[Mapping[str, Any]]) -> None:
    """The capacity of every edge at the end of a window; the same again replaces it."""
    from psycopg2.extras import execute_values

    values = [
        (
            pipeline,
            edge_name(e["from"], e.get("topic"), e["to"]),
            at,
            decision,
            e["flow"],
            e["capacity"],
            e["estimator"],
            e["confidence"],
            None if e["backlog"] is None else round(e["backlog"]),
        )
        for e in edges
    ]
    if values:
        with conn.cursor() as cursor:
            execute_values(cursor, query("capacity_put"), values)


def arrivals(conn: Connection, pipeline: str, since: datetime, end: datetime) -> dict[datetime, dict[str, float]]:
    """What came from outside, by end of the window and edge, the newest first."""
    found: dict[datetime, dict[str, float]] = {}
    for r in rows(conn, "capacity_arrivals", pipeline=pipeline, since=since, end=end):
        found.setdefault(r["interval_end"], {})[edge_name(None, r["topic"], r["consumer"])] = r["arrival"]
    return found


def floors(conn: Connection, pipeline: str, interval: Interval) -> list[dict[str, Any] | None]:
    """What cycles of Quality of Data said in a window of floors that cannot be met, the oldest first; None: they can."""
    return [r["infeasible"] for r in rows(conn, "capacity_floors", pipeline=pipeline, **_times(interval))]


def applied(conn: Connection, pipeline: str, version: int) -> bool:
    """Whether a pipeline is applied in this version; so it stays until the end of the transaction."""
    execute(conn, "qod_pipeline_lock", pipeline=pipeline)
    return row(conn, "capacity_applied", pipeline=pipeline, version=version) is not None


def plans_of(conn: Connection, decision: int) -> list[int]:
    return [r["id"] for r in rows(conn, "capacity_plans_of", decision=decision)]


def last(conn: Connection, pipeline: str, kind: str, end: datetime | None = None) -> Stored | None:
    """The newest live decision of a kind on a pipeline, or that on the window which ended then."""
    found = row(conn, "capacity_last", pipeline=pipeline, kind=kind, end=end)
    return Stored(**found) if found else None


def tell(conn: Connection, pipeline: str, kind: str, text: str, *, about: str | None = None, subject: str | None = None) -> None:
    """An event, unless the last one of this pipeline's evaluations was of the same kind and began with `about`."""
    about = text if about is None else about
    execute(conn, "capacity_event_once", pipeline=pipeline, kind=kind, text=text, about=about, subject=subject)


def _times(interval: Interval) -> dict[str, datetime]:
    return {"start": interval.start, "end": interval.end}
