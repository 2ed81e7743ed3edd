"""Metrics out of the driver: one thread reads finished batches from the queries, one writes them to Postgres.

Neither can slow the stream: reading is a poll of what Spark keeps anyway, the buffer between them is bounded, and what does not
fit is dropped, oldest first, and counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extras import execute_values

from spark_jobs.runtime.database import Connection, connect, run
from spark_jobs.runtime.executors import COLUMNS as EXECUTOR
from spark_jobs.runtime.executors import ExecutorRows
from spark_jobs.runtime.progress import BATCH, EDGE, PARTITION, BatchRows, Positions, is_batch

log = logging.getLogger("spillway.metrics")

Progress = dict[str, Any]
Item = BatchRows | Positions | ExecutorRows


class ProgressReader:
    """New batches of one query, each once, in order.

    Spark keeps its newest progress reports. A trigger without data reports under the id of the batch to come, so a report is
    known by its id and timestamp together.
    """

    def __init__(self, query: Any) -> None:
        self._jsq = query._jsq
        self._seen: tuple[int, str] | None = None
        self._skipped: tuple[int, str] | None = None

    @property
    def seen(self) -> bool:
        """The query has reported something, beyond what was skipped."""
        return self._seen != self._skipped

    def skip(self) -> None:
        """Whatever it has reported so far is nobody's business."""
        last = self._jsq.lastProgress()
        if last is not None:
            self._seen = self._skipped = (int(last.batchId()), str(last.timestamp()))

    def new(self) -> list[Progress]:
        last = self._jsq.lastProgress()
        if last is None or (last.batchId(), last.timestamp()) == self._seen:
            return []
        fresh: list[Progress] = []
        reports = self._jsq.recentProgress()
        for i in range(len(reports) - 1, -1, -1):
            if (reports[i].batchId(), reports[i].timestamp()) == self._seen:
                break
            fresh.append(json.loads(reports[i].json()))
        fresh.reverse()
        if fresh:
            self._seen = (int(fresh[-1]["batchId"]), fresh[-1]["timestamp"])
        return [p for p in fresh if is_batch(p)]


class Buffer:
    """A bounded queue of rows to write; its bound is in rows. Thread-safe."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows, self._rows, self.dropped = max_rows, 0, 0
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()

    def put(self, item: Item) -> None:
        with self._lock:
            self._items.append(item)
            self._rows += item.count
            while self._rows > self._max_rows and len(self._items) > 1:
                oldest = self._items.popleft()
                self._rows -= oldest.count
                self.dropped += oldest.count

    def take(self, limit: int) -> list[Item]:
        with self._lock:
            taken: list[Item] = []
            while self._items and sum(t.count for t in taken) < limit:
                taken.append(self._items.popleft())
                self._rows -= taken[-1].count
            return taken

    def give_back(self, items: list[Item]) -> None:
        """Puts a batch that could not be written back in front, as far as it fits."""
        with self._lock:
            for item in reversed(items):
                if self._rows + item.count > self._max_rows:
                    self.dropped += item.count
                    continue
                self._items.appendleft(item)
                self._rows += item.count

    def __len__(self) -> int:
        return self._rows


def write(connection: Connection, items: list[Item]) -> None:
    """One transaction: rows of the same batches go, the new ones come, one multi-row insert per table."""
    newest = {(b.operator, b.batch_id): b for b in items if isinstance(b, BatchRows)}
    known = [p for p in items if isinstance(p, Positions) and (p.operator, p.batch_id) not in newest]
    ends = [row for b in newest.values() for row in b.partitions] + [row for p in known for row in p.partitions]
    keys: dict[tuple[str, str, int], list[int]] = {}
    for b in newest.values():
        pipeline, _, operator, checkpoint, *_ = b.batch
        keys.setdefault((pipeline, operator, checkpoint), []).append(b.batch_id)
    for p in known:
        keys.setdefault((p.pipeline, p.operator, p.checkpoint), []).append(p.batch_id)
    connection.autocommit = False
    try:
        with connection, connection.cursor() as cursor:
            for (pipeline, operator, checkpoint), ids in keys.items():
                for table in ("batch", "edge", "partition"):
                    run(
                        connection,
                        f"job_delete_{table}_metrics",
                        pipeline=pipeline,
                        operator=operator,
                        checkpoint=checkpoint,
                        batch_ids=ids,
                    )
            for table, columns, rows in (
                ("batch_metric", BATCH, [b.batch for b in newest.values()]),
                ("edge_metric", EDGE, [e for b in newest.values() for e in b.edges]),
                ("partition_metric", PARTITION, ends),
                ("executor_rows", EXECUTOR, [r for i in items if isinstance(i, ExecutorRows) for r in i.rows]),
            ):
                if rows:
                    execute_values(cursor, f"insert into spillway.{table} ({', '.join(columns)}) values %s", rows, page_size=1000)
    finally:
        if not connection.closed:
            connection.autocommit = True


class MetricsWriter(threading.Thread):
    def __init__(
        self, buffer: Buffer, name: str, flush_s: float, on_error: Callable[[str], None], timeout_s: float = 5.0
    ) -> None:
        super().__init__(name="metrics-writer", daemon=True)
        self._buffer, self._app, self._flush_s, self._on_error = buffer, name, flush_s, on_error
        self._timeout_s = timeout_s
        self._stopping = threading.Event()

    def run(self) -> None:
        connection: Connection | None = None
        wait = self._flush_s
        while True:
            stopping = self._stopping.wait(wait)
            batches = self._buffer.take(2000)
            try:
                while batches:
                    connection = connection or connect(self._app, timeout_s=self._timeout_s)
                    write(connection, batches)
                    batches = self._buffer.take(2000)
                wait = self._flush_s
            except psycopg2.Error as error:
                self._buffer.give_back(batches)
                if connection is not None:
                    connection.close()
                connection, wait = None, min(10.0, max(1.0, wait * 2))
                self._on_error(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
            if stopping:
                break
        if connection is not None:
            connection.close()

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes what is left if Postgres answers in time."""
        self._stopping.set()
        deadline = time.monotonic() + timeout_s
        self.join(max(0.0, deadline - time.monotonic()))
