"""A Spark standalone cluster: one master, and a worker for each node, confined to its core and tagged with its name."""

from __future__ import annotations

import json
import os

from spillway.embedded.config import HOST, package_dir, stack
from spillway.embedded.services.base import Context, Launch, Service, get_json, listens
from spillway.embedded.state import write_atomic

LESS_URGENT = 5
"""Drivers and executors yield to what controls them: who sheds an overload must not wait for it."""
LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yy/MM/dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def cores_of(node: str) -> tuple[int, ...]:
    """The cores a node may use: one of its own if the machine has at least two, else all."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(available) < 2:
        return ()
    return (available[int(stack()["nodes"][node]) % len(available)],)


def base_env(context: Context, *roles: str) -> dict[str, str]:
    conf = context.layout.run / "spark"
    env = context.service_env(*roles)
    env.update(
        {
            "SPARK_HOME": str(package_dir("pyspark")),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*stack()["spark"]["java_options"], "-XX:+ExitOnOutOfMemoryError"]),
            "SPARK_LOCAL_DIRS": str(context.layout.data / "spark" / "local"),
        }
    )
    return env


def options(settings: dict[str, str]) -> str:
    return " ".join(f"-D{k}={v}" for k, v in settings.items())


def prepare(context: Context) -> None:
    conf = context.layout.run / "spark"
    conf.mkdir(mode=0o700, exist_ok=True)
    (context.layout.data / "spark" / "local").mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(conf / "log4j2.properties", LOG4J)


def spark_class(env: dict[str, str], *arguments: str) -> list[str]:
    return [f"{env['SPARK_HOME']}/bin/spark-class", *arguments]


def launch_master(context: Context) -> Launch:
    settings = {**stack()["spark"]["master_settings"], "spark.master.rest.port": str(context.ports["spark_rest"])}
    env = base_env(context) | {
        "SPARK_MASTER_OPTS": options(settings),
        "SPARK_DAEMON_MEMORY": f"{stack()['spark']['master_heap_mb']}m",
    }
    command = spark_class(
        env, "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(context.ports["spark_master"])
    )
    command += ["--webui-port", str(context.ports["spark_ui"])]
    return Launch(command=command, env=env, cwd=context.layout.run)


def master_url(context: Context) -> str:
    return f"spark://{HOST}:{context.ports['spark_master']}"


def master_healthy(context: Context, pid: int) -> str | None:
    answer = get_json(f"http://{HOST}:{context.ports['spark_ui']}/json/")
    if answer is None:
        return "not answering yet"
    if answer.get("url") != master_url(context):
        return f"another Spark master answers on port {context.ports['spark_ui']}"
    if not listens(pid, context.ports["spark_rest"]):
        return f"the REST submission on port {context.ports['spark_rest']} is not open yet"
    return None


def worker(node: str) -> Service:
    name, port, ui = f"worker-{node}", f"worker_{node}", f"worker_{node}_ui"

    def prepare_worker(context: Context) -> None:
        prepare(context)
        tag = {"id": {"componentName": "spark.worker", "resourceName": node}}
        addresses = [str(i) for i in range(stack()["spark"]["worker_tag_amount"])]
        write_atomic(context.layout.run / "spark" / f"{node}.json", json.dumps([tag | {"addresses": addresses}]))
        (context.layout.data / "spark" / node).mkdir(mode=0o700, exist_ok=True)

    def launch(context: Context) -> Launch:
        settings = {
            **stack()["spark"]["worker_settings"],
            f"spark.worker.resource.{node}.amount": str(stack()["spark"]["worker_tag_amount"]),
            "spark.worker.resourcesFile": str(context.layout.run / "spark" / f"{node}.json"),
        }
        env = base_env(context, "job") | {
            "SPILLWAY_NODE": node,
            "SPARK_WORKER_OPTS": options(settings),
            "SPARK_DAEMON_MEMORY": f"{stack()['spark']['worker_heap_mb']}m",
        }
        command = spark_class(env, "org.apache.spark.deploy.worker.Worker", "--host", HOST, "--port", str(context.ports[port]))
        command += ["--webui-port", str(context.ports[ui]), "--cores", str(stack()["spark"]["worker_slots"])]
        command += ["--memory", stack()["spark"]["worker_memory"], "--work-dir", str(context.layout.data / "spark" / node)]
        command += [master_url(context)]
        return Launch(command=command, env=env, cwd=context.layout.run, cpus=cores_of(node), nice=LESS_URGENT)

    def healthy(context: Context, pid: int) -> str | None:
        mine = get_json(f"http://{HOST}:{context.ports[ui]}/json/")
        if mine is None or not listens(pid, context.ports[ui]):
            return "not answering yet"
        master = get_json(f"http://{HOST}:{context.ports['spark_ui']}/json/") or {}
        alive = {w["id"] for w in master.get("workers", []) if w.get("state") == "ALIVE"}
        return None if mine.get("id") in alive else "the master does not know it yet"

    return Service(
        name=name,
        needs=("spark-master",),
        port=ui,
        prepare=prepare_worker,
        launch=launch,
        healthy=healthy,
        start_timeout_s=stack()["spark"]["start_timeout_s"],
    )


MASTER = Service(
    name="spark-master",
    port="spark_ui",
    prepare=prepare,
    launch=launch_master,
    healthy=master_healthy,
    stop_stage=2,
    start_timeout_s=stack()["spark"]["start_timeout_s"],
)
WORKERS = tuple(worker(node) for node in stack()["nodes"])
