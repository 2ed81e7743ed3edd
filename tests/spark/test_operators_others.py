"""k-nearest neighbours, word count and ad analytics against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from spillway.inject.events import Pool
from spillway.inject.scenario import load
from spillway.model.campaigns import campaign_of_ad
from spillway.topology import check_files

from spark_jobs.operators import ads, knn, taxi, wordcount

pytestmark = pytest.mark.spark

REPO = Path(__file__).parents[2]
START_MS = 1_767_268_795_000  # five seconds before a window of ten begins


def events(kind: str, count: int, **options: int) -> list[dict]:
    """Events of the injector, a thousand a second."""
    pool = Pool(kind, seed=8, size=count, options=options)
    return [json.loads(m["value"]) for n in range(count) for m in pool.take(n, 1, START_MS + n)[0]]


def test_knn_agrees_with_brute_force(spark: SparkSession) -> None:
    points = events("points", 1300)
    df = spark.createDataFrame(
        [(n % 2, str(n), p["x"], p["y"], p["z"]) for n, p in enumerate(points)],
        "_src int, lineage string, x double, y double, z double",
    )
    found = {int(r["lineage"]): r for r in knn.classify(df, k=7, points=300, classes=3, seed=5).collect()}
    known, label = knn.known_points(300, 3, 5)
    assert len(found) == len(points)
    for n, p in enumerate(points):
        distances = [float(np.linalg.norm(np.array([p["x"], p["y"], p["z"]]) - q)) for q in known]
        nearest = sorted(range(300), key=distances.__getitem__)[:7]
        votes = Counter(int(label[i]) for i in nearest)
        assert found[n]["votes"] == max(votes.values())
        assert found[n]["class"] == min(c for c, v in votes.items() if v == max(votes.values()))
        assert found[n]["distance"] == pytest.approx(sum(distances[i] for i in nearest) / 7)


def test_knn_refuses_more_neighbours_than_points(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"k is 9, it must be between 1 and the number of known points \(3\)"):
        knn.classify(spark.createDataFrame([], "x double, y double, z double"), k=9, points=3)


def test_words_are_counted(spark: SparkSession) -> None:
    texts = [e["text"] for e in events("sentences", 2000)] + ["Don't  PANIC, don't!", "", "naïve–Été 42", "---"]
    counted = {
        r["word"]: r["count"]
        for r in wordcount.count_words(spark.createDataFrame([(t,) for t in texts], "text string")).collect()
    }
    truth = Counter(w for e in texts[:2000] for w in e.split())
    truth.update(["don't", "panic", "don't", "naïve", "été", "42"])
    assert counted == truth


def test_views_are_counted_per_campaign_and_window(spark: SparkSession) -> None:
    sent = events("ads", 12_000, seed=4, campaigns=6, ads_per_campaign=3)
    sent += [sent[0] | {"event_type": "view", "ad_id": "nobody knows it"}]
    rows = [(n % 4, str(n), e["ad_id"], e["event_type"], e["event_time"]) for n, e in enumerate(sent)]
    df = spark.createDataFrame(rows, "_src int, lineage string, ad_id string, event_type string, event_time bigint")
    joined = ads.join_campaigns(ads.views(df), seed=4, campaigns=6, ads_per_campaign=3)
    counted = {(r["campaign_id"], r["window_start"].replace(tzinfo=UTC)): r["views"] for r in ads.count_views(joined).collect()}
    campaign = campaign_of_ad(4, 6, 3)
    truth = Counter(
        (campaign[e["ad_id"]], datetime.fromtimestamp(e["event_time"] // 10_000 * 10, UTC))
        for e in sent
        if e["event_type"] == "view" and e["ad_id"] in campaign
    )
    assert counted == truth
    assert len({start for _, start in truth}) == 2


def test_a_late_view_is_not_counted_and_an_early_one_is_in_time(spark: SparkSession, tmp_path: Path) -> None:
    """As a stream: the watermark only moves between batches."""
    source = tmp_path / "in"
    source.mkdir()
    stream = spark.readStream.schema("campaign_id string, event_time timestamp").json(str(source))
    query = ads.count_views(stream).writeStream.outputMode("update").format("memory").queryName("late_views").start()
    try:
        for number, second in enumerate(("12:00:01", "12:00:45", "12:00:02", "12:00:38")):
            (source / f"{number}.json").write_text(json.dumps({"campaign_id": "c", "event_time": f"2026-01-01T{second}Z"}))
            query.processAllAvailable()
        seen = {str(r["window_start"])[11:]: r["views"] for r in spark.table("late_views").collect()}
    finally:
        query.stop()
    assert seen == {"12:00:00": 1, "12:00:40": 1, "12:00:30": 1}


OPERATORS: dict[str, tuple[str, Callable[[DataFrame], DataFrame]]] = {
    "union": (
        "kafka_timestamp timestamp, tpep_pickup_datetime timestamp, tpep_dropoff_datetime timestamp, "
        "lpep_pickup_datetime timestamp, lpep_dropoff_datetime timestamp, passenger_count int, "
        "trip_distance double, PULocationID int, DOLocationID int, "
        "fare_amount double, tip_amount double, total_amount double",
        taxi.union,
    ),
    "light": (
        "service string, pickup_at timestamp, dropoff_at timestamp, pickup_zone int, dropoff_zone int, distance_km double, "
        "fare double, tip double, total double",
        taxi.light,
    ),
    "heavy": ("service string, pickup_at timestamp, pickup_zone int, dropoff_zone int", taxi.heavy),
    "classify": ("x double, y double, z double", knn.classify),
    "views": ("ad_id string, event_type string, event_time bigint", ads.views),
    "join": ("ad_id string, event_time timestamp", ads.join_campaigns),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_stateless_operators_carry_the_origin_and_nothing_hidden(spark: SparkSession, name: str) -> None:
    schema, operator = OPERATORS[name]
    plain = operator(spark.createDataFrame([], schema)).columns
    assert [c for c in plain if c.startswith("_")] == []
    assert operator(spark.createDataFrame([], f"_src int, {schema}")).columns == ["_src", *plain]
    assert operator(spark.createDataFrame([], f"_src int, lineage string, {schema}")).columns == ["_src", "lineage", *plain]


def test_stateless_operators_do_not_shuffle(spark: SparkSession) -> None:
    for schema, operator in OPERATORS.values():
        plan = operator(spark.createDataFrame([], f"_src int, lineage string, {schema}"))._jdf.queryExecution().executedPlan()
        assert "Exchange hashpartitioning" not in plan.toString()
        assert "Exchange RoundRobin" not in plan.toString()


@pytest.mark.parametrize("name", ["rush_hour", "knn", "wordcount", "ads"])
def test_injected_events_are_usable_and_garbage_is_not(spark: SparkSession, name: str) -> None:
    """With the schema the pipeline declares: `not null` fields are there in every event, and in no garbage of any kind."""
    scenario = load(REPO / "scenarios" / f"{name}.yaml")
    (pipeline,) = check_files([REPO / "pipelines" / f"{scenario.pipelines[0].name}.yaml"]).pipelines
    entry = next(e.consumer for e in pipeline.edges if e.producer is None)
    ddl = pipeline.operator(entry).schema
    assert ddl is not None
    required = [f.name for f in StructType.fromDDL(ddl).fields if not f.nullable]
    assert required
    for topic in scenario.topics:
        for garbage in (0.0, 1.0):
            pool = Pool(topic.events, seed=1, size=600, garbage=garbage, key=topic.key, options=topic.options)
            values = [(m["value"],) for m in pool.take(0, 600, START_MS)[0]]
            raw = spark.createDataFrame(values, "value binary")
            usable = raw.select(F.from_json(F.col("value").cast("string"), ddl).alias("e")).where(
                " and ".join(f"e.{field} is not null" for field in required)
            )
            assert usable.count() == (0 if garbage else 600)
