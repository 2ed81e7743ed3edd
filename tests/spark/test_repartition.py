"""State in another number of buckets: nothing of it changes, whatever was left half-done before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_jobs.runtime import repartition as adapter
from spark_jobs.runtime.checkpoint import Entry
from spark_jobs.runtime.digest import MODULUS, digest
from spark_jobs.runtime.repartition import Unsupported, refusal, repartition, supported, unfinished
from tests.support.stateful import Counted

pytestmark = pytest.mark.spark
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Counted:
    made = Counted(spark, tmp_path, buckets=4)
    made.feed(6)
    made.run()
    return made


def total(counted: Counted, batch: int) -> tuple[int, int, int]:
    found = digest(counted.spark, counted.location, batch)
    return len(found), sum(rows for rows, _ in found.values()), sum(checksum for _, checksum in found.values()) % MODULUS


def begin(counted: Counted, buckets: int) -> None:
    """What a repartition leaves that was killed before it had written any state."""
    head = counted.checkpoint.head()
    entry = counted.checkpoint.entry(head.committed)
    assert entry is not None
    conf = {**entry.metadata["conf"], "spark.sql.shuffle.partitions": str(buckets)}
    assert counted.checkpoint.plan(head.planned + 1, Entry(metadata={**entry.metadata, "conf": conf}, ends=entry.ends))


def test_state_is_the_same_in_more_and_in_fewer_buckets_and_the_query_goes_on(counted: Counted) -> None:
    before = total(counted, 5)
    assert before[0] == 4 and before[1] == len(counted.expected())
    assert repartition(counted.spark, counted.location, 8) == 6
    assert repartition(counted.spark, counted.location, 8) == 6, "it is so already"
    assert repartition(counted.spark, counted.location, 2) == 7
    assert total(counted, 6) == (8, *before[1:])
    assert total(counted, 7) == (2, *before[1:])
    counted.feed(2)
    query = counted.run()
    assert query.lastProgress["stateOperators"][0]["numShufflePartitions"] == 2
    assert counted.counts() == counted.expected()


def test_what_was_begun_is_found_and_finished(counted: Counted) -> None:
    assert unfinished(counted.checkpoint) is None
    begin(counted, 8)
    assert unfinished(counted.checkpoint) == 8
    with pytest.raises(StreamingQueryException, match="UNFINISHED_REPARTITION"):
        counted.run()
    assert repartition(counted.spark, counted.location, 2) == 7, "first what was begun, then what is wanted now"
    assert counted.checkpoint.buckets(6) == 8 and counted.checkpoint.buckets(7) == 2
    assert unfinished(counted.checkpoint) is None
    counted.feed()
    counted.run()
    assert counted.counts() == counted.expected()


def test_one_that_died_before_its_commit_is_done_again(counted: Counted) -> None:
    before = total(counted, 5)
    repartition(counted.spark, counted.location, 8)
    folder = Path(counted.location.removeprefix("file:"))
    for name in ("6", ".6.crc"):
        (folder / "commits" / name).unlink()
    for bucket in (0, 5):  # two of its stores had not been written
        for file in (folder / "state" / "0" / str(bucket)).glob("*7.zip*"):
            file.unlink()
    assert unfinished(counted.checkpoint) == 8
    assert repartition(counted.spark, counted.location, 8) == 6
    assert total(counted, 6) == (8, *before[1:])
    counted.feed()
    counted.run()
    assert counted.counts() == counted.expected()


def test_a_batch_that_was_begun_has_to_be_finished_first(counted: Counted) -> None:
    entry = counted.checkpoint.entry(5)
    assert entry is not None and counted.checkpoint.plan(6, entry)
    assert not counted.checkpoint.plan(6, entry), "somebody else has begun it"
    assert unfinished(counted.checkpoint) is None
    with pytest.raises(RuntimeError, match=r"batch 6 of .* was begun and is not committed"):
        repartition(counted.spark, counted.location, 8)
    assert counted.checkpoint.last_planned() == 6


def test_what_cannot_be_repartitioned_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Counted(spark, tmp_path / "empty", buckets=2)
    assert "no committed batch yet" in (refusal(empty.spark, empty.location) or "")

    plain = Counted(spark, tmp_path / "hdfs", buckets=2, provider=HDFS)
    plain.feed()
    plain.run()
    with pytest.raises(Unsupported, match="HDFSBackedStateStoreProvider: only that of RocksDBStateStoreProvider can"):
        repartition(plain.spark, plain.location, 4)
    assert plain.checkpoint.head().settled

    limited = Counted(spark, tmp_path / "limit", buckets=2)
    limited.feed()
    limited.run(function=lambda frame: frame.limit(5))
    with pytest.raises(Unsupported, match="belongs to globalLimit, whose state Spark cannot repartition"):
        repartition(limited.spark, limited.location, 4)
    assert limited.checkpoint.head().settled

    class Older:
        version = "4.1.1"

    older: Any = Older()
    assert supported(counted.spark) is None
    assert supported(older) == "Spark 4.1.1 cannot repartition state: buckets can be changed with Spark 4.2 and newer"
    monkeypatch.setattr(adapter, "FIRST", (9, 0))
    with pytest.raises(Unsupported, match=r"can be changed with Spark 9\.0 and newer"):
        repartition(counted.spark, counted.location, 8)
