"""Taxi drives: two streams of trip records, one union, a light and a heavy query.

Paper: Alves, "Stream Economics" (2018), section 5.4.1, figure 5.1 (1): TDSrc1 and TDSrc2 are blended and consumed by TDSnk1
(two instances) and by TDSnk2, which is the CPU-intensive one. The thesis does not say what its queries compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.operators.carry import carry

EARTH_RADIUS_KM = 6371.0088
KM_PER_MILE = 1.609344
SOUTH, NORTH = 40.50, 40.91
WEST, EAST = -74.25, -73.70
# The plastic-number lattice spreads any number of points evenly over a square, so places need no table.
LATTICE_NORTH, LATTICE_EAST = 0.7548776662466927, 0.5698402909980532
Place = tuple[Any, Any]
"""Latitude and longitude: two numbers, or two arrays."""


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


def heavy(df: DataFrame, work: int = 2_500) -> DataFrame:
    """The landmark that lies best on the way of each trip (TDSnk2): the least great-circle detour over `work` landmarks.

    Costs two great-circle distances per landmark and trip, computed by numpy beside the executor: CPU time is proportional to
    `work`, from the first row on.
    """
    if work < 1:
        raise ValueError(f"heavy: work is {work}, it is the number of landmarks and must be at least 1")

    @F.pandas_udf("struct<direct_km: double, landmark: int, detour_km: double>")  # type: ignore[call-overload]
    def best(parts: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.DataFrame]:
        for pickup, dropoff in parts:
            direct, landmark, detour = least_detour(pickup.to_numpy("float64"), dropoff.to_numpy("float64"), work)
            yield pd.DataFrame({"direct_km": direct, "landmark": landmark, "detour_km": detour})

    searched = df.withColumn("_best", best("pickup_zone", "dropoff_zone"))
    return searched.select(
        *carry(df),
        "service",
        "pickup_at",
        "pickup_zone",
        "dropoff_zone",
        F.col("_best.direct_km").alias("direct_km"),
        F.col("_best.landmark").alias("landmark"),
        F.col("_best.detour_km").alias("detour_km"),
    )


def least_detour(pickup: np.ndarray, dropoff: np.ndarray, work: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Direct distance, best landmark (from 1 on) and its detour in kilometres, per trip between two numbered places."""
    here, there, stops = place(pickup), place(dropoff), landmarks(work)
    direct = great_circle_km(here, there)
    landmark, detour = np.empty(len(pickup), "int32"), np.empty(len(pickup), "float64")
    for n in range(len(pickup)):
        length = great_circle_km((here[0][n], here[1][n]), stops) + great_circle_km(stops, (there[0][n], there[1][n]))
        nearest = int(length.argmin())
        landmark[n], detour[n] = nearest + 1, max(length[nearest] - direct[n], 0.0)
    return direct, landmark, detour


def great_circle_km(a: Place, b: Place) -> Any:
    """Haversine distance of two (latitude, longitude) in radians."""
    half_lat, half_lon = np.sin((b[0] - a[0]) / 2), np.sin((b[1] - a[1]) / 2)
    h = half_lat * half_lat + np.cos(a[0]) * np.cos(b[0]) * half_lon * half_lon
    return 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(h, 1.0)))


@lru_cache(maxsize=4)
def landmarks(work: int) -> Place:
    """They lie between the places of zones."""
    return place(np.arange(1, work + 1) + 0.5)


def place(number: np.ndarray) -> Place:
    """Latitude and longitude of numbered points of the lattice over the city, in radians."""
    north, east = number * LATTICE_NORTH, number * LATTICE_EAST
    return (
        np.radians(SOUTH + (north - np.floor(north)) * (NORTH - SOUTH)),
        np.radians(WEST + (east - np.floor(east)) * (EAST - WEST)),
    )
