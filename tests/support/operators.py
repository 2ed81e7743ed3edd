"""Operators of the pipelines that the tests run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def _slowly(df: DataFrame, pause_s: float) -> DataFrame:
    """The same rows with a pause per Arrow batch, so that the sink's transaction is open most of the time."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(pause_s)
            yield batch

    return df.mapInArrow(slow, df.schema)


def slow_pass(df: DataFrame, pause_s: float = 0.02) -> DataFrame:
    """Every row as it is."""
    return _slowly(df.select("n", "key", "lineage", "_src"), pause_s)


def plain_pass(df: DataFrame) -> DataFrame:
    """Every row as it is, without `_src`: the sink has to shuffle by key."""
    return df.select("n", "key", "lineage")


def tally(df: DataFrame, pause_s: float = 0.0) -> DataFrame:
    """Per key: how many rows, and a checksum over which ones."""
    counted = df.groupBy("key").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("n").alias("total"), F.sum(F.xxhash64("lineage") % 1000003).alias("checksum")
    )
    return _slowly(counted, pause_s) if pause_s else counted
