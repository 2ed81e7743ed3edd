"""Progress reports of Spark → metric rows."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.model.settings import Effective
from spillway.model.topology import Edge

from spark_jobs.runtime.deadletter import sweeps
from spark_jobs.runtime.progress import BATCH, EDGE, PARTITION, BatchContext, batch_rows, is_batch, lag, positions

EDGES = (
    Edge(name="a:op", topic="a", producer=None, consumer="op", partitions=2),
    Edge(name="ab:op", topic="ab", producer=None, consumer="op", partitions=1),
)
CONTEXT = BatchContext(
    pipeline="p",
    application="app",
    operator="op",
    checkpoint=3,
    generation=7,
    max_rows=500,
    edges=EDGES,
    effective={"ab:op": Effective(keep=0.0, decision_id=9, source="setting")},
)
PROGRESS: dict[str, Any] = {
    "batchId": 12,
    "timestamp": "2026-11-16T10:00:00.000Z",
    "batchDuration": 1500,
    "numInputRows": 30,
    "processedRowsPerSecond": 20.0,
    "durationMs": {"addBatch": 1200, "queryPlanning": 100, "latestOffset": 20, "walCommit": 15, "commitOffsets": 10},
    "stateOperators": [
        {"numRowsTotal": 5, "numRowsUpdated": 2, "memoryUsedBytes": 100, "commitTimeMs": 30},
        {"numRowsTotal": 1, "numRowsUpdated": 1, "memoryUsedBytes": 10, "commitTimeMs": 3},
    ],
    "observedMetrics": {
        "a:op": {
            "kept": 10, "bad": 2, "setting": {"keep": 0.5, "decision": 4, "source": 1},
            "total_ms": 10 * (1794823200000 - 500), "oldest_ms": 1794823200000 - 1000,
        },
        "ab:op": {"kept": 0, "bad": 0, "setting": None, "total_ms": None, "oldest_ms": None},
        "__sink": {"rows": 8},
    },
    "sources": [
        {
            "description": "KafkaV2[Subscribe[a]]", "numInputRows": 20,
            "startOffset": {"a": {"0": 5, "1": 0}},
            "endOffset": {"a": {"0": 15, "1": 10}},
            "latestOffset": {"a": {"0": 18, "1": 10}},
        },
        {
            "description": "KafkaV2[Subscribe[ab]]", "numInputRows": 10,
            "startOffset": None, "endOffset": {"ab": {"0": 10}}, "latestOffset": None,
        },
    ],
}  # fmt: skip


def named(columns: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def test_a_batch_becomes_one_row_per_table_and_thing() -> None:
    rows = batch_rows(PROGRESS, CONTEXT, metrics_dropped=3)
    batch = named(BATCH, rows.batch)
    assert batch["ended_at"] - batch["started_at"] == timedelta(milliseconds=1500)
    assert batch["started_at"] == datetime(2026, 11, 16, 10, tzinfo=UTC)
    assert (batch["input_rows"], batch["output_rows"], batch["state_rows"], batch["state_commit_ms"]) == (30, 8, 6, 33)
    assert (batch["max_rows"], batch["metrics_dropped"], batch["checkpoint"], batch["generation"]) == (500, 3, 3, 7)
    first, second = (named(EDGE, e) for e in rows.edges)
    assert (first["rows_read"], first["rows_kept"], first["rows_bad"], first["keep"]) == (20, 10, 2, 0.5)
    assert (first["keep_source"], first["decision_id"], first["lag_rows"]) == ("setting", 4, 3)
    assert (first["latency_mean_ms"], first["latency_max_ms"]) == (2000.0, 2500.0)
    assert (second["rows_read"], second["rows_kept"], second["keep"], second["decision_id"]) == (10, 0, 0.0, 9), "all rows shed"
    assert second["lag_rows"] is None and second["latency_mean_ms"] is None, "what was not said is not zero"
    assert [named(PARTITION, p)["start_offset"] for p in rows.partitions] == [5, 0, None]
    assert rows.count == 1 + 2 + 3


def test_a_topic_whose_name_contains_another_is_told_apart() -> None:
    assert lag(PROGRESS, "a") == 3
    assert lag(PROGRESS, "b") is None


def test_a_trigger_that_found_nothing_is_no_batch() -> None:
    idle = copy.deepcopy(PROGRESS)
    idle["durationMs"] = {"latestOffset": 3, "triggerExecution": 3}
    assert is_batch(PROGRESS) and not is_batch(idle)


def test_only_edges_with_garbage_are_swept_from_where_the_batch_began() -> None:
    found = sweeps(PROGRESS, EDGES)
    assert [s.edge.name for s in found] == ["a:op"]
    assert found[0].start == {0: 5, 1: 0} and found[0].end == {0: 15, 1: 10} and found[0].keep == 0.5
    first = copy.deepcopy(PROGRESS)
    first["sources"][0]["startOffset"] = None
    assert sweeps(first, EDGES)[0].start == {}, "the checkpoint knows where the first batch began"


def test_of_a_batch_that_was_never_reported_only_its_offsets_are_known() -> None:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    found = positions(8, {"a": {0: 5}}, {"a": {1: 4, 0: 9}, "unknown": {0: 1}}, at, CONTEXT)
    rows = [dict(zip(PARTITION, row, strict=True)) for row in found.partitions]
    assert [(r["edge"], r["partition"], r["start_offset"], r["end_offset"], r["latest_offset"]) for r in rows] == [
        ("a:op", 0, 5, 9, None),
        ("a:op", 1, None, 4, None),
    ]
    assert {(r["batch_id"], r["checkpoint"], r["ended_at"]) for r in rows} == {(8, 3, at)} and found.count == 2


def test_a_batch_without_rows_puts_out_none_and_one_that_nobody_counted_is_not_known() -> None:
    """The first batch on an empty topic has no task, and so nobody who counts."""
    uncounted = {**PROGRESS, "observedMetrics": {**PROGRESS["observedMetrics"], "__sink": {"rows": None}}}
    empty = {**uncounted, "numInputRows": 0}
    put_out = [dict(zip(BATCH, batch_rows(p, CONTEXT, 0).batch, strict=True))["output_rows"] for p in (uncounted, empty)]
    assert put_out == [None, 0]
