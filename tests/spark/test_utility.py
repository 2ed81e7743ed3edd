"""Shedding by utility: keep is the share that stays, the lowest go first, and what is known of the utilities is followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import Effective
from spillway.model.topology import Application, Edge, Operator, Pipeline, Shed

from spark_jobs.runtime.deadletter import Sweep, kept_rows, sweeps
from spark_jobs.runtime.metrics import ProgressReader
from spark_jobs.runtime.plan import shed_and_parse, with_utility
from spark_jobs.runtime.shed import LOWEST, encode, property_name, shed
from spark_jobs.runtime.utility import Distribution, UtilityFollower
from spark_jobs.runtime.utility import property_name as utilities_name

ROWS = 20_000
SCHEMA = "n bigint not null, vip boolean, offset double"


def raw(spark: SparkSession, rows: int = ROWS, first: int = 0) -> DataFrame:
    """Kafka's columns, without Kafka; the JSON has an `offset` of its own."""
    n = F.col("id")
    return spark.range(first, first + rows).select(
        n.cast("string").cast("binary").alias("key"),
        F.to_json(F.struct(n.alias("n"), (n % 10 < 3).alias("vip"), (-n).alias("offset"))).cast("binary").alias("value"),
        F.lit("t").alias("topic"),
        (n % 4).cast("int").alias("partition"),
        n.alias("offset"),
        F.timestamp_millis(n).alias("timestamp"),
    )


def pipeline(utility: str, schema: str | None = SCHEMA) -> Pipeline:
    edge = Edge(name="t:op", topic="t", producer=None, consumer="op", partitions=4, shed=Shed.BY_UTILITY, utility=utility)
    return Pipeline(
        name="p",
        operators=(Operator(name="op", function="m:f", schema=schema),),
        edges=(edge,),
        applications=(Application(name="op", operators=("op",)),),
    )


def seen(spark: SparkSession, p: Pipeline, frame: DataFrame) -> DataFrame:
    return shed_and_parse(spark, p, p.operators[0], p.edges[0], frame)


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Any]:
    """Sets the keep and what is known of the utilities."""
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    names = property_name("p", "t:op"), utilities_name("p", "t:op")

    def put(keep: float | None = None, known: list[float] | str | None = None) -> None:
        if keep is not None:
            system.setProperty(names[0], encode(Effective(keep=keep, decision_id=1, source="setting")))
        if isinstance(known, list):
            spread = Distribution(60.0)
            spread.add(known, 1000, 0.0)
            known = spread.encode()
        if known is not None:
            system.setProperty(names[1], known)

    yield put
    for name in names:
        system.clearProperty(name)


@pytest.mark.spark
@pytest.mark.parametrize("keep", [0.0, 0.003, 0.25, 0.5, 0.9, 0.999, 1.0])
def test_the_kept_share_is_the_keep_however_skewed_the_utilities_are(spark: SparkSession, setting: Any, keep: float) -> None:
    p = pipeline("pow(n, 5) - 1000")
    setting(keep, [((i / 200) * ROWS) ** 5 - 1000 for i in range(1, 201)])
    kept = sorted(r["n"] for r in seen(spark, p, raw(spark)).select("n").collect())
    assert abs(len(kept) / ROWS - keep) <= 0.002
    sure = int(keep * 200) / 200 * ROWS
    assert set(range(ROWS - int(sure) + 1, ROWS)) <= set(kept), "all above the bin of the cut"
    assert not kept or kept[0] >= ROWS * (1 - keep) - ROWS / 200 - 1, "none below it"


@pytest.mark.spark
def test_among_rows_of_one_utility_chance_decides(spark: SparkSession, setting: Any) -> None:
    p = pipeline("vip")
    setting(0.5, [0.0] * 140 + [1.0] * 60)
    counts = {r["vip"]: r["count"] for r in seen(spark, p, raw(spark)).groupBy("vip").count().collect()}
    assert counts[True] == 0.3 * ROWS, "the lowest go first"
    assert abs(counts[False] - 0.2 * ROWS) <= 0.01 * ROWS


@pytest.mark.spark
def test_while_nothing_is_known_the_keep_holds_by_chance(spark: SparkSession, setting: Any) -> None:
    setting(0.5)
    kept = [r["n"] for r in seen(spark, pipeline("n"), raw(spark)).select("n").collect()]
    assert abs(len(kept) / ROWS - 0.5) <= 0.02
    assert abs(sum(n < ROWS / 2 for n in kept) / len(kept) - 0.5) <= 0.02


@pytest.mark.spark
@pytest.mark.parametrize(
    ("utility", "schema", "kept"),
    [
        ("n", SCHEMA, lambda n: n >= 50),
        ("offset", SCHEMA, lambda n: n < 50),  # the schema's, which falls
        ("offset", None, lambda n: n >= 50),  # Kafka's, which rises
        ("cast(cast(key as string) as int) + length(topic)", None, lambda n: n >= 50),
        ("unix_millis(timestamp)", SCHEMA, lambda n: n >= 50),
        ("if(n < 50, cast('NaN' as double), n)", SCHEMA, lambda n: n >= 50),
        ("if(n < 50, null, -1e300 * n)", SCHEMA, lambda n: n >= 50),
        ("if(n < 50, 'no number', 'Infinity')", SCHEMA, lambda n: n >= 50),
    ],
)
def test_what_a_utility_may_be(spark: SparkSession, setting: Any, utility: str, schema: str | None, kept: Any) -> None:
    p = pipeline(utility, schema)
    every = sorted(r["__u"] for r in with_utility(raw(spark, 100), p, p.operators[0], p.edges[0]).select("__u").collect())
    setting(0.5, every)
    rows = seen(spark, p, raw(spark, 100))
    number = F.col("n") if schema else F.get_json_object(F.col("value").cast("string"), "$.n").cast("int")
    assert sorted(r[0] for r in rows.select(number).collect()) == [n for n in range(100) if kept(n)]


@pytest.mark.spark
def test_what_does_not_parse_goes_first(spark: SparkSession, setting: Any) -> None:
    p = pipeline("n")
    setting(0.5, [*[LOWEST] * 50, *(float(n) for n in range(50, 100))])
    garbage = F.when(F.col("offset") < 50, F.lit("garbage").cast("binary"))
    frame = with_utility(raw(spark, 100).withColumn("value", F.coalesce(garbage, "value")), p, p.operators[0], p.edges[0])
    assert sorted(r["offset"] for r in shed(spark, frame, "p", p.edges[0]).collect()) == list(range(50, 100))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("utility", "words"),
    [
        ("no_such_function(n)", "the utility of edge t:op cannot be evaluated: .*no_such_function"),
        ("n n n", "the utility of edge t:op cannot be evaluated: "),
        ("n * rand()", "the utility of edge t:op may give a row another value when a batch is replayed: .*rand"),
    ],
)
def test_a_utility_that_spark_refuses(spark: SparkSession, utility: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        seen(spark, pipeline(utility), raw(spark, 1))


@pytest.mark.spark
def test_a_running_query_learns_its_utilities_and_follows_them(spark: SparkSession, setting: Any, tmp_path: Path) -> None:
    """The first batch is cut by chance, the later ones by what came before; the utilities move, and the cut with them."""
    p = pipeline("pow(n, 3)")
    source = tmp_path / "in"
    raw(spark, 1).limit(0).write.parquet(str(source))
    stream = spark.readStream.schema(raw(spark, 1).schema).parquet(str(source))
    setting(0.3)
    follower = UtilityFollower(p.edges, 0.5, lambda _, text: setting(known=text))
    query = seen(spark, p, stream).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    reader, shares = ProgressReader(query), list[float]()
    try:
        for first in (0, 0, 0, 30_000, 30_000, 30_000, 30_000):
            raw(spark, 10_000, first).coalesce(1).write.mode("append").parquet(str(source))
            query.processAllAvailable()
            (progress,) = (p for p in reader.new() if p["numInputRows"])
            follower.batch(progress)
            shares.append(progress["observedMetrics"]["t:op"]["kept"] / 10_000)
        plan = query._jsq.explainInternal(False)
        assert "LocalTableScan" in plan and "Subquery" in plan, plan
        assert "java_method" not in plan and "getProperty" not in plan and "System" not in plan, plan
    finally:
        query.stop()
    assert all(abs(share - 0.3) <= 0.03 for share in (*shares[:3], shares[-1])), shares
    assert shares[3] == 1.0, "all of the new utilities lie above those known before"


@pytest.mark.spark
def test_dead_letters_are_looked_for_among_the_rows_that_were_kept(spark: SparkSession, setting: Any) -> None:
    p = pipeline("vip")
    setting(0.4, [0.0] * 140 + [1.0] * 60)
    operator, edge = p.operators[0], p.edges[0]
    rows = shed(spark, with_utility(raw(spark, 2000), p, operator, edge), "p", edge).select("offset", "__v").collect()
    value = rows[0]["__v"].asDict()
    assert value["high"] == 1.0 or value["low"] is None
    progress = {
        "batchId": 7,
        "sources": [{"description": "KafkaV2[Subscribe[t]]", "endOffset": {"t": {"0": 9}}, "startOffset": {"t": {"0": 0}}}],
        "observedMetrics": {"t:op": {"bad": 1, "setting": value}},
    }
    (sweep,) = sweeps(progress, (edge,))
    again = kept_rows(raw(spark, 2000), p, operator, sweep).select("offset").collect()
    assert {r["offset"] for r in again} == {r["offset"] for r in rows}
    everything = Sweep(batch_id=7, edge=edge, start={}, end={}, keep=0.4)
    assert {r["offset"] for r in kept_rows(raw(spark, 2000), p, operator, everything).collect()} != {r["offset"] for r in rows}


@pytest.mark.spark
@pytest.mark.parametrize("by", [Shed.RANDOM, Shed.BY_KEY])
def test_dead_letters_of_other_strategies(spark: SparkSession, setting: Any, by: Shed) -> None:
    setting(0.4)
    p = replace(pipeline("n"), edges=(replace(pipeline("n").edges[0], shed=by, utility=None),))
    kept = {r["offset"] for r in shed(spark, raw(spark, 2000), "p", p.edges[0]).collect()}
    sweep = Sweep(batch_id=7, edge=p.edges[0], start={}, end={}, keep=0.4)
    assert {r["offset"] for r in kept_rows(raw(spark, 2000), p, p.operators[0], sweep).collect()} == kept
