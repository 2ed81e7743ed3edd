"""Copies of a checkpoint that follow it: which are kept, which can be made anew, and which state can be repeated at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.runtime.checkpoint import Checkpoint, location
from spark_jobs.runtime.digest import digest
from spark_jobs.runtime.muting import Origin, origin, write_aligned, write_origin
from spark_jobs.runtime.shadow import SEALED, _clear_superseded, _made_anew
from spark_jobs.runtime.site import State
from spark_jobs.runtime.writers import unrepeatable
from tests.support.stateful import Counted

pytestmark = pytest.mark.spark


class Copies:
    """An operator with four buckets; `0` is a checkpoint of it that has run."""

    def __init__(self, counted: Counted, folder: Path) -> None:
        self.spark, self.root = counted.spark, f"file:{folder}"
        shutil.copytree(counted.location.removeprefix("file:"), folder / "p" / "o" / "0")

    def query(self, number: int, buckets: int = 4) -> Any:
        site = SimpleNamespace(checkpoints=self.root, pipeline=SimpleNamespace(name="p"))
        state = State(checkpoint=number, buckets=buckets, max_rows=None)
        operator = SimpleNamespace(name="o")
        return SimpleNamespace(spark=self.spark, site=site, operator=operator, state=state, checkpoint=self.at(number))

    def at(self, number: int) -> Checkpoint:
        return Checkpoint(self.spark, location(self.root, "p", "o", number))

    def another(self, number: int) -> Checkpoint:
        folder = Path(self.root.removeprefix("file:")) / "p" / "o"
        shutil.copytree(folder / "0", folder / str(number))
        return self.at(number)


@pytest.fixture
def copies(spark: SparkSession, tmp_path: Path) -> Copies:
    made = Counted(spark, tmp_path, buckets=4)
    made.feed(3)
    made.run()
    return Copies(made, tmp_path / "checkpoints")


def test_what_nobody_goes_on_from_is_cleared_and_a_seal_stays(copies: Copies) -> None:
    """A driver that was thought dead could else begin the batch again that nobody can begin any more."""
    taken_over, given_up, running, beside = copies.at(0), copies.another(1), copies.another(2), copies.another(4)
    taken_over.write_text(SEALED, "3")
    write_origin(given_up, Origin(checkpoint=0, batch=2, plan=1))
    write_origin(running, Origin(checkpoint=0, batch=2, plan=2))
    write_aligned(running, 2)
    _clear_superseded(copies.query(4), 2)
    assert not taken_over.exists("state") and taken_over.exists("offsets", "2") and taken_over.read_text(SEALED) == "3"
    assert not given_up.exists()
    assert running.exists("state") and beside.exists("state")


def test_a_copy_that_cannot_follow_any_more_is_made_anew_where_its_original_stopped(copies: Copies) -> None:
    original, copy = copies.at(0), copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    copy.remove("state")
    entry = original.entry(original.last_commit())
    assert entry is not None and original.plan(original.last_commit() + 1, entry), "sealed"
    assert _made_anew(copies.query(1), 0)
    assert origin(copy) == Origin(checkpoint=0, batch=2, plan=7)
    assert copy.head().committed == copy.head().planned == original.last_commit() == 2, "without the seal"
    assert digest(copies.spark, copy.location, 2) == digest(copies.spark, original.location, 2)


def test_one_with_other_buckets_is_not(copies: Copies) -> None:
    copy = copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    assert not _made_anew(copies.query(1, buckets=8), 0)
    assert copy.exists("state")


def test_which_state_is_the_same_when_the_same_rows_come_in_other_batches(spark: SparkSession) -> None:
    rows = spark.range(4).withColumn("key", F.col("id") % 2).withColumn("fare", F.col("id") / 3)
    grouped = rows.groupBy("key")
    assert unrepeatable(grouped.agg(F.count("*").alias("n"), F.max("id"))) is None
    assert unrepeatable(grouped.agg(F.sum("fare").alias("total"))) == "total may depend on the order of rows"
    assert unrepeatable(grouped.agg(F.struct(F.avg("fare")).alias("s"))) == "s may depend on the order of rows"
    unsteady = unrepeatable(rows.select((F.col("id") + F.round(F.rand()).cast("long")).alias("n")))
    assert unsteady is not None and "rand" in unsteady.lower()
