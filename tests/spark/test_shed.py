"""The shedder's plan and its arithmetic, on a real Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import Effective
from spillway.model.topology import Application, Edge, Kind, Operator, Pipeline, Shed

from spark_jobs.runtime.plan import shed_and_parse, to_records
from spark_jobs.runtime.shed import encode, property_name, shed
from spark_jobs.runtime.writers import WrittenBy, arrange, unsteady, written_by

ROWS = 40_000


def raw(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Kafka's columns, without Kafka."""
    return spark.range(rows).select(
        F.col("id").cast("string").cast("binary").alias("key"),
        F.to_json(F.struct(F.col("id").alias("n"))).cast("binary").alias("value"),
        F.lit("t").alias("topic"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )


def edge(shed_by: Shed = Shed.RANDOM, utility: str | None = None, producer: str | None = None) -> Edge:
    return Edge(name="t:op", topic="t", producer=producer, consumer="op", partitions=4, shed=shed_by, utility=utility)


def pipeline(schema: str | None = "n bigint not null", *, lineage: bool = True, producer: str | None = None) -> Pipeline:
    return Pipeline(
        name="p",
        lineage=lineage,
        operators=(Operator(name="op", function="m:f", kind=Kind.STATELESS, schema=schema),),
        edges=(edge(producer=producer),),
        applications=(Application(name="op", operators=("op",)),),
    )


@pytest.fixture
def keep(spark: SparkSession) -> Iterator[Any]:
    name = property_name("p", "t:op")
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]

    def set_keep(value: float, decision: int = 1) -> None:
        system.setProperty(name, encode(Effective(keep=value, decision_id=decision, source="setting")))

    yield set_keep
    system.clearProperty(name)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Kafka's columns as a stream of files."""
    schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.spark
def test_the_keep_is_folded_on_the_driver_for_every_batch(spark: SparkSession, tmp_path: Path, keep: Any) -> None:
    """Each batch's plan holds a LocalTableScan under the subquery and no call into the JVM's properties; the value changes."""
    source = tmp_path / "in"
    frame = raw(spark, 4000).drop("timestampType")
    frame.write.parquet(str(source))
    shed_frame = shed(spark, stream(spark, source), "p", edge()).observe("seen", F.count(F.lit(1)).alias("kept"))
    keep(0.5)
    query = shed_frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    try:
        query.processAllAvailable()
        plan = query._jsq.explainInternal(False)
        assert "LocalTableScan" in plan and "Subquery" in plan, plan
        assert "java_method" not in plan and "getProperty" not in plan and "System" not in plan, plan
        keep(0.0)
        frame.write.mode("append").parquet(str(source))
        query.processAllAvailable()
        keep(1.0)
        frame.write.mode("append").parquet(str(source))
        query.processAllAvailable()
        done = [p for p in query.recentProgress if p["numInputRows"]]
        read = [p["numInputRows"] for p in done]
        kept = [p["observedMetrics"]["seen"]["kept"] for p in done]
        third = len(done) // 3
        assert 0.4 < sum(kept[:third]) / sum(read[:third]) < 0.6
        assert sum(kept[third : 2 * third]) == 0
        assert kept[2 * third :] == read[2 * third :]
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("by", [Shed.RANDOM, Shed.BY_KEY])
def test_the_kept_share_is_the_keep(spark: SparkSession, keep: Any, value: float, by: Shed) -> None:
    keep(value)
    kept = shed(spark, raw(spark), "p", edge(by)).count()
    assert abs(kept / ROWS - value) <= 0.01


@pytest.mark.spark
def test_shedding_is_the_same_every_time_and_nested(spark: SparkSession, keep: Any) -> None:
    kept = {}
    for value in (0.3, 0.6):
        keep(value)
        kept[value] = {r["offset"] for r in shed(spark, raw(spark, 5000), "p", edge()).select("offset").collect()}
        again = {r["offset"] for r in shed(spark, raw(spark, 5000), "p", edge()).select("offset").collect()}
        assert kept[value] == again
    assert kept[0.3] < kept[0.6], "a higher keep keeps what a lower one kept"


@pytest.mark.spark
def test_by_key_keeps_or_drops_whole_keys(spark: SparkSession, keep: Any) -> None:
    keep(0.5)
    frame = raw(spark).withColumn("key", (F.col("offset") % 100).cast("string").cast("binary"))
    rows = shed(spark, frame, "p", edge(Shed.BY_KEY)).groupBy("key").count().collect()
    assert 30 < len(rows) < 70 and all(r["count"] == ROWS // 100 for r in rows)


@pytest.mark.spark
def test_rows_without_a_key_are_keys_of_their_own(spark: SparkSession, keep: Any) -> None:
    keep(0.5)
    kept = shed(spark, raw(spark).withColumn("key", F.lit(None).cast("binary")), "p", edge(Shed.BY_KEY)).count()
    assert abs(kept / ROWS - 0.5) <= 0.01


@pytest.mark.spark
@pytest.mark.parametrize("by", [Shed.RANDOM, Shed.BY_KEY])
def test_what_one_edge_drops_says_nothing_about_the_next(spark: SparkSession, by: Shed) -> None:
    """Both edges see the same keys, partitions and offsets; keeps multiply all the same."""
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    first, second = edge(by), replace(edge(by), name="op:next", topic="p.op.next", producer="op", consumer="next")
    names = [property_name("p", e.name) for e in (first, second)]
    for name, value in zip(names, (0.5, 0.4), strict=True):
        system.setProperty(name, encode(Effective(keep=value, decision_id=1, source="setting")))
    try:
        once = shed(spark, raw(spark), "p", first).drop("__v").withColumn("topic", F.lit(second.topic))
        assert abs(shed(spark, once, "p", second).count() / ROWS - 0.2) <= 0.01
    finally:
        for name in names:
            system.clearProperty(name)


@pytest.mark.spark
def test_edges_into_one_consumer_keep_the_same_keys(spark: SparkSession, keep: Any) -> None:
    """A join finds the partner of every row that was kept."""
    keep(0.5)
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    other = replace(edge(Shed.BY_KEY), name="u:op", topic="u")
    system.setProperty(property_name("p", "u:op"), encode(Effective(keep=0.5, decision_id=1, source="setting")))
    try:
        left, right = (
            {bytes(r["key"]) for r in shed(spark, raw(spark, 4000), "p", e).select("key").collect()}
            for e in (edge(Shed.BY_KEY), other)
        )
        assert left == right and 1800 < len(left) < 2200
    finally:
        system.clearProperty(property_name("p", "u:op"))


@pytest.mark.spark
def test_an_edge_never_set_keeps_everything(spark: SparkSession) -> None:
    assert shed(spark, raw(spark, 1000), "p", edge()).count() == 1000


GARBAGE = [b"", b"no json", b'{"n": 1', b'{"n": "x"}', b"{}", b"\xff\x00", b"[]", b"null", None]


@pytest.mark.spark
def test_garbage_is_counted_and_left_out_and_lineage_names_the_source(spark: SparkSession) -> None:
    p = pipeline()
    good = raw(spark, 10)
    bad = spark.createDataFrame([(g,) for g in GARBAGE], "value binary").select(
        F.lit(None).cast("binary").alias("key"), "value", F.lit("t").alias("topic"), F.lit(0).alias("partition"),
        F.lit(99).cast("bigint").alias("offset"), F.current_timestamp().alias("timestamp"), F.lit(0).alias("timestampType"),
    )  # fmt: skip
    rows = shed_and_parse(spark, p, p.operators[0], p.edges[0], good.union(bad)).collect()
    assert sorted(r["n"] for r in rows) == list(range(10))
    assert {r["lineage"] for r in rows} == {f"t-{n % 4}-{n}" for n in range(10)}


@pytest.mark.spark
def test_a_batch_reports_its_counts_and_parses_each_row_once_without_a_second_copy(
    spark: SparkSession, tmp_path: Path, keep: Any
) -> None:
    """Between the reader and the user's own steps rows are copied once, by the parser, which no query can do without."""
    keep(1.0, decision=7)
    values = [b'{"n": %d}' % n for n in range(20)] + [g for g in GARBAGE if g is not None]
    spark.createDataFrame([(v, n) for n, v in enumerate(values)], "value binary, offset bigint").select(
        F.lit(b"k").alias("key"), "value", F.lit("t").alias("topic"), F.lit(0).alias("partition"), "offset",
        F.timestamp_millis(F.lit(1_700_000_000_000) + F.col("offset")).alias("timestamp"),
    ).write.parquet(str(tmp_path / "in"))  # fmt: skip
    p = pipeline(lineage=False)
    seen = shed_and_parse(spark, p, p.operators[0], p.edges[0], stream(spark, tmp_path / "in"))
    analyzed: str = seen._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
    assert analyzed.count("scalar-subquery#") == 1, "what is reported must be what was shed by"
    query = (
        seen.where("n % 2 = 0")
        .groupBy("n")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .start()
    )
    try:
        query.processAllAvailable()
        reports = [r["observedMetrics"]["t:op"] for r in query.recentProgress if r["numInputRows"]]
        plan = query._jsq.explainInternal(False)
    finally:
        query.stop()
    assert sum(r["kept"] for r in reports) == len(values)
    assert sum(r["bad"] for r in reports) == len(GARBAGE) - 1
    assert reports[0]["setting"] == {"keep": 1.0, "decision": 7, "source": 1}
    assert min(r["oldest_ms"] for r in reports) == 1_700_000_000_000
    expected = sum(1_700_000_000_000 + n for n in range(len(values)))
    assert sum(r["total_ms"] for r in reports) == pytest.approx(expected, rel=1e-12)
    assert plan.count("from_json") == 1, plan
    ours = plan[plan.index("CollectMetrics") :]
    to_the_shedder = ours[: ours.index("Filter (")]
    assert to_the_shedder.count("Project [") == 1 and "*(" not in to_the_shedder, plan


@pytest.mark.spark
def test_records_are_json_without_the_hidden_column(spark: SparkSession) -> None:
    p = pipeline()
    frame = shed_and_parse(spark, p, p.operators[0], p.edges[0], raw(spark, 3)).select("n", "lineage", "_src")
    operator = Operator(name="op", function="m:f", key="n")
    rows = {json.loads(r["value"])["n"]: (bytes(r["key"]), json.loads(r["value"])) for r in to_records(frame, operator).collect()}
    assert rows[2] == (b"2", {"n": 2, "lineage": "t-2-2"})
    with pytest.raises(RuntimeError, match="declares key nothing"):
        to_records(frame, Operator(name="op", function="m:f", key="nothing"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda df, _: df.where("n > 1").select("n", "_src"), WrittenBy.SOURCE),
        (lambda df, _: df.union(df).select("n", "_src"), WrittenBy.SHUFFLE),
        (lambda df, _: df.where("n > 1").unionByName(df.where("n < 9")), WrittenBy.SHUFFLE),
        (lambda df, _: df.select("n"), WrittenBy.SHUFFLE),
        (lambda df, s: df.join(F.broadcast(s), "n").select("n", "_src"), WrittenBy.SOURCE),
        (lambda df, s: df.join(s, "n").select("n", "_src"), WrittenBy.SHUFFLE),
        (lambda df, s: s.join(F.broadcast(df), "n", "right").select("n", "_src"), WrittenBy.SHUFFLE),
        (lambda df, _: df.repartition(3).select("n", "_src"), WrittenBy.SHUFFLE),
        (lambda df, _: df.coalesce(1).select("n", "_src"), WrittenBy.SHUFFLE),
        (lambda df, _: df.groupBy("n").count().select("n", "count"), WrittenBy.STATE),
        (lambda df, _: df.groupBy("n", "_src").count(), WrittenBy.STATE),
        (lambda df, _: df.dropDuplicates(["n"]), WrittenBy.STATE),
        (lambda df, _: df.groupBy("n").count().repartition(2), WrittenBy.SHUFFLE),
        (lambda df, _: df.groupBy("n").count().select("n").union(df.select("n")), WrittenBy.SHUFFLE),
    ],
)
def test_who_writes_a_row(spark: SparkSession, tmp_path: Path, function: Any, expected: WrittenBy) -> None:
    raw(spark, 4).drop("timestampType").write.parquet(str(tmp_path / "in"))
    p = pipeline()
    frame = shed_and_parse(spark, p, p.operators[0], p.edges[0], stream(spark, tmp_path / "in"))
    assert written_by(function(frame, spark.range(5).withColumnRenamed("id", "n"))) is expected


@pytest.mark.spark
def test_nondeterministic_keys_are_found_and_our_own_plan_is_not_blamed(spark: SparkSession, tmp_path: Path) -> None:
    raw(spark, 4).drop("timestampType").write.parquet(str(tmp_path / "in"))
    p = pipeline()
    frame = shed_and_parse(spark, p, p.operators[0], p.edges[0], stream(spark, tmp_path / "in"))
    edges = [p.edges[0].name]
    assert unsteady(frame.select("n"), edges) is None
    assert unsteady(frame.groupBy("n").agg(F.first("lineage")), edges) is None
    assert "rand" in (unsteady(frame.select((F.rand() * 10).cast("int").alias("n")), edges) or "")
    assert "uuid" in (unsteady(frame.withColumn("id", F.expr("uuid()")).select("id"), edges) or "")


@pytest.mark.spark
def test_a_shuffle_in_front_of_the_sink_goes_by_source_where_it_can(spark: SparkSession) -> None:
    records = raw(spark, 400).select("key", "value", F.col("partition").alias("_src"))
    placed = arrange(records, WrittenBy.SHUFFLE, 3).withColumn("at", F.spark_partition_id())
    of = {r["key"]: r["at"] for r in placed.collect()}
    by_source: dict[int, set[int]] = {}
    for row in records.collect():
        by_source.setdefault(row["_src"], set()).add(of[row["key"]])
    assert all(len(places) == 1 for places in by_source.values()), "all rows of a source partition have one writer"
