"""What a driver and an executor do first, in small, for the classes that it loads. Run by Spark, with a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

NAMED = (
    "org.apache.spark.deploy.worker.DriverWrapper",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.ExecutorAllocationManager",
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.spark.sql.kafka010.KafkaBatchPartitionReader",
    "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer",
    "org.apache.kafka.clients.admin.KafkaAdminClient",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
    "org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer",
)
"""Loaded by name: there is no cluster and no broker here."""
BATCHES = 3


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def main(folder: str) -> None:
    spark = (
        SparkSession.builder.config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    jvm: Any = spark._jvm
    for name in NAMED:
        jvm.java.lang.Class.forName(name)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    counted = rows.selectExpr("value", "cast(value % 7 as string) as key").mapInArrow(same, "value bigint, key string")
    query = (
        counted.groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < BATCHES):
        query.awaitTermination(0.2)  # type: ignore[arg-type]
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
