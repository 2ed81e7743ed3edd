"""The weight column, how it travels from operator to operator, and the estimates made with it."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import Effective
from spillway.model.topology import Application, Edge, Kind, Operator, Pipeline, Shed

from spark_jobs import estimate
from spark_jobs.operators.carry import carry
from spark_jobs.runtime import plan
from spark_jobs.runtime.plan import Input, build, shed_and_parse, to_records
from spark_jobs.runtime.shed import encode, property_name

ROWS = 20_000
SCHEMA = "n bigint not null, fare double"


def raw(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Kafka's columns, without Kafka."""
    n = F.col("id")
    return spark.range(rows).select(
        (n % 200).cast("string").cast("binary").alias("key"),
        F.to_json(F.struct(n.alias("n"), (F.lit(1.0) + n % 7).alias("fare"))).cast("binary").alias("value"),
        F.lit("t").alias("topic"),
        (n % 4).cast("int").alias("partition"),
        n.alias("offset"),
        F.timestamp_millis(n * 10).alias("timestamp"),
    )


def as_kafka(records: DataFrame, topic: str) -> DataFrame:
    """What an operator wrote, as the next one reads it."""
    return records.select(
        "key",
        "value",
        F.lit(topic).alias("topic"),
        F.lit(0).alias("partition"),
        F.monotonically_increasing_id().alias("offset"),
        F.lit(0).cast("timestamp").alias("timestamp"),
    )


def pipeline(*, asks: tuple[str, ...] = ("total",), schema: str | None = SCHEMA, by: Shed = Shed.RANDOM) -> Pipeline:
    """t → clean → total."""
    return Pipeline(
        name="p",
        operators=(
            Operator(name="clean", function="made_up:clean", schema=schema, key="n", weight="clean" in asks),
            Operator(name="total", function="made_up:total", schema=schema, kind=Kind.AGGREGATE, weight="total" in asks),
        ),
        edges=(
            Edge(name="t:clean", topic="t", producer=None, consumer="clean", partitions=4, shed=by),
            Edge(name="clean:total", topic="p.clean.total", producer="clean", consumer="total", partitions=1, shed=by),
        ),
        applications=(Application(name="all", operators=("clean", "total")),),
    )


@pytest.fixture
def keep(spark: SparkSession) -> Iterator[Any]:
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    names: set[str] = set()

    def put(**keeps: float) -> None:
        for edge, value in keeps.items():
            name = property_name("p", {"first": "t:clean", "second": "clean:total"}[edge])
            names.add(name)
            system.setProperty(name, encode(Effective(keep=value, decision_id=1, source="setting")))

    yield put
    for name in names:
        system.clearProperty(name)


def through(spark: SparkSession, p: Pipeline, source: DataFrame) -> tuple[DataFrame, DataFrame]:
    """What `clean` writes, and what `total` gets of it."""
    clean, total = p.operators
    seen = shed_and_parse(spark, p, clean, p.edges[0], source)
    records = to_records(seen.select(*carry(seen), "n", "fare"), clean)
    written = spark.createDataFrame(records.select("key", "value").collect(), "key binary, value binary")
    return written, shed_and_parse(spark, p, total, p.edges[1], as_kafka(written, "p.clean.total"))


@pytest.mark.spark
@pytest.mark.parametrize("by", [Shed.RANDOM, Shed.BY_KEY])
def test_keeps_multiply_along_the_way(spark: SparkSession, keep: Any, by: Shed) -> None:
    keep(first=0.5, second=0.4)
    _, seen = through(spark, pipeline(by=by), raw(spark))
    rows = seen.agg(F.count(F.lit(1)), F.min("weight"), F.max("weight"), F.sum(F.col("weight") * F.col("fare"))).first()
    assert rows is not None
    assert abs(rows[0] / ROWS - 0.2) <= 0.01
    assert rows[1] == rows[2] == pytest.approx(5.0)
    assert rows[3] == pytest.approx(4.0 * ROWS, rel=0.05), "the weighted sum is that of all events"


@pytest.mark.spark
def test_a_row_keeps_the_weight_of_its_time(spark: SparkSession, keep: Any) -> None:
    """The first edge's keep changes after its rows were written; they still say what held for them."""
    p = pipeline()
    keep(first=0.5, second=1.0)
    before, _ = through(spark, p, raw(spark))
    keep(first=0.25)
    after, _ = through(spark, p, raw(spark))
    both = as_kafka(before.union(after), "p.clean.total")
    keep(second=0.5)
    seen = {r["weight"] for r in shed_and_parse(spark, p, p.operators[1], p.edges[1], both).select("weight").distinct().collect()}
    assert seen == {4.0, 8.0}


@pytest.mark.spark
def test_while_nothing_is_shed_nothing_is_written(spark: SparkSession, keep: Any) -> None:
    keep(first=1.0, second=1.0)
    written, seen = through(spark, pipeline(), raw(spark, 50))
    assert {tuple(json.loads(r["value"])) for r in written.collect()} == {("n", "fare")}
    assert {r["weight"] for r in seen.collect()} == {1.0}
    keep(first=0.5)
    written, _ = through(spark, pipeline(), raw(spark, 50))
    assert {json.loads(r["value"])["_weight"] for r in written.collect()} == {2.0}


@pytest.mark.spark
def test_who_does_not_ask_does_not_get(spark: SparkSession, keep: Any) -> None:
    keep(first=0.5)
    for asks, columns in (
        ((), set()),
        (("total",), {"_weight"}),
        (("clean",), {"weight"}),
        (("clean", "total"), {"weight", "_weight"}),
    ):
        p = pipeline(asks=asks)
        first = shed_and_parse(spark, p, p.operators[0], p.edges[0], raw(spark, 10))
        assert set(first.columns) - {"n", "fare", "kafka_key", "kafka_timestamp", "_src"} == columns
    p = pipeline(asks=())
    assert "weight" not in through(spark, p, raw(spark, 10))[1].columns


@pytest.mark.spark
def test_an_operator_without_a_schema_gets_weights_too(spark: SparkSession, keep: Any) -> None:
    keep(first=0.5, second=0.5)
    written, _ = through(spark, pipeline(), raw(spark, 500))
    p = pipeline(schema=None)
    values = as_kafka(written.union(spark.createDataFrame([(None, b"no json")], written.schema)), "p.clean.total")
    seen = shed_and_parse(spark, p, p.operators[1], p.edges[1], values)
    assert {r["weight"] for r in seen.where("value like '{%'").collect()} == {4.0}
    assert {r["weight"] for r in seen.where("value like 'no%'").collect()} <= {2.0}


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", module)
    return module


@pytest.mark.spark
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda df: df.select("n", "_src"),
            "an operator below clean asks for weights, but made_up:clean drops the column _weight",
        ),
        (
            lambda df: df.select(F.lit("x").alias("value"), "_weight"),
            "made_up:clean makes `value` itself, in which no weight travels",
        ),
        (lambda df: df.select(*carry(df), "n"), None),
    ],
)
def test_a_function_that_loses_the_weights_does_not_start(
    spark: SparkSession, functions: Any, monkeypatch: pytest.MonkeyPatch, function: Any, words: str | None
) -> None:
    functions.clean = function
    monkeypatch.setattr(plan, "read_edge", lambda *_: raw(spark, 5))
    p = pipeline()
    if words is None:
        assert "_weight" in build(spark, p, p.operators[0], Input(bootstrap="nowhere", max_rows=1)).columns
    else:
        with pytest.raises(RuntimeError, match=words):
            build(spark, p, p.operators[0], Input(bootstrap="nowhere", max_rows=1))


@pytest.mark.spark
def test_rows_of_a_stateful_operator_weigh_one_again(
    spark: SparkSession, functions: Any, monkeypatch: pytest.MonkeyPatch, keep: Any
) -> None:
    keep(second=0.5)
    p = pipeline(asks=("clean", "total"))
    clean = p.operators[0]
    p = replace(p, operators=(replace(clean, kind=Kind.AGGREGATE), p.operators[1]))
    functions.clean = lambda df: df.groupBy("n").agg(estimate.weighted_sum("fare").alias("fare"))
    monkeypatch.setattr(plan, "read_edge", lambda *_: raw(spark, 100))
    written = to_records(build(spark, p, p.operators[0], Input(bootstrap="nowhere", max_rows=1)), clean)
    seen = shed_and_parse(spark, p, p.operators[1], p.edges[1], as_kafka(written, "p.clean.total"))
    assert {r["weight"] for r in seen.collect()} == {2.0}


# -- estimates


@pytest.mark.spark
def test_the_columns_say_what_the_formulas_say(spark: SparkSession) -> None:
    rows = [(1.0, 3.0), (2.0, 5.0), (4.0, 1.0), (2.5, None)]
    frame = spark.createDataFrame(rows, "weight double, x double")
    found = frame.agg(
        estimate.weighted_count(), estimate.count_error(), estimate.weighted_sum("x"), estimate.sum_error("x"),
        estimate.weighted_mean("x"), estimate.mean_error(F.col("x"), level=0.5),
    ).first()  # fmt: skip
    assert found is not None
    z = estimate.deviations(0.95)
    assert found[0] == 9.5
    assert found[1] == pytest.approx(z * math.sqrt(0 + 2 + 12 + 3.75))
    assert found[2] == 17.0
    assert found[3] == pytest.approx(z * math.sqrt(2 * 25 + 12 * 1))
    mean = 17.0 / 7.0
    assert found[4] == pytest.approx(mean)
    several = math.sqrt(2 / 1)
    assert found[5] == pytest.approx(
        several * estimate.deviations(0.5) * math.sqrt(2 * (5 - mean) ** 2 + 12 * (1 - mean) ** 2) / 7
    )


@pytest.mark.spark
def test_rows_of_one_key_are_one_draw(spark: SparkSession) -> None:
    rows = [
        ("g", "a", 2.0, 3.0),
        ("g", "a", 2.0, 1.0),
        ("g", "b", 2.0, 5.0),
        ("g", "b", 4.0, 5.0),
        ("g", "b", 4.0, None),
        ("h", "a", 1.0, 7.0),
    ]
    frame = spark.createDataFrame(rows, "g string, k string, weight double, x double")
    found = {r["g"]: r.asDict() for r in estimate.estimate_by_key(frame, "x", key="k", group=["g"]).collect()}
    z = estimate.deviations(0.95)
    assert found["g"]["sum"] == 8.0 + 30.0
    assert found["g"]["sum_error"] == pytest.approx(z * math.sqrt(8 * (8 - 4) + 30 * (30 - 10)))
    assert found["g"]["count"] == 4.0 + 6.0
    assert found["g"]["count_error"] == pytest.approx(z * math.sqrt(4 * 2 + 6 * 4))
    assert found["g"]["mean"] == pytest.approx(3.8)
    residual_a, residual_b = (8 - 3.8 * 4, 4 - 3.8 * 2), (30 - 3.8 * 6, 10 - 3.8 * 2)
    expected = sum(y * (y - t) for y, t in (residual_a, residual_b)) / 100
    assert found["g"]["mean_error"] == pytest.approx(z * math.sqrt(2 / 1 * expected))
    assert (found["g"]["rows"], found["g"]["draws"]) == (4, 2)
    assert (found["h"]["sum"], found["h"]["sum_error"], found["h"]["mean_error"]) == (7.0, 0.0, 0.0)


@pytest.mark.spark
def test_one_row_or_key_tells_nothing_of_a_spread(spark: SparkSession) -> None:
    """The bar of the mean is missing, not zero; with nothing shed it is zero."""
    rows = [("one", "a", 4.0, 10.0), ("kept", "a", 1.0, 3.0), ("kept", "b", 1.0, 4.0), ("no value", "a", 4.0, None),
            ("beside", "a", 1.0, 3.0), ("beside", "b", 4.0, 5.0), ("two", "a", 4.0, 10.0), ("two", "b", 4.0, 12.0)]  # fmt: skip
    frame = spark.createDataFrame(rows, "g string, k string, weight double, x double")
    by_row = frame.groupBy("g").agg(
        estimate.mean_error("x").alias("mean_error"),
        estimate.sum_error("x").alias("sum_error"),
        estimate.kept_rows("x").alias("rows"),
    )
    z = estimate.deviations(0.95)
    for result in (by_row, estimate.estimate_by_key(frame, "x", key="k", group=["g"])):
        found = {r["g"]: r for r in result.collect()}
        assert {g: r["rows"] for g, r in found.items()} == {"one": 1, "kept": 2, "no value": 0, "beside": 2, "two": 2}
        assert {g for g, r in found.items() if r["mean_error"] is None} == {"one", "beside", "no value"}
        assert [g for g, r in found.items() if r["sum_error"] is None] == ["no value"]
        assert found["kept"]["mean_error"] == found["kept"]["sum_error"] == 0.0
        assert found["two"]["mean_error"] == pytest.approx(z * math.sqrt(2 * 2 * 12.0) / 8)


@pytest.mark.spark
def test_rows_of_one_key_at_one_weight_are_one_draw_however_many(spark: SparkSession) -> None:
    rows = [("g", "a", 2.0, 3.0)] * 50
    found = estimate.estimate_by_key(
        spark.createDataFrame(rows, "g string, k string, weight double, x double"), "x", key="k", group=["g"]
    ).first()
    assert found is not None and (found["rows"], found["draws"], found["mean_error"]) == (50, 1, None)


def exactly(draws: list[list[tuple[float, float]]]) -> tuple[float, float, float]:
    """Half-widths of sum, count and mean over draws of (weight, value), in fractions: no digit is lost."""
    exact = [[(Fraction(w), Fraction(x)) for w, x in draw] for draw in draws]
    sums = [(sum(w * x for w, x in d), sum(x for _, x in d), sum(w for w, _ in d), len(d)) for d in exact]
    mean = sum(y for y, *_ in sums) / sum(m for *_, m, _ in sums)
    shed = sum(m > n for *_, m, n in sums)
    parts = (
        sum(y * (y - t) for y, t, _, _ in sums),
        sum(m * (m - n) for *_, m, n in sums),
        sum((y - mean * m) * (y - t - mean * (m - n)) for y, t, m, n in sums)
        / sum(m for *_, m, _ in sums) ** 2 * Fraction(shed, shed - 1),
    )  # fmt: skip
    total, count, ratio = (estimate.deviations(0.95) * math.sqrt(part) for part in parts)
    return total, count, ratio


@pytest.mark.spark
@pytest.mark.parametrize("offset", [0.0, 1.7e9])
def test_no_digit_is_lost_and_rows_without_a_key_are_draws_of_their_own(spark: SparkSession, offset: float) -> None:
    """Against fractions: rows, keys, and both, near zero and as seconds since 1970."""
    chance = random.Random(3)
    rows = []
    for n in range(900):
        group = ("rows", "keys", "both")[n % 3]
        alone = group == "rows" or (group == "both" and chance.random() < 0.4)
        weight = chance.choice((1.0, 2.5, 5.0, 5.0))
        rows.append((group, None if alone else str(chance.randrange(60)), weight, offset + round(chance.gauss(0.0, 10.0), 3)))
    frame = spark.createDataFrame(rows, "g string, k string, weight double, x double")
    found = {r["g"]: r for r in estimate.estimate_by_key(frame, "x", key="k", group=["g"]).collect()}
    for group in found:
        draws: dict[Any, list[tuple[float, float]]] = {}
        for n, (g, key, weight, x) in enumerate(rows):
            if g == group:
                draws.setdefault(n if key is None else key, []).append((weight, x))
        errors = tuple(found[group][f"{name}_error"] for name in ("sum", "count", "mean"))
        assert errors == pytest.approx(exactly(list(draws.values())), rel=1e-5), group
        assert (found[group]["rows"], found[group]["draws"]) == (300, len(draws))
    alone = frame.where("g = 'rows'").agg(estimate.sum_error("x"), estimate.count_error(), estimate.mean_error("x")).first()
    assert alone is not None
    assert tuple(alone) == pytest.approx(tuple(found["rows"][f"{name}_error"] for name in ("sum", "count", "mean")), rel=1e-6)


@pytest.mark.spark
@pytest.mark.parametrize("by", [Shed.RANDOM, Shed.BY_KEY])
def test_windows_of_a_stream_go_out_with_their_bars(spark: SparkSession, keep: Any, tmp_path: Path, by: Shed) -> None:
    """Twenty windows of ten seconds, shed to 0.3 by rows or by keys, against what they would be unshed."""
    keep(first=0.3)
    raw(spark).withColumn("timestamp", F.col("timestamp").cast("timestamp")).write.parquet(str(tmp_path / "in"))
    p = pipeline(asks=("clean",), by=by)
    stream = spark.readStream.schema(raw(spark).schema).parquet(str(tmp_path / "in"))
    seen = shed_and_parse(spark, p, p.operators[0], p.edges[0], stream).withWatermark("kafka_timestamp", "0 seconds")
    window = F.window("kafka_timestamp", "10 seconds").alias("w")
    if by is Shed.BY_KEY:
        result = estimate.estimate_by_key(seen, "fare", key="kafka_key", group=[window])
    else:
        columns = (estimate.weighted_sum("fare").alias("sum"), estimate.sum_error("fare").alias("sum_error"))
        result = seen.groupBy(window).agg(*columns)
    query = (
        result.writeStream.format("memory").queryName(f"windows_{by}").outputMode("append")
        .option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(120)
    query.stop()
    found = {r["w"]["start"]: (r["sum"], r["sum_error"]) for r in spark.table(f"windows_{by}").collect()}
    fares = F.get_json_object(F.col("value").cast("string"), "$.fare").cast("double")
    truth = {
        r["w"]["start"]: r["t"]
        for r in raw(spark).groupBy(F.window("timestamp", "10 seconds").alias("w")).agg(F.sum(fares).alias("t")).collect()
    }
    assert len(found) == len(truth) - 1, "all but the window that the watermark holds open"
    inside = sum(abs(found[w][0] - truth[w]) <= found[w][1] for w in found)
    assert inside >= 16, (inside, len(found))
    assert all(0.02 < error / value < 0.5 for value, error in found.values()), found
