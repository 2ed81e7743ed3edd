"""A query's progress report → the rows of the metric tables. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.model.settings import SOURCES, Effective
from spillway.model.topology import Edge

SINK = "__sink"
"""Name under which the sink's row count is observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """What the progress does not say about the batch it reports."""

    pipeline: str
    application: str
    operator: str
    checkpoint: int
    generation: int
    max_rows: int
    edges: tuple[Edge, ...]
    effective: dict[str, Effective]
    """What was in force when the progress was read: used for an edge all of whose rows were shed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """Rows of one finished batch, in the column order of `BATCH`, `EDGE` and `PARTITION`."""

    operator: str
    batch_id: int
    batch: tuple[Any, ...]
    edges: tuple[tuple[Any, ...], ...]
    partitions: tuple[tuple[Any, ...], ...]

    @property
    def count(self) -> int:
        return 1 + len(self.edges) + len(self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Where a committed batch ended, when nothing else of it is known any more; in the column order of `PARTITION`."""

    pipeline: str
    operator: str
    checkpoint: int
    batch_id: int
    partitions: tuple[tuple[Any, ...], ...]

    @property
    def count(self) -> int:
        return len(self.partitions)


BATCH = [
    "pipeline",
    "application",
    "operator",
    "checkpoint",
    "batch_id",
    "generation",
    "started_at",
    "ended_at",
    "input_rows",
    "output_rows",
    "rows_per_s",
    "batch_ms",
    "add_batch_ms",
    "planning_ms",
    "offsets_ms",
    "wal_ms",
    "commit_ms",
    "state_rows",
    "state_updated",
    "state_bytes",
    "state_commit_ms",
    "max_rows",
    "metrics_dropped",
]
EDGE = [
    "pipeline",
    "operator",
    "edge",
    "checkpoint",
    "batch_id",
    "ended_at",
    "rows_read",
    "rows_kept",
    "rows_bad",
    "keep",
    "keep_source",
    "decision_id",
    "lag_rows",
    "latency_mean_ms",
    "latency_max_ms",
]
PARTITION = [
    "pipeline",
    "operator",
    "edge",
    "checkpoint",
    "batch_id",
    "ended_at",
    "partition",
    "start_offset",
    "end_offset",
    "latest_offset",
]


def positions(
    batch_id: int,
    begin: dict[str, dict[int, int]],
    end: dict[str, dict[int, int]],
    ended_at: datetime,
    context: BatchContext,
) -> Positions:
    """The offsets of one batch as its checkpoint has them."""
    rows = [
        (
            context.pipeline,
            context.operator,
            edge.name,
            context.checkpoint,
            batch_id,
            ended_at,
            partition,
            begin.get(edge.topic, {}).get(partition),
            offset,
            None,
        )
        for edge in context.edges
        for partition, offset in sorted(end.get(edge.topic, {}).items())
    ]
    return Positions(
        pipeline=context.pipeline,
        operator=context.operator,
        checkpoint=context.checkpoint,
        batch_id=batch_id,
        partitions=tuple(rows),
    )


def is_batch(progress: dict[str, Any]) -> bool:
    """A progress is also reported when a trigger found nothing to do; only one with an `addBatch` phase ran a batch."""
    return "addBatch" in progress.get("durationMs", {})


def offsets(source: dict[str, Any], which: str, topic: str) -> dict[int, int]:
    """Offsets per partition of one topic; empty when the source has not reported them."""
    value = source.get(which)
    if not isinstance(value, dict):
        return {}
    return {int(partition): int(offset) for partition, offset in value.get(topic, {}).items()}


def ends(progress: dict[str, Any], edges: tuple[Edge, ...]) -> dict[str, dict[int, int]]:
    """Where a batch ended, by topic and partition."""
    found = {}
    for edge in edges:
        source = source_of(progress, edge.topic)
        if source is not None and (end := offsets(source, "endOffset", edge.topic)):
            found[edge.topic] = end
    return found


def source_of(progress: dict[str, Any], topic: str) -> dict[str, Any] | None:
    return next((s for s in progress.get("sources", []) if f"[{topic}]" in s.get("description", "")), None)


def lag(progress: dict[str, Any], topic: str) -> int | None:
    """Rows behind the newest offset after this batch; None when the source did not say."""
    source = source_of(progress, topic)
    if source is None:
        return None
    end, latest = offsets(source, "endOffset", topic), offsets(source, "latestOffset", topic)
    return sum(max(0, latest[p] - end.get(p, 0)) for p in latest) if latest else None


def _put_out(progress: dict[str, Any], sink: dict[str, Any]) -> int | None:
    """Rows that were written; None when nobody counted them. A batch without rows has no task that could count: it wrote none."""
    if sink.get("rows") is not None:
        return int(sink["rows"])
    return None if int(progress["numInputRows"]) else 0


def batch_rows(progress: dict[str, Any], context: BatchContext, metrics_dropped: int) -> BatchRows:
    """Rows for one batch. An edge whose rows all went has no observed keep: then the one in force is reported.

    The latency runs from Kafka's timestamp to the end of the batch, when its rows are committed downstream.
    """
    duration, batch_id = progress["durationMs"], int(progress["batchId"])
    started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).astimezone(UTC)
    batch_ms = int(progress.get("batchDuration", duration.get("triggerExecution", 0)))
    ended = started + timedelta(milliseconds=batch_ms)
    ended_ms = ended.timestamp() * 1000
    state = progress.get("stateOperators", [])
    observed = progress.get("observedMetrics", {})
    sink = observed.get(SINK) or {}
    batch = (
        context.pipeline,
        context.application,
        context.operator,
        context.checkpoint,
        batch_id,
        context.generation,
        started,
        ended,
        int(progress["numInputRows"]),
        _put_out(progress, sink),
        progress.get("processedRowsPerSecond"),
        batch_ms,
        duration.get("addBatch"),
        duration.get("queryPlanning"),
        duration.get("latestOffset"),
        duration.get("walCommit"),
        duration.get("commitOffsets"),
        sum(s["numRowsTotal"] for s in state) if state else None,
        sum(s["numRowsUpdated"] for s in state) if state else None,
        sum(s["memoryUsedBytes"] for s in state) if state else None,
        sum(s.get("commitTimeMs", 0) for s in state) if state else None,
        context.max_rows,
        metrics_dropped,
    )
    edges, partitions = [], []
    for edge in context.edges:
        source = source_of(progress, edge.topic)
        if source is None:
            continue
        seen = observed.get(edge.name) or {}
        effective = context.effective.get(edge.name, Effective())
        setting, kept = seen.get("setting") or {}, int(seen.get("kept") or 0)
        keep, decision, origin = setting.get("keep"), setting.get("decision"), setting.get("source")
        edges.append(
            (
                context.pipeline,
                context.operator,
                edge.name,
                context.checkpoint,
                batch_id,
                ended,
                int(source.get("numInputRows", 0)),
                kept,
                int(seen.get("bad") or 0),
                effective.keep if keep is None else float(keep),
                effective.source if origin is None else SOURCES[int(origin)],
                effective.decision_id if decision is None else (int(decision) or None),
                lag(progress, edge.topic),
                max(0.0, ended_ms - float(seen["total_ms"]) / kept) if kept else None,
                None if seen.get("oldest_ms") is None else max(0.0, ended_ms - float(seen["oldest_ms"])),
            )
        )
        start, latest = offsets(source, "startOffset", edge.topic), offsets(source, "latestOffset", edge.topic)
        for partition, end in sorted(offsets(source, "endOffset", edge.topic).items()):
            partitions.append(
                (
                    context.pipeline,
                    context.operator,
                    edge.name,
                    context.checkpoint,
                    batch_id,
                    ended,
                    partition,
                    start.get(partition),
                    end,
                    latest.get(partition),
                )
            )
    return BatchRows(operator=context.operator, batch_id=batch_id, batch=batch, edges=tuple(edges), partitions=tuple(partitions))
