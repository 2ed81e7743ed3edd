"""A LaunchSpec as Spark properties. Pure.

Three layers: what Spillway suggests, then what the application declares, then what Spillway has to own (identity, placement, size
and everything that exactly-once and hand-over depend on).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.act.launch import LaunchSpec

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For drivers, which plan and wait, and where everything lives on one machine: starting quickly counts."""
EXECUTOR_JVM = "-XX:+UseSerialGC"
"""Executors run the same code for weeks and get the full compiler."""
NEVER = "365d"
NODE_LABEL = "spillway/node"
STORE = "spark.spillway.store"

PYTHON_DAEMON = "spark_jobs.workers"
"""Makes the Python workers of an executor; like the sinks it has to be on the PYTHONPATH there."""

SUGGESTED: Mapping[str, str] = {
    "spark.python.daemon.module": PYTHON_DAEMON,
    "spark.locality.wait": "0s",  # otherwise a new executor stays idle: state stays where it was loaded
    "spark.scheduler.mode": "FAIR",  # several operators share an application
    "spark.task.maxFailures": "8",
    # A stopped executor is given up after 12 s, not after 2 min. What else derives from the network timeout keeps its patience.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "2s",
    "spark.rpc.askTimeout": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "64",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    # The page of an endless application would otherwise grow to fill a small driver.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "20",
}

OWNED: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # a stateful plan must not change its partitions
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.decommission.enabled": "true",
    # Every port is a free one of the system's choosing; a taken port is an error, never a slide to the next.
    "spark.ui.port": "0",
    "spark.driver.port": "0",
    "spark.blockManager.port": "0",
    "spark.port.maxRetries": "0",
}

# Spark's default manager forks a process per file on a local file system (two to seven times the commit time).
LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOCAL_FILES = {"spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"}
"""Hadoop's own class forks a `chmod` for every file it makes, also those that state is loaded into. See ADR 27."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is the same for every application of an installation."""

    master: str
    jars: str = ""
    """Folder of the connector jars, on every machine of a standalone cluster and in the image of a Kubernetes one."""
    checkpoints: str = ""
    archive: str = ""
    """Of Spark's classes, for a class path that begins with the connector jars and those of Spark; empty: there is none."""
    spark_jars: str = ""
    local_ip: str | None = None
    """Set where everything lives on one machine: drivers listen there and nowhere else."""


def spark_properties(spec: LaunchSpec, cluster: Cluster) -> dict[str, str]:
    """Properties that hold on every cluster, without placement (see `standalone`, `kubernetes`, `yarn`)."""
    user = dict(spec.conf)
    shared = f"-XX:SharedArchiveFile={cluster.archive} -Xlog:cds=off" if cluster.archive else ""
    java = {
        f"spark.{role}.extraJavaOptions": " ".join(filter(None, (ours, shared, user.pop(f"spark.{role}.extraJavaOptions", ""))))
        for role, ours in (("driver", QUICK_JVM), ("executor", QUICK_JVM if cluster.local_ip else EXECUTOR_JVM))
    }
    owned = {
        **OWNED,
        **java,
        "spark.app.name": spec.name,
        STORE: spec.store,
        "spark.driver.memory": f"{spec.driver_memory_mb}m",
        "spark.executor.memory": f"{spec.executor_memory_mb}m",
        "spark.executor.cores": str(spec.slots),
    }
    if cluster.checkpoints.startswith("file:"):
        owned["spark.sql.streaming.checkpointFileManagerClass"] = LOCAL_CHECKPOINTS
    if cluster.local_ip:
        owned |= {"spark.driver.host": cluster.local_ip, "spark.driver.bindAddress": cluster.local_ip}
    return {**SUGGESTED, **user, **owned}


def standalone(spec: LaunchSpec, cluster: Cluster) -> dict[str, str]:
    """For Spark standalone.

    `spark.cores.max` is fixed for the life of an application, so it has to leave room for the largest size; but the standalone
    master ignores `spark.executor.instances` and fills the room at once. Dynamic allocation whose time-outs never pass makes it
    begin with exactly the asked number and stay there. The room is for plans to rescale, which ask for more by
    `requestTotalExecutors`.
    """
    size = str(spec.executors)
    properties = {
        **spark_properties(spec, cluster),
        "spark.master": cluster.master,
        "spark.cores.max": str(max(spec.max_executors, spec.executors) * spec.slots),
        "spark.driver.cores": "1",
        "spark.driver.supervise": "false",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": size,
        "spark.dynamicAllocation.minExecutors": size,
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": NEVER,
        "spark.dynamicAllocation.executorIdleTimeout": NEVER,
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": NEVER,
        "spark.dynamicAllocation.schedulerBacklogTimeout": NEVER,
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": NEVER,
    }
    properties.pop("spark.executor.instances", None)
    if cluster.jars:  # where the class is on the class path of every process from its start
        properties |= LOCAL_FILES
    if spec.node:
        properties[f"spark.executor.resource.{spec.node}.amount"] = "1"
        properties[f"spark.driver.resource.{spec.node}.amount"] = "1"
    return with_class_path(properties, cluster)


def kubernetes(spec: LaunchSpec, cluster: Cluster) -> dict[str, str]:
    properties = {
        **spark_properties(spec, cluster),
        "spark.executor.instances": str(spec.executors),
        "spark.kubernetes.driver.pod.name": pod_name(spec),
        "spark.kubernetes.driver.label.spillway-store": spec.store,
        "spark.kubernetes.driver.annotation.spillway-name": spec.name,
    }
    if spec.node:
        properties[f"spark.kubernetes.node.selector.{NODE_LABEL}"] = spec.node
    return with_class_path(properties, cluster)


def yarn(spec: LaunchSpec, cluster: Cluster) -> dict[str, str]:
    properties = {
        **spark_properties(spec, cluster),
        "spark.executor.instances": str(spec.executors),
        "spark.yarn.tags": f"spillway-{spec.store}",
        "spark.yarn.maxAppAttempts": "1",  # Spillway restarts a driver itself, with a new generation
    }
    if spec.node:
        properties["spark.yarn.am.nodeLabelExpression"] = spec.node
        properties["spark.yarn.executor.nodeLabelExpression"] = spec.node
    if cluster.jars:  # uploaded with the application
        properties["spark.jars"] = ",".join(filter(None, (f"{cluster.jars.rstrip('/')}/*.jar", properties.get("spark.jars", ""))))
    return properties


def with_class_path(properties: dict[str, str], cluster: Cluster) -> dict[str, str]:
    """The connector jars where they lie on the machine already: on the class path, so that nothing is copied at start."""
    if cluster.jars:
        ours = [f"{folder.rstrip('/')}/*" for folder in (cluster.jars, cluster.spark_jars) if folder]
        for key in ("spark.driver.extraClassPath", "spark.executor.extraClassPath"):
            properties[key] = ":".join(filter(None, (*ours, properties.get(key, ""))))
    return properties


def pod_name(spec: LaunchSpec) -> str:
    """
    >>> pod_name(LaunchSpec(pipeline="ad_analytics", application="count", generation=2, store="7f3a"))
    'spillway-7f3a-ad-analytics-count-2'
    """
    return "-".join(("spillway", spec.store, spec.pipeline, spec.application, str(spec.generation))).replace("_", "-").lower()


def cluster_from(environment: Mapping[str, str], master: str) -> Cluster:
    return Cluster(
        master=master,
        jars=environment.get("SPILLWAY_JARS", ""),
        archive=environment.get("SPILLWAY_CLASS_ARCHIVE", ""),
        spark_jars=environment.get("SPILLWAY_SPARK_JARS", ""),
        checkpoints=environment.get("SPILLWAY_CHECKPOINTS", ""),
        local_ip=environment.get("SPARK_LOCAL_IP"),
    )
