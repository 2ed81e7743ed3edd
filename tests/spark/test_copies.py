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
from spark_jobs.runtime.clone import clone
from spark_jobs.runtime.digest import MODULUS, digest
from spark_jobs.runtime.muting import Origin, origin, write_aligned, write_origin
from spark_jobs.runtime.shadow import SEALED, _clear_superseded, _forget_writers, _make_anew
from spark_jobs.runtime.site import State
from spark_jobs.runtime.topics import marker_topic
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


def test_markers_stay_as_long_as_somebody_may_look_for_them(copies: Copies) -> None:
    taken_over, given_up, before = copies.at(0), copies.another(1), copies.another(3)
    running, unknown = copies.another(4), copies.another(5)
    for sealed in (taken_over, before):
        sealed.write_text(SEALED, "3")
    write_origin(given_up, Origin(checkpoint=0, batch=2, plan=1))
    write_origin(running, Origin(checkpoint=3, batch=2, plan=2))
    write_aligned(running, 2)
    assert unknown.exists()
    there = ["words", *(marker_topic("p", name, number, of) for name in "oq" for number in range(8) for of in ("a:o", "dead"))]
    removed: list[list[str]] = []
    topics: Any = SimpleNamespace(partitions=lambda: dict.fromkeys(there, 1), remove=removed.append)
    _forget_writers(copies.query(7), topics, 4)
    gone = [f"__spillway.p.o.{number}.{of}" for number in (0, 1, 2, 6) for of in ("a-o", "dead")]
    assert removed == [gone], "sealed, given up, and two without a checkpoint; 3 is what the running one took over from"
    there[:] = [name for name in there if name not in gone]
    _forget_writers(copies.query(7), topics, 4)
    assert len(removed) == 1


def test_a_copy_that_cannot_follow_any_more_is_made_anew_where_its_original_stopped(copies: Copies) -> None:
    original, copy = copies.at(0), copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    copy.remove("state")
    entry = original.entry(original.last_commit())
    assert entry is not None and original.plan(original.last_commit() + 1, entry), "sealed"
    _make_anew(copies.query(1), 0)
    assert origin(copy) == Origin(checkpoint=0, batch=2, plan=7)
    assert copy.head().committed == copy.head().planned == original.last_commit() == 2, "without the seal"
    assert digest(copies.spark, copy.location, 2) == digest(copies.spark, original.location, 2)


def test_one_with_other_buckets_gets_them_again(copies: Copies) -> None:
    original, copy = copies.at(0), copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    _make_anew(copies.query(1, buckets=8), 0)
    last = copy.last_commit()
    assert (last, copy.buckets(last)) == (3, 8)
    before, after = digest(copies.spark, original.location, 2), digest(copies.spark, copy.location, last)
    assert (len(before), len(after)) == (4, 8)
    for number in (0, 1):  # rows, checksum
        assert sum(b[number] for b in before.values()) % MODULUS == sum(b[number] for b in after.values()) % MODULUS


def test_a_copy_that_was_cut_short_has_no_committed_batch(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever finds it would go on from a batch whose state is not there."""
    copied: list[tuple[str, ...]] = []
    copy_to = Checkpoint.copy_to

    def dies(self: Checkpoint, place: str, *parts: str) -> None:
        if parts[0] == "commits":
            raise KeyboardInterrupt
        copied.append(parts)
        copy_to(self, place, *parts)

    monkeypatch.setattr(Checkpoint, "copy_to", dies)
    with pytest.raises(KeyboardInterrupt):
        clone(copies.at(0), copies.at(1))
    assert copies.at(1).last_commit() == -1
    assert {"state", "offsets"} <= {parts[0] for parts in copied}, "the state is there before"


def test_which_state_is_the_same_when_the_same_rows_come_in_other_batches(spark: SparkSession) -> None:
    rows = spark.range(4).withColumn("key", F.col("id") % 2).withColumn("fare", F.col("id") / 3)
    grouped = rows.groupBy("key")
    assert unrepeatable(grouped.agg(F.count("*").alias("n"), F.max("id"), F.sum("id"))) is None
    assert unrepeatable(rows.select("key").distinct()) is None
    assert unrepeatable(grouped.agg(F.sum("fare").alias("total"))) == "total may depend on the order of rows"
    assert unrepeatable(grouped.agg(F.struct(F.avg("fare")).alias("s"))) == "s may depend on the order of rows"
    unsteady = unrepeatable(rows.select((F.col("id") + F.round(F.rand()).cast("long")).alias("n")))
    assert unsteady is not None and "rand" in unsteady.lower()


@pytest.mark.parametrize(
    ("aggregate", "named"),
    [
        ("last(id)", "last(id)"),
        ("first(id)", "first(id)"),
        ("collect_list(id)", "collect_list(id)"),
        ("percentile_approx(id, 0.5)", "percentile_approx(id"),
        ("cast(round(sum(fare)) as long)", "sum(fare)"),
        ("cast(max(current_timestamp()) as long)", "current_timestamp()"),
    ],
    ids=["last", "first", "list", "percentile", "a sum of fractions made whole", "time"],
)
def test_what_depends_on_the_order_of_rows_or_on_the_time_is_not_followed(
    spark: SparkSession, aggregate: Any, named: str
) -> None:
    rows = spark.range(4).withColumn("key", F.col("id") % 2).withColumn("fare", F.col("id") / 3)
    reason = unrepeatable(rows.groupBy("key").agg(F.expr(aggregate).alias("x")))
    assert reason is not None and named in reason.replace("`", "").lower(), reason


def test_state_that_nobody_knows_is_not_followed(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withColumn("key", F.col("value") % 2)

    def each(key: Any, frames: Any, state: Any) -> Any:
        yield from ()

    by_hand = stream.groupBy("key").applyInPandasWithState(each, "n long", "n long", "update", "ProcessingTimeTimeout")
    timed = stream.withWatermark("timestamp", "10 seconds")
    joined = timed.alias("a").join(timed.alias("b"), F.expr("a.value = b.value and a.timestamp = b.timestamp")).select("a.value")
    by_clock = stream.groupBy(F.window(F.current_timestamp(), "10 seconds")).count()
    for frame, named in ((by_hand, "FlatMapGroupsInPandasWithState"), (joined, "Join"), (by_clock, "current_timestamp")):
        reason = unrepeatable(frame)
        assert reason is not None and named in reason, reason
    assert unrepeatable(timed.groupBy(F.window("timestamp", "10 seconds"), "key").count()) is None
    assert unrepeatable(timed.dropDuplicates(["value"]).select("value")) is None
