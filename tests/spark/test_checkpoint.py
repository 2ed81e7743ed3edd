"""What a driver reads in a checkpoint before it goes on from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runtime.checkpoint import Checkpoint, refuse_lost


@pytest.fixture
def checkpoint(spark: SparkSession, tmp_path: Path) -> Checkpoint:
    """Three batches begun, two committed, as Spark leaves them."""
    for log, batches in (("offsets", 3), ("commits", 2)):
        (tmp_path / log).mkdir()
        for batch in range(batches):
            (tmp_path / log / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{batch * 10},"1":7}}}}')
    return Checkpoint(spark, f"file:{tmp_path}")


@pytest.mark.spark
def test_what_was_begun_and_committed_and_how_far_it_read(checkpoint: Checkpoint) -> None:
    assert (checkpoint.last_planned(), checkpoint.last_commit(), checkpoint.committed()) == (2, 1, [0, 1])
    assert checkpoint.offsets(2) == {"t": {0: 20, 1: 7}}
    assert checkpoint.offsets(3) is None


@pytest.mark.spark
@pytest.mark.parametrize("reported", [None, 0, 1, 2])
def test_a_checkpoint_that_has_what_was_reported_is_used(checkpoint: Checkpoint, reported: int | None) -> None:
    refuse_lost(checkpoint, "p", "op", reported)


@pytest.mark.spark
def test_a_checkpoint_put_back_from_an_older_copy_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(RuntimeError, match=r"ends at batch 2, but batch 3 was reported.*spillway reset p op"):
        refuse_lost(checkpoint, "p", "op", 3)


@pytest.mark.spark
def test_a_checkpoint_that_was_removed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    gone = Checkpoint(spark, f"file:{tmp_path}/gone")
    refuse_lost(gone, "p", "op", None)
    with pytest.raises(RuntimeError, match="is empty, but batch 0 was reported"):
        refuse_lost(gone, "p", "op", 0)
