"""Apache Kafka: one process as broker and controller."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from spillway.embedded.config import HOST, package_dir, stack
from spillway.embedded.errors import EmbeddedError, tail
from spillway.embedded.services.base import Context, Launch, Service
from spillway.embedded.state import write_atomic

LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


def folder(context: Context) -> Path:
    return context.layout.data / "kafka"


def classpath(context: Context) -> str:
    """The broker's jars, preceded by a log binding from PySpark's (the broker's own set has none)."""
    spark = package_dir("pyspark") / "jars"
    binding = [str(p) for pattern in ("slf4j-api-2*.jar", "log4j-slf4j2-impl-*.jar") for p in spark.glob(pattern)]
    return ":".join([*binding, f"{context.jars['broker']}/*"])


def cluster_id(context: Context) -> str:
    """The id given to this run folder's cluster, by which an answer is known to be ours."""
    path = folder(context) / "cluster-id"
    if not path.exists():
        # Without "-", which is in the alphabet: in front, Kafka's tools would take the id for an option.
        write_atomic(path, base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_"))
    return path.read_text().strip()


def prepare(context: Context) -> None:
    """Write the settings and format the log folder once."""
    base = folder(context)
    base.mkdir(mode=0o700, exist_ok=True)
    broker, controller = context.ports["kafka"], context.ports["kafka_controller"]
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(base / "log"),
        **stack()["kafka"]["settings"],
    }
    text = "".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}\n" for k, v in settings.items())
    write_atomic(base / "server.properties", text)
    write_atomic(base / "log4j2.properties", LOG4J)
    if (base / "log" / "meta.properties").exists():
        return
    command = [str(context.java_home / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath(context)]
    command += [
        f"-Dlog4j2.configurationFile={base / 'log4j2.properties'}",
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
    ]
    command += ["-t", cluster_id(context), "-c", str(base / "server.properties")]
    with context.layout.log("kafka").open("ab") as log:
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=context.service_env()).returncode
    if code != 0:
        log_file = context.layout.log("kafka")
        reason = tail(str(log_file), 1).strip() or "it says nothing"
        raise EmbeddedError(f"Kafka cannot format its folder {base / 'log'} (code {code}: {reason}): see {log_file}.")


def launch(context: Context) -> Launch:
    base = folder(context)
    heap = stack()["kafka"]["heap_mb"]
    command = [
        str(context.java_home / "bin" / "java"),
        f"-Xmx{heap}m",
        f"-Xms{heap // 4}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
    ]
    command += [
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={base / 'log4j2.properties'}",
    ]
    command += ["-cp", classpath(context), "kafka.Kafka", str(base / "server.properties")]
    return Launch(command=command, env=context.service_env(), cwd=base)


def healthy(context: Context, _: int) -> str | None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    port = context.ports["kafka"]
    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "socket.connection.setup.timeout.ms": 3000, "log_level": 0})
    try:
        metadata = client.list_topics(timeout=3)
    except KafkaException:
        return "not answering yet"
    if str(metadata.cluster_id) != cluster_id(context):
        return f"another Kafka answers on port {port}"
    if not metadata.brokers:
        return "the broker has not registered yet"
    return None


SERVICE = Service(
    name="kafka",
    port="kafka",
    prepare=prepare,
    launch=launch,
    healthy=healthy,
    start_timeout_s=stack()["kafka"]["start_timeout_s"],
    stop_timeout_s=30,
    stop_stage=2,
)
