"""Checkpoints of a small stateful query on a local session: a count per key over files, a batch per file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime.checkpoint import Checkpoint
from spark_jobs.runtime.session import operator_session

KEYS = 1000


class Counted:
    """`feed` writes one file, `run` reads all there are, a batch each, with RocksDB and a changelog."""

    def __init__(self, spark: SparkSession, folder: Path, buckets: int, provider: str | None = None) -> None:
        self.spark = operator_session(spark, buckets, f"file:{folder}")
        self.spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3")
        if provider:
            self.spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        self.source, self.location, self.fed = folder / "source", f"file:{folder}/checkpoint", 0
        self.source.mkdir(parents=True)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.spark, self.location)

    def feed(self, files: int = 1) -> None:
        for _ in range(files):
            lines = "".join(f'{{"k":"k{(self.fed * 7 + n) % KEYS}"}}\n' for n in range(400))
            (self.source / f"{self.fed:05d}.json").write_text(lines)
            self.fed += 1

    def run(self, location: str | None = None, function: Callable[[DataFrame], DataFrame] | None = None) -> Any:
        frame = self.spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(str(self.source))
        counted = function(frame) if function else frame.groupBy("k").count()
        query = (
            counted.writeStream.format("noop")
            .outputMode("append" if function else "update")
            .option("checkpointLocation", location or self.location)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def counts(self, location: str | None = None) -> dict[str, int]:
        state = self.spark.read.format("statestore").load(location or self.location)
        return {row[0]: row[1] for row in state.selectExpr("key.k", "value.count").collect()}

    def expected(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in range(self.fed):
            for n in range(400):
                key = f"k{(file * 7 + n) % KEYS}"
                found[key] = found.get(key, 0) + 1
        return found
