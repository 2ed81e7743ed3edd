"""Copies of a checkpoint that follow it: which are kept, which can be made anew, and which state can be repeated at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.runtime import shadow
from spark_jobs.runtime.checkpoint import Checkpoint, location
from spark_jobs.runtime.clone import clone
from spark_jobs.runtime.digest import MODULUS, digest
from spark_jobs.runtime.follow import FollowFailed, Unlike
from spark_jobs.runtime.muting import Origin, origin, write_aligned, write_origin
from spark_jobs.runtime.shadow import SEALED, _clear_superseded, _forget_writers, _make_anew, align, sweep_late
from spark_jobs.runtime.site import State
from spark_jobs.runtime.state_files import snapshots
from spark_jobs.runtime.topics import marker_topic
from spark_jobs.runtime.writers import unrepeatable, unsteady
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


def _at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to be repeated, as on a copy of what has stopped."""
    ended = SimpleNamespace(actor=SimpleNamespace(rest=lambda **_: None))
    monkeypatch.setattr(shadow, "_follow_to_the_end", lambda *_: ended)
    monkeypatch.setattr(shadow, "follower_of", lambda *_: ended)
    monkeypatch.setattr(shadow, "_evicted", lambda _: False)  # these read files, and have no watermark


def test_who_aligns_a_copy_that_somebody_else_has_followed_up_makes_it_anew(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which keeps that one has repeated nobody knows any more."""
    original, copy = copies.at(0), copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    copy.remove("state")
    _at_rest(monkeypatch)
    aligned = align(copies.query(1), cast(Any, None))
    assert (aligned.repeated, aligned.running) == (2, None)
    assert digest(copies.spark, copy.location, 2) == digest(copies.spark, original.location, 2)


class Broke(Py4JJavaError):
    def __init__(self) -> None:
        """Without a JVM."""

    def __str__(self) -> str:
        return "it broke"


@pytest.mark.parametrize(
    ("shed", "error", "anew"),
    [
        (False, FollowFailed("it ended"), False),
        (True, FollowFailed("it ended"), True),
        (True, Broke(), True),
        (False, Unlike("rows were shed"), True),
    ],
    ids=["nothing was shed", "it fails", "Spark fails", "it says so"],
)
def test_what_may_have_repeated_by_other_keeps_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, shed: bool, error: Exception, anew: bool
) -> None:
    class Fake:
        def __init__(self, ends_by: Exception | None) -> None:
            self.shed, self._ends_by = shed, ends_by
            self.actor = SimpleNamespace(alive=True, query=None, hold=lambda: True, drained=lambda _: True)

        def reach_end(self) -> None:
            if self._ends_by is not None:
                raise self._ends_by

    monkeypatch.setattr(shadow.time, "sleep", lambda _: None)
    made: list[int] = []
    second = Fake(None)
    monkeypatch.setattr(shadow, "_make_anew", lambda _, number: made.append(number))
    monkeypatch.setattr(shadow, "follower_of", lambda *_: second)
    query: Any = SimpleNamespace(operator=SimpleNamespace(name="o"))
    first: Any = Fake(error)
    assert shadow._follow_to_the_end(query, cast(Any, None), first, 4) is second
    assert made == ([4] if anew else [])


def test_snapshots_that_come_late_are_removed_from_a_copy_that_was_made_anew(copies: Copies) -> None:
    """The upkeep of a query that had run there writes what it had left to write: a snapshot of another state."""
    original, copy = copies.at(0), copies.another(1)
    write_origin(copy, Origin(checkpoint=0, batch=0, plan=7))
    _make_anew(copies.query(1), 0)
    before = snapshots(copy)
    folder = Path(copy.location.removeprefix("file:")) / "state" / "0" / "0"
    late, later = folder / "2.zip", folder / "4.zip"
    assert not late.exists() and not later.exists()
    for file in (late, later):
        file.write_bytes(b"another state")
    sweep_late(copy)
    assert not late.exists() and later.exists(), "the later one is of whoever goes on from there"
    later.unlink()
    assert snapshots(copy) == before
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


def test_of_what_is_alike_the_first_row_is_kept_and_state_behind_it_depends_on_which_that_is(spark: SparkSession) -> None:
    stream = (
        spark.readStream.format("rate").load().withWatermark("timestamp", "10 seconds").withColumn("zone", F.col("value") % 3)
    )
    counted = stream.dropDuplicates(["value", "timestamp"]).groupBy(F.window("timestamp", "1 minute"), "zone").count()
    reason = unrepeatable(counted)
    assert reason is not None and "the row that comes first" in reason
    whole = stream.select("timestamp", "zone").dropDuplicates(["timestamp", "zone"])
    assert unrepeatable(whole.groupBy(F.window("timestamp", "1 minute")).count()) is None, "then all of the row is the key"
    reason = unrepeatable(stream.dropDuplicatesWithinWatermark(["value"]).select("value"))
    assert reason is not None and "DeduplicateWithinWatermark" in reason, "it expires by the row that came first"


def test_what_the_user_counts_himself_hides_nothing(spark: SparkSession) -> None:
    rows = spark.range(4).withColumn("key", F.col("id") % 2).observe("p.in:o", F.count("*"))
    chance = rows.withColumn("n", (F.rand() * 100).cast("int")).observe("mine", F.count("*"))
    assert "rand" in (unsteady(chance, ["p.in:o"]) or "").lower()
    last = rows.groupBy("key").agg(F.last("id").alias("x")).observe("mine", F.count("*"))
    assert "last(" in (unrepeatable(last, ["p.in:o"]) or "").lower()
    below = spark.range(4).withColumn("n", F.rand()).select("id").observe("p.in:o", F.count("*"))
    assert (unsteady(below, ["p.in:o"]), unrepeatable(below, ["p.in:o"])) == (None, None), "that is the edge's own"
