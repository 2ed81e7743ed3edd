"""What is, beside what should be: one value per pipeline, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spillway.model.topology import Pipeline
from spillway.store import settings
from spillway.store.connection import translate
from spillway.store.promises import accuracies
from spillway.store.queries import rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStatus:
    """Of a missing measurement nothing is known: None, never 0."""

    operator: str
    batch_id: int | None
    batch_ms: int | None
    batch_age_s: float | None
    rows_per_s: float | None
    state_rows: int | None
    accuracy: float | None
    floor: float | None
    priority: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeStatus:
    edge: str
    consumer: str
    keep_set: float
    """As the store has it."""
    keep: float | None
    """As the job last reported it."""
    keep_source: str | None
    decision_id: int | None
    kept_share: float | None
    lag_rows: int | None
    latency_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationStatus:
    application: str
    desired: str
    state: str
    """Of the newest driver: starting, running, stopping, stopped, failed, fenced; `silent` when its heartbeat is old."""
    generation: int
    version: int
    running_version: int | None
    node: str | None
    executors: int
    attempts: int
    heartbeat_age_s: float | None
    ui: str | None
    metrics_dropped: int
    detail: str
    operators: tuple[OperatorStatus, ...]
    edges: tuple[EdgeStatus, ...]

    @property
    def settled(self) -> bool:
        """It is as it was asked to be."""
        return self.state == "running" if self.desired == "running" else self.state in _DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    pipeline: str
    version: int
    desired: str
    applications: tuple[ApplicationStatus, ...]

    @property
    def settled(self) -> bool:
        """Every application is as it was asked to be."""
        return all(a.settled for a in self.applications)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_DOWN = ("stopped", "failed", "fenced", "never started")
_LIVE = ("starting", "running", "stopping")


def status(
    conn: Connection, pipeline: str | None = None, *, window_s: float = 30.0, fence_s: float = 15.0
) -> list[PipelineStatus]:
    """All pipelines, or one; rates and shares over the last `window_s`."""
    with translate():
        return _status(conn, pipeline, window_s, fence_s)


def _status(conn: Connection, only: str | None, window_s: float, fence_s: float) -> list[PipelineStatus]:
    applications = rows(conn, "status_applications")
    operators = {(r["pipeline"], r["operator"]): r for r in rows(conn, "status_operators", window_s=window_s)}
    edges = {(r["pipeline"], r["edge"]): r for r in rows(conn, "status_edges", window_s=window_s)}
    result = []
    for found in rows(conn, "pipelines_in_force"):
        if only not in (None, found["pipeline"]):
            continue
        spec = Pipeline.from_json(found["spec"])
        own_edges = _edges(spec, edges, settings.effective(spec, settings.current(conn, spec.name)))
        seen = accuracies(spec, {e.edge: e.kept_share if e.kept_share is not None else e.keep for e in own_edges})
        own = [_application(a, spec, operators, own_edges, seen, fence_s) for a in applications if a["pipeline"] == spec.name]
        result.append(
            PipelineStatus(pipeline=spec.name, version=found["version"], desired=found["desired"], applications=tuple(own))
        )
    return result


def _edges(spec: Pipeline, measured: dict[tuple[str, str], dict[str, Any]], keeps: dict[str, float]) -> list[EdgeStatus]:
    result = []
    for edge in spec.edges:
        last = measured.get((spec.name, edge.name), {})
        read, kept = last.get("rows_read"), last.get("rows_kept")
        result.append(
            EdgeStatus(
                edge=edge.name,
                consumer=edge.consumer,
                keep_set=keeps[edge.name],
                keep=last.get("keep"),
                keep_source=last.get("keep_source"),
                decision_id=last.get("decision_id"),
                kept_share=kept / read if read and kept is not None else None,
                lag_rows=last.get("lag_rows"),
                latency_ms=last.get("latency_mean_ms"),
            )
        )
    return result


def _application(
    found: dict[str, Any],
    spec: Pipeline,
    measured: dict[tuple[str, str], dict[str, Any]],
    edges: list[EdgeStatus],
    seen: dict[str, float | None],
    fence_s: float,
) -> ApplicationStatus:
    members = next((a.operators for a in spec.applications if a.name == found["application"]), ())
    state, age = found["state"] or "never started", found["beat_age_s"]
    if found["generation"] > (found["beat_generation"] or 0):
        state, age = "launched", None
    elif state in _LIVE and age is not None and age > fence_s:
        state = "silent"
    return ApplicationStatus(
        application=found["application"],
        desired=found["desired"],
        state=state,
        generation=found["generation"],
        version=found["version"],
        running_version=found["running_version"],
        node=found["node"],
        executors=found["executors"],
        attempts=found["attempts"],
        heartbeat_age_s=age,
        ui=found["ui"],
        metrics_dropped=found["metrics_dropped"] or 0,
        detail=found["detail"] or "",
        operators=tuple(_operator(spec, name, measured.get((spec.name, name), {}), seen[name]) for name in members),
        edges=tuple(e for e in edges if e.consumer in members),
    )


def _operator(spec: Pipeline, name: str, last: dict[str, Any], accuracy: float | None) -> OperatorStatus:
    query = spec.operator(name).query
    return OperatorStatus(
        operator=name,
        batch_id=last.get("batch_id"),
        batch_ms=last.get("batch_ms"),
        batch_age_s=last.get("age_s"),
        rows_per_s=last.get("rows_per_s"),
        state_rows=last.get("state_rows"),
        accuracy=accuracy,
        floor=query.min_accuracy if query else None,
        priority=query.priority if query else None,
    )
