"""Changes in how many buckets the state of a stopped query lies.

Spark can since 4.2 (`StreamingCheckpointManager.repartition`, not a public API yet): it adds a batch without input to the
checkpoint, whose state is that of the batch before in another number of partitions. Only batch ids go on; what a sink has
under older ones stays right. If it dies on the way, the checkpoint holds a batch that was begun with another number of partitions
than the one before: no query starts on it until the same repartition was run to its end.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.runtime.checkpoint import Checkpoint, Head
from spark_jobs.runtime.session import with_state_stores
from spark_jobs.runtime.state_files import STATE

FIRST = (4, 2)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "RocksDBStateStoreProvider"
OPERATORS = frozenset(
    [
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "sessionWindowStateStoreSaveExec",
        "symmetricHashJoin",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        "transformWithStateExec",
        "transformWithStateInPandasExec",
        "transformWithStateInPySparkExec",
    ]
)
"""Stateful operators of whose state Spark knows the key that it is distributed by."""


class Unsupported(RuntimeError):
    """Why the state cannot be given other buckets, in one sentence."""


def supported(spark: SparkSession) -> str | None:
    """None, or why this Spark cannot do it."""
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < FIRST or not hasattr(spark, "_streamingCheckpointManager"):
        return (
            f"Spark {spark.version} cannot repartition state: buckets can be changed with Spark {FIRST[0]}.{FIRST[1]} and newer"
        )
    return None


def refusal(spark: SparkSession, location: str) -> str | None:
    """None, or why the state at `location` cannot be repartitioned. Asked before anything is written: Spark itself finds some
    of it out too late."""
    if reason := supported(spark):
        return reason
    checkpoint = Checkpoint(spark, location)
    head = checkpoint.head()
    if head.committed < 0:
        return f"the checkpoint at {location} has no committed batch yet: there is no state to repartition"
    entry = checkpoint.entry(head.committed)
    provider = str(entry.metadata.get("conf", {}).get(PROVIDER, "")) if entry else ""
    if not provider.endswith(ROCKSDB):
        return (
            f"the state at {location} is kept by {provider or 'an unknown provider'}: only that of {ROCKSDB} can be repartitioned"
        )
    unknown = sorted(_operators(spark, location) - OPERATORS)
    if unknown:
        return f"the state at {location} belongs to {', '.join(unknown)}, whose state Spark cannot repartition"
    return None


def _operators(spark: SparkSession, location: str) -> set[str]:
    return {row["operatorName"] for row in spark.read.format("state-metadata").load(location).select("operatorName").collect()}


def has_state(checkpoint: Checkpoint) -> bool:
    return any(name.isdigit() for name in checkpoint.files(STATE))


def unfinished(checkpoint: Checkpoint, head: Head | None = None) -> int | None:
    """The buckets of a repartition that was begun and not committed; None when there is none."""
    head = head or checkpoint.head()
    if head.settled or head.committed < 0:
        return None
    begun, before = checkpoint.buckets(head.planned), checkpoint.buckets(head.committed)
    return begun if begun != before and has_state(checkpoint) else None


def repartition(spark: SparkSession, location: str, buckets: int) -> int:
    """Gives the state `buckets` buckets, first finishing what was begun before; returns the batch that holds it then.

    The query must be stopped, at a committed batch. Nothing is done when the state is like that already.
    """
    checkpoint = Checkpoint(spark, location)
    if reason := refusal(spark, location):
        raise Unsupported(reason)
    begun = unfinished(checkpoint)
    if begun is not None:
        _run(spark, location, begun)
    head = checkpoint.head()
    if not head.settled:
        raise RuntimeError(
            f"batch {head.planned} of {location} was begun and is not committed: its query has to finish it before its state can "
            "be repartitioned"
        )
    if checkpoint.buckets(head.committed) != buckets:
        _run(spark, location, buckets)
    return checkpoint.last_commit()


def _run(spark: SparkSession, location: str, buckets: int) -> None:
    with_state_stores(spark)
    try:
        spark._streamingCheckpointManager.repartition(location, buckets)
    except PySparkException as error:
        said = str(error).strip().splitlines()
        raise RuntimeError(
            f"the state at {location} could not be given {buckets} buckets: {said[0] if said else error!r}"
        ) from error
