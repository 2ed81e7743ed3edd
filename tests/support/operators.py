"""Operators of the pipelines that the tests run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs import estimate
from spark_jobs.operators.carry import carry


def _slowly(df: DataFrame, pause_s: float = 0.0, row_s: float = 0.0) -> DataFrame:
    """The same rows with a pause per Arrow batch, so that the sink's transaction is open most of the time, and one per row."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(pause_s + row_s * batch.num_rows)
            yield batch

    return df.mapInArrow(slow, df.schema)


def slow_pass(df: DataFrame, pause_s: float = 0.02) -> DataFrame:
    """Every row as it is."""
    return _slowly(df.select("n", "key", "lineage", "_src"), pause_s)


def slow_rows(df: DataFrame, row_s: float = 0.01) -> DataFrame:
    """Every row as it is, after a time of its own, whatever else the machine does."""
    return _slowly(df.select(*carry(df), "n"), row_s=row_s)


def plain_pass(df: DataFrame) -> DataFrame:
    """Every row as it is, without `_src`: the sink has to shuffle by key."""
    return df.select("n", "key", "lineage")


def hand_on_key(df: DataFrame) -> DataFrame:
    """Every row as it is, with its origin: written by source partition."""
    return df.select(*carry(df), "n", "key")


def hand_on(df: DataFrame) -> DataFrame:
    """Every row as it is, with its origin and its weight."""
    return df.select(*carry(df), "n", "x", "at")


def weighed(df: DataFrame) -> DataFrame:
    """Per minute of `at`: the sum of `x` and the count with their bars, and the weights they were made of."""
    return (
        df.groupBy(F.window("at", "1 minute").alias("w"))
        .agg(
            estimate.weighted_sum("x").alias("total"),
            estimate.sum_error("x").alias("total_error"),
            estimate.weighted_count().alias("events"),
            estimate.count_error().alias("events_error"),
            F.count(F.lit(1)).alias("rows"),
            F.min("weight").alias("least"),
            F.max("weight").alias("most"),
        )
        .select(
            F.unix_seconds("w.start").alias("window"), "total", "total_error", "events", "events_error", "rows", "least", "most"
        )
    )


def tally(df: DataFrame, pause_s: float = 0.0) -> DataFrame:
    """Per key: how many rows, and a checksum over which ones."""
    counted = df.groupBy("key").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("n").alias("total"), F.sum(F.xxhash64("lineage") % 1000003).alias("checksum")
    )
    return _slowly(counted, pause_s) if pause_s else counted
