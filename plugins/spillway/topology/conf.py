"""Spark settings a topology may not give, because Spillway sets them itself or because they do not belong in a file."""

from __future__ import annotations

import re

_OWNED: tuple[tuple[str, str], ...] = (
    ("spark.master", "it comes from SPILLWAY_SPARK_MASTER"),
    ("spark.submit.*", "the launcher sets it"),
    ("spark.app.*", "the name of an application identifies it"),
    ("spark.spillway.*", "it identifies the application"),
    ("spark.sql.shuffle.partitions", "use `buckets` of the operator"),
    ("spark.sql.adaptive.enabled", "a stateful plan must not change its partitions"),
    ("spark.sql.session.timeZone", "everything is in UTC"),
    ("spark.sql.streaming.checkpointLocation", "it comes from SPILLWAY_CHECKPOINTS"),
    ("spark.sql.streaming.checkpointFileManagerClass", "it follows from SPILLWAY_CHECKPOINTS"),
    ("spark.hadoop.fs.file.impl", "the launcher knows what is on the class path"),
    ("spark.sql.streaming.stateStore.*", "the state format belongs to the checkpoint"),
    ("spark.executor.instances", "use `executors` of the application"),
    ("spark.executor.cores", "use `slots` of the application"),
    ("spark.cores.max", "use `executors` and `slots` of the application"),
    ("spark.driver.cores", "a driver takes one core"),
    ("spark.driver.memory", "use `driver_memory` of the application"),
    ("spark.executor.memory", "use `executor_memory` of the application"),
    ("spark.driver.resource.*", "use `node` of the application"),
    ("spark.executor.resource.*", "use `node` of the application"),
    ("spark.task.resource.*", "use `node` of the application"),
    ("spark.kubernetes.node.selector.*", "use `node` of the application"),
    ("spark.yarn.am.nodeLabelExpression", "use `node` of the application"),
    ("spark.yarn.executor.nodeLabelExpression", "use `node` of the application"),
    ("spark.kubernetes.driver.pod.name", "it identifies the application"),
    ("spark.kubernetes.driver.label.spillway*", "it identifies the application"),
    ("spark.kubernetes.driver.annotation.spillway*", "it identifies the application"),
    ("spark.yarn.tags", "it identifies the application"),
    ("spark.yarn.maxAppAttempts", "spillway_streams restarts drivers"),
    ("spark.driver.supervise", "spillway_streams restarts drivers"),
    ("spark.task.cpus", "an executor's slots count tasks"),
    ("spark.dynamicAllocation.*", "it decides how many executors there are"),
    ("spark.decommission.enabled", "executors are taken away in order"),
    ("spark.port.maxRetries", "Spark must not slide to a stranger's port"),
    ("spark.ui.port", "ports are chosen free"),
    ("spark.driver.port", "ports are chosen free"),
    ("spark.blockManager.port", "ports are chosen free"),
    ("spark.driver.host", "the launcher knows the address"),
    ("spark.driver.bindAddress", "the launcher knows the address"),
)
_SECRET = re.compile(r"secret|password|passwd|token|access[._]?key|credential", re.IGNORECASE)


def refusal(key: str) -> str | None:
    """Why this setting may not be given, or None."""
    if not key.startswith("spark."):
        return "is not a Spark setting"
    for owned, instead in _OWNED:
        if key == owned or (owned.endswith("*") and key.startswith(owned[:-1])):
            return f"Spillway sets it: {instead}"
    if _SECRET.search(key):
        return "a secret would be stored readable with the topology: give it in the environment of the workers"
    return None
