"""Taxi drives: two streams of trip records, one union, a light and a heavy query.

Paper: Alves, "Stream Economics" (2018), section 5.4.1, figure 5.1 (1): TDSrc1 and TDSrc2 are blended and consumed by TDSnk1
(two instances) and by TDSnk2, which is the CPU-intensive one. The thesis does not say what its queries compute.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.operators.carry import carry

EARTH_RADIUS_KM = 6371.0088
KM_PER_MILE = 1.609344
SOUTH, NORTH = 40.50, 40.91
WEST, EAST = -74.25, -73.70
# The plastic-number lattice spreads any number of points evenly over a square, so places need no table.
LATTICE_NORTH, LATTICE_EAST = 0.7548776662466927, 0.5698402909980532


def union(df: DataFrame) -> DataFrame:
    """Yellow (tpep_…) and green (lpep_…) trip records in one shape; distances in kilometres.

    A record without a pick-up time gets the time at which Kafka took it.
    """
    pickup = F.coalesce("tpep_pickup_datetime", "lpep_pickup_datetime", "kafka_timestamp")
    dropoff = F.coalesce("tpep_dropoff_datetime", "lpep_dropoff_datetime")
    is_green = F.col("lpep_pickup_datetime").isNotNull() | F.col("lpep_dropoff_datetime").isNotNull()
    return df.select(
        *carry(df),
        F.when(is_green, "green").otherwise("yellow").alias("service"),
        pickup.alias("pickup_at"),
        dropoff.alias("dropoff_at"),
        F.col("PULocationID").alias("pickup_zone"),
        F.col("DOLocationID").alias("dropoff_zone"),
        F.coalesce(F.col("passenger_count"), F.lit(1)).alias("passengers"),
        (F.col("trip_distance") * KM_PER_MILE).alias("distance_km"),
        F.col("fare_amount").alias("fare"),
        F.coalesce(F.col("tip_amount"), F.lit(0.0)).alias("tip"),
        F.col("total_amount").alias("total"),
    )


def light(df: DataFrame) -> DataFrame:
    """Price, tip share and speed of each trip, by the zone where it began (TDSnk1)."""
    hours = (F.unix_micros("dropoff_at") - F.unix_micros("pickup_at")) / F.lit(3_600_000_000)
    return df.select(
        *carry(df),
        "service",
        "pickup_zone",
        F.hour("pickup_at").alias("pickup_hour"),
        "fare",
        F.try_divide("fare", "distance_km").alias("fare_per_km"),
        F.try_divide("tip", "total").alias("tip_share"),
        F.try_divide(F.col("distance_km"), F.greatest(hours, F.lit(1 / 60))).alias("speed_kmh"),
    )


def heavy(df: DataFrame, work: int = 100) -> DataFrame:
    """The landmark that lies best on the way of each trip (TDSnk2): the least great-circle detour over `work` landmarks.

    Costs two great-circle distances per landmark and trip, computed in the executor; CPU time is proportional to `work`.
    """
    if work < 1:
        raise ValueError(f"heavy: work is {work}, it is the number of landmarks and must be at least 1")
    here = _place(F.col("pickup_zone"))
    there = _place(F.col("dropoff_zone"))
    positioned = df.select("*", here[0].alias("_lat1"), here[1].alias("_lon1"), there[0].alias("_lat2"), there[1].alias("_lon2"))
    start = (F.col("_lat1"), F.col("_lon1"))
    end = (F.col("_lat2"), F.col("_lon2"))

    def via(landmark: Column) -> Column:
        stop = _place(landmark + F.lit(0.5))
        length = great_circle_km(start, stop) + great_circle_km(stop, end)
        return F.struct(length.alias("km"), landmark.alias("landmark"))

    best = F.array_min(F.transform(F.sequence(F.lit(1), F.lit(work)), via))
    searched = positioned.withColumn("_direct", great_circle_km(start, end)).withColumn("_best", best)
    return searched.select(
        *carry(df),
        "service",
        "pickup_at",
        "pickup_zone",
        "dropoff_zone",
        F.col("_direct").alias("direct_km"),
        F.col("_best.landmark").alias("landmark"),
        F.greatest(F.col("_best.km") - F.col("_direct"), F.lit(0.0)).alias("detour_km"),
    )


def great_circle_km(a: tuple[Column, Column], b: tuple[Column, Column]) -> Column:
    """Haversine distance of two (latitude, longitude) in degrees."""
    lat1, lat2 = F.radians(a[0]), F.radians(b[0])
    half_lat, half_lon = (lat2 - lat1) / 2, F.radians(b[1] - a[1]) / 2
    h = F.sin(half_lat) * F.sin(half_lat) + F.cos(lat1) * F.cos(lat2) * F.sin(half_lon) * F.sin(half_lon)
    return 2 * EARTH_RADIUS_KM * F.asin(F.sqrt(F.least(h, F.lit(1.0))))


def _place(number: Column) -> tuple[Column, Column]:
    """Latitude and longitude of the numbered point of the lattice over the city."""
    n = number.cast("double")
    north, east = n * LATTICE_NORTH, n * LATTICE_EAST
    return (
        F.lit(SOUTH) + (north - F.floor(north)) * (NORTH - SOUTH),
        F.lit(WEST) + (east - F.floor(east)) * (EAST - WEST),
    )
