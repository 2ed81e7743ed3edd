"""The buffer between the stream and Postgres is bounded, and what it drops is counted."""

from __future__ import annotations

from typing import Any

from spark_jobs.runtime.metrics import Buffer, ProgressReader
from spark_jobs.runtime.progress import BatchRows


def batch(number: int, edges: int = 3) -> BatchRows:
    return BatchRows(operator="op", batch_id=number, batch=(), edges=((),) * edges, partitions=())


def test_oldest_rows_go_first_and_are_counted() -> None:
    buffer = Buffer(max_rows=10)
    for number in range(5):
        buffer.put(batch(number))
    assert len(buffer) <= 10 and buffer.dropped == 12
    assert [b.batch_id for b in buffer.take(100)] == [3, 4]
    assert len(buffer) == 0


def test_what_could_not_be_written_comes_back_in_order_as_far_as_it_fits() -> None:
    buffer = Buffer(max_rows=12)
    for number in range(3):
        buffer.put(batch(number))
    taken = buffer.take(8)
    assert [b.batch_id for b in taken] == [0, 1]
    buffer.give_back(taken)
    assert [b.batch_id for b in buffer.take(100)] == [0, 1, 2] and buffer.dropped == 0
    for number in range(3):
        buffer.put(batch(number))
    taken = buffer.take(8)
    buffer.put(batch(3))
    buffer.give_back(taken)
    assert [b.batch_id for b in buffer.take(100)] == [1, 2, 3] and buffer.dropped == 4


class _Report:
    def __init__(self, batch_id: int, stamp: str, ran: bool) -> None:
        self._id, self._stamp, self._ran = batch_id, stamp, ran

    def batchId(self) -> int:
        return self._id

    def timestamp(self) -> str:
        return self._stamp

    def json(self) -> str:
        phases = '{"addBatch": 1}' if self._ran else "{}"
        return f'{{"batchId": {self._id}, "timestamp": "{self._stamp}", "durationMs": {phases}}}'


class _Query:
    """What a reader uses of a query: Spark's recent progress."""

    def __init__(self) -> None:
        self.reports: list[_Report] = []
        self._jsq: Any = self

    def lastProgress(self) -> _Report | None:
        return self.reports[-1] if self.reports else None

    def recentProgress(self) -> list[_Report]:
        return self.reports[-4:]


def test_every_batch_is_read_once_also_when_an_idle_report_carries_its_id() -> None:
    query = _Query()
    reader = ProgressReader(query)
    assert reader.new() == []
    query.reports += [_Report(0, "t0", True), _Report(1, "t1", False)]
    assert [p["batchId"] for p in reader.new()] == [0]
    assert reader.new() == []
    query.reports += [_Report(1, "t2", True), _Report(2, "t3", True)]
    assert [p["batchId"] for p in reader.new()] == [1, 2]
    query.reports += [_Report(n, f"t{n + 1}", True) for n in range(3, 9)]
    assert [p["batchId"] for p in reader.new()] == [5, 6, 7, 8], "what Spark no longer keeps is gone; nothing comes twice"


def test_reports_from_before_a_query_took_over_are_nobodys_business() -> None:
    query = _Query()
    query.reports = [_Report(n, f"t{n}", True) for n in range(3)]
    reader = ProgressReader(query)
    reader.skip()
    assert not reader.seen and reader.new() == []
    query.reports.append(_Report(3, "t3", True))
    assert [p["batchId"] for p in reader.new()] == [3] and reader.seen


def test_a_query_that_has_reported_nothing_has_nothing_to_skip() -> None:
    query = _Query()
    reader = ProgressReader(query)
    reader.skip()
    assert not reader.seen
    query.reports.append(_Report(0, "t0", True))
    assert [p["batchId"] for p in reader.new()] == [0] and reader.seen
