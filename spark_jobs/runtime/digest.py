"""What the state of a query is at one committed batch: where it lies, how much, and a checksum of it, bucket by bucket.

A checksum is the sum modulo 2^64 of the hashes of all rows (column family, key, value as they are stored), so it depends neither
on their order nor on the bucket they lie in: the sums over all buckets are equal before and after a repartition.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.runtime.checkpoint import Checkpoint
from spark_jobs.runtime.session import with_state_stores
from spark_jobs.runtime.state_files import STATE, state_of

MODULUS = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """One bucket of state at one batch."""

    bucket: int
    location: str
    version: int
    bytes: int
    rows: int | None = None
    checksum: int | None = None


def handles(checkpoint: Checkpoint, batch_id: int) -> list[Handle]:
    """Where every bucket of the state of a batch lies. Cheap: files are listed, nothing of the state is read."""
    sizes: dict[int, int] = defaultdict(int)
    folders: dict[int, set[str]] = defaultdict(set)
    for part in state_of(checkpoint, batch_id):
        sizes[part.bucket] += part.bytes
        folders[part.bucket].add(part.folder[1])
    return [
        Handle(
            bucket=bucket,
            location="/".join((checkpoint.location, STATE, ",".join(sorted(folders[bucket])), str(bucket))),
            version=batch_id + 1,
            bytes=sizes[bucket],
        )
        for bucket in sorted(sizes)
    ]


def digest(spark: SparkSession, location: str, batch_id: int) -> dict[int, tuple[int, int]]:
    """Rows and checksum of every bucket of the state of a batch. Reads the whole state."""
    with_state_stores(spark)
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for operator, store in _stores(spark, location):
        for bucket, rows, total in _summed(spark, location, batch_id, operator, store):
            known_rows, known = found[bucket]
            found[bucket] = (known_rows + rows, (known + total) % MODULUS)
    buckets = Checkpoint(spark, location).buckets(batch_id) or 0
    return {bucket: found[bucket] for bucket in range(buckets)} if found else {}


def digested(spark: SparkSession, location: str, batch_id: int) -> list[Handle]:
    """The handles of a batch with their rows and checksums."""
    sums = digest(spark, location, batch_id)
    return [
        Handle(bucket=h.bucket, location=h.location, version=h.version, bytes=h.bytes, rows=rows, checksum=checksum)
        for h in handles(Checkpoint(spark, location), batch_id)
        for rows, checksum in [sums.get(h.bucket, (0, 0))]
    ]


def _stores(spark: SparkSession, location: str) -> list[tuple[int, str]]:
    listed = spark.read.format("state-metadata").load(location).select("operatorId", "stateStoreName").distinct().collect()
    return sorted((int(row["operatorId"]), str(row["stateStoreName"])) for row in listed)


def _summed(spark: SparkSession, location: str, batch_id: int, operator: int, store: str) -> list[tuple[int, int, int]]:
    """(bucket, rows, sum of hashes). State is read as it is stored, all column families of a store at once; then a task has the
    rows of one bucket and does not name it."""
    jvm: Any = spark._jvm
    whole = jvm.org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions.INTERNAL_ONLY_READ_ALL_COLUMN_FAMILIES()
    rows = (
        spark.read.format("statestore")
        .option("batchId", batch_id)
        .option("operatorId", operator)
        .option("storeName", store)
        .option(whole, "true")
        .load(location)
    )
    hashed = F.xxhash64("column_family_name", "key_bytes", "value_bytes").cast("decimal(20,0)")
    summed = (
        rows.select(F.spark_partition_id().alias("bucket"), hashed.alias("hash"))
        .groupBy("bucket")
        .agg(F.count(F.lit(1)).alias("rows"), F.sum("hash").cast("decimal(38,0)").alias("total"))
        .collect()
    )
    return [(int(r["bucket"]), int(r["rows"]), int(r["total"])) for r in summed]
