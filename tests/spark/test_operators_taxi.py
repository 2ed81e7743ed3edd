"""Taxi drives against plain arithmetic."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.inject.events import Pool

from spark_jobs.operators import taxi

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
NOON_MS = 1_767_268_800_000
RAW = (
    "tpep_pickup_datetime timestamp, tpep_dropoff_datetime timestamp, lpep_pickup_datetime timestamp, "
    "lpep_dropoff_datetime timestamp, passenger_count int, trip_distance double, PULocationID int, DOLocationID int, "
    "fare_amount double, tip_amount double, total_amount double"
)


def read(spark: SparkSession, kind: str, count: int) -> DataFrame:
    """Events of the injector as the runtime hands them to an operator."""
    texts = [m["value"].decode() for part in Pool(kind, seed=3, size=count).take(0, count, NOON_MS) for m in part]
    raw = spark.createDataFrame([(n % 4, f"{kind}-{n}", t) for n, t in enumerate(texts)], "_src int, lineage string, text string")
    parsed = raw.select("_src", "lineage", F.lit(NOON).alias("kafka_timestamp"), F.from_json("text", RAW).alias("e"))
    return parsed.select("_src", "lineage", "kafka_timestamp", "e.*")


def place(number: float) -> tuple[float, float]:
    north, east = number * taxi.LATTICE_NORTH % 1, number * taxi.LATTICE_EAST % 1
    return taxi.SOUTH + north * (taxi.NORTH - taxi.SOUTH), taxi.WEST + east * (taxi.EAST - taxi.WEST)


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """By the angle between two unit vectors: another formula than the operator's."""

    def unit(at: tuple[float, float]) -> tuple[float, float, float]:
        lat, lon = math.radians(at[0]), math.radians(at[1])
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    u, v = unit(a), unit(b)
    cross = (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])
    return taxi.EARTH_RADIUS_KM * math.atan2(math.hypot(*cross), sum(x * y for x, y in zip(u, v, strict=True)))


def test_union_brings_both_services_into_one_shape(spark: SparkSession) -> None:
    both = read(spark, "yellow", 200).unionByName(read(spark, "green", 200))
    rows = {r["lineage"]: r for r in taxi.union(both).collect()}
    assert len(rows) == 400
    for lineage, row in rows.items():
        assert lineage.startswith(row["service"])
        assert row["dropoff_at"] == NOON
        assert NOON - timedelta(hours=12) < row["pickup_at"] < NOON
        assert None not in row
    first = both.where("lineage = 'green-7'").first()
    assert first is not None
    assert rows["green-7"]["distance_km"] == pytest.approx(first["trip_distance"] * 1.609344)
    assert rows["green-7"]["_src"] == 3


def test_union_dates_a_record_without_times_by_kafka(spark: SparkSession) -> None:
    trip = read(spark, "yellow", 1).withColumn("tpep_pickup_datetime", F.lit(None).cast("timestamp"))
    row = taxi.union(trip).first()
    assert row is not None
    assert row["pickup_at"] == NOON


def trips(spark: SparkSession, rows: list[tuple[object, ...]]) -> DataFrame:
    schema = (
        "_src int, lineage string, service string, pickup_at timestamp, dropoff_at timestamp, pickup_zone int, "
        "dropoff_zone int, distance_km double, fare double, tip double, total double"
    )
    return spark.createDataFrame(rows, schema)


def test_light_computes_price_tip_and_speed(spark: SparkSession) -> None:
    row = taxi.light(trips(spark, [(1, "a", "green", NOON, NOON + timedelta(minutes=30), 5, 9, 12.0, 30.0, 6.0, 40.0)])).first()
    assert row is not None
    assert row.asDict() == pytest.approx(
        {
            "_src": 1,
            "lineage": "a",
            "service": "green",
            "pickup_zone": 5,
            "pickup_hour": 12,
            "fare": 30.0,
            "fare_per_km": 2.5,
            "tip_share": 0.15,
            "speed_kmh": 24.0,
        }
    )


def test_light_survives_odd_trips(spark: SparkSession) -> None:
    """A trip of no distance, for nothing, that ends before it begins, or at no known time."""
    odd = trips(
        spark,
        [
            (0, "a", "green", NOON, NOON - timedelta(hours=1), 5, 9, 0.0, 30.0, 6.0, 0.0),
            (0, "b", "green", NOON, None, -(2**31), 2**31 - 1, 1.0, 1.0, None, 1.0),
        ],
    )
    a, b = taxi.light(odd).orderBy("lineage").collect()
    assert (a["fare_per_km"], a["tip_share"], a["speed_kmh"]) == (None, None, 0.0)
    assert (b["fare_per_km"], b["tip_share"]) == (1.0, None)
    assert taxi.heavy(odd, work=3).count() == 2


def test_heavy_finds_the_least_detour(spark: SparkSession) -> None:
    work = 40
    rows = [(n % 4, str(n), "yellow", NOON, NOON, 1 + n * 5 % 263, 1 + n * 31 % 263, 1.0, 1.0, 1.0, 1.0) for n in range(50)]
    found = taxi.heavy(trips(spark, rows), work=work).collect()
    assert {r["lineage"] for r in found} == {str(n) for n in range(50)}
    for row in found:
        here, there = place(row["pickup_zone"]), place(row["dropoff_zone"])
        ways = {n: distance_km(here, place(n + 0.5)) + distance_km(place(n + 0.5), there) for n in range(1, work + 1)}
        assert row["direct_km"] == pytest.approx(distance_km(here, there), abs=1e-6)
        assert ways[row["landmark"]] == pytest.approx(min(ways.values()), abs=1e-6)
        assert row["detour_km"] == pytest.approx(min(ways.values()) - row["direct_km"], abs=1e-6)


def test_heavy_cost_grows_with_work(spark: SparkSession) -> None:
    rows = [(0, str(n), "yellow", NOON, NOON, 1 + n % 263, 1 + n * 7 % 263, 1.0, 1.0, 1.0, 1.0) for n in range(200)]
    source = trips(spark, rows).coalesce(1).cache()
    source.count()
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]

    def used() -> float:
        """By the JVM and its Python workers."""
        return sum(sum(p.cpu_times()[:2]) for p in (jvm, *jvm.children(recursive=True)))

    def cpu_seconds(work: int) -> float:
        before = used()
        taxi.heavy(source, work=work).write.format("noop").mode("overwrite").save()
        return used() - before

    cpu_seconds(20_000)
    little, much = (min(cpu_seconds(work) for _ in range(2)) for work in (500, 100_000))
    assert much > 4 * little
    source.unpersist()


def test_heavy_refuses_no_work(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="work is 0, it is the number of landmarks and must be at least 1"):
        taxi.heavy(trips(spark, []), work=0)
