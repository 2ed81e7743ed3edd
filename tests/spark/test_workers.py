"""Python workers of an executor, between two tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.workers import WHOLE


def of_workers(spark: SparkSession) -> dict[int, tuple[int, int]]:
    """By process: how many objects the next collection leaves out, and how many have been left over as garbage."""

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        import gc
        import os

        import pyarrow as pa

        class Cycle:
            def __init__(self) -> None:
                self.me = self

        for _ in batches:
            pass
        Cycle()
        frozen = gc.get_freeze_count()
        gc.unfreeze()  # what is left out is in no list
        there = sum(type(o).__name__ == "Cycle" for o in gc.get_objects())
        columns = [pa.array([n], pa.int64()) for n in (os.getpid(), frozen, there)]
        yield pa.RecordBatch.from_arrays(columns, ["pid", "frozen", "cycles"])

    rows = spark.range(2, numPartitions=2).mapInArrow(part, "pid bigint, frozen bigint, cycles bigint").collect()
    return {row.pid: (row.frozen, row.cycles) for row in rows}


def test_a_worker_looks_only_at_what_is_new_and_leaves_no_garbage(spark: SparkSession) -> None:
    before = of_workers(spark)
    again = of_workers(spark)
    stayed = [again[pid] for pid in again if pid in before]
    assert stayed, "no worker was used twice"
    assert all(frozen > 10_000 for frozen, _ in stayed)
    assert all(cycles <= 1 for _, cycles in stayed), "what a task left behind is still there at the next"


def test_now_and_then_everything_is_looked_at(spark: SparkSession) -> None:
    import gc

    from spark_jobs.workers import Collector

    class Cycle:
        def __init__(self) -> None:
            self.me: Cycle | None = self

    def count() -> int:
        return sum(type(o) is Cycle for o in gc.get_objects())

    collector, kept = Collector(), Cycle()
    try:
        collector.collect()
        frozen = gc.get_freeze_count()
        assert frozen > 0
        del kept  # garbage from now on, but left out
        found = [collector.collect() for _ in range(WHOLE)]
        assert found[-1] > 0, "the last one looks at everything again"
    finally:
        gc.unfreeze()
    assert count() == 0
