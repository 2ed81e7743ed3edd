"""The session in which an operator's query runs, and jobs on its state."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.runtime.checkpoint import BUCKETS

STREAMING = "org.apache.spark.sql.execution.streaming"


def session_conf(buckets: int, checkpoints: str) -> dict[str, str]:
    """What belongs to an operator's own session: its buckets, and state that survives in small pieces."""
    conf = {
        BUCKETS: str(buckets),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if checkpoints.startswith(("file:", "/")):
        # The default manager forks processes for permissions on a local file system: two to seven times the commit time.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    return conf


def operator_session(spark: SparkSession, buckets: int, checkpoints: str) -> SparkSession:
    """A session of its own beside the others of an application."""
    session = spark.newSession()
    for key, value in session_conf(buckets, checkpoints).items():
        session.conf.set(key, value)
    return session


def with_state_stores(spark: SparkSession) -> None:
    """Makes the coordinator of state stores, with which Spark begins at the first look at its queries: who loads a snapshot of
    state, or writes one, reports to it, also in a process that runs no query."""
    session: Any = spark._jsparkSession
    session.streams()
