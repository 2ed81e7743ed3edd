"""A real pipeline on the embedded services: apply, converge as the DAG does, feed, read what came out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from spillway.act.launch.standalone import StandaloneLauncher
from spillway.act.streams import converge
from spillway.embedded import Stack
from spillway.policy import Policy
from spillway.store import pipelines, settings
from spillway.topology import check_text


def until(what: Callable[[], Any], timeout_s: float, message: str | Callable[[], str], every_s: float = 0.5) -> Any:
    """Waits until `what` returns something true, and returns it."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {message if isinstance(message, str) else message()}")
        time.sleep(every_s)


class Line:
    """One pipeline. A thread converges every `every_s` seconds, in the place of spillway_streams; not where Airflow runs."""

    def __init__(self, stack: Stack, yaml: str, every_s: float = 3.0, converge_here: bool = True) -> None:
        self.stack, self.env = stack, stack.env
        pipeline, problems = check_text(yaml)
        assert pipeline is not None, "\n".join(str(p) for p in problems)
        self.pipeline, self._every_s, self._converge_here = pipeline, every_s, converge_here
        self.errors: list[str] = []
        self._stopping, self._own = threading.Event(), threading.local()
        with self.db() as connection:
            pipelines.apply(connection, pipeline, yaml, "test")
        self.admin = AdminClient({"bootstrap.servers": self.env["SPILLWAY_KAFKA"], "log_level": 0})
        there = self.admin.list_topics(timeout=10).topics
        external = {e.topic: e.partitions for e in pipeline.edges if e.producer is None and e.topic not in there}
        for future in self.admin.create_topics([NewTopic(t, n) for t, n in external.items()]).values() if external else ():
            future.result()
        self._thread = threading.Thread(target=self._converge, daemon=True)

    def __enter__(self) -> Line:
        with self.db() as connection:
            pipelines.set_desired(connection, self.pipeline.name, "running", "test")
        if self._converge_here:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.stop()
        self._stopping.set()
        if self._converge_here:
            self._thread.join(20)
        if (reader := getattr(self._own, "reader", None)) is not None:
            reader.close()
            self._own.reader = None

    @contextlib.contextmanager
    def db(self, role: str = "CONTROL") -> Iterator[Any]:
        connection = psycopg2.connect(self.env[f"SPILLWAY_DSN_{role}"], connect_timeout=3)
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """By a connection of this thread that stays, as tests ask often; where Postgres has ended it, by a new one."""
        if (known := getattr(self._own, "reader", None)) is not None:
            with contextlib.suppress(psycopg2.OperationalError, psycopg2.InterfaceError):
                return _fetched(known, text, parameters)
        self._own.reader = psycopg2.connect(self.env["SPILLWAY_DSN_READ"], connect_timeout=3)
        self._own.reader.autocommit = True
        return _fetched(self._own.reader, text, parameters)

    def _converge(self) -> None:
        environment = {**os.environ, **self.env, "SPARK_LOCAL_IP": "127.0.0.1"}
        policy = Policy(backoff_first_s=1.0, backoff_most_s=5.0)
        while not self._stopping.wait(self._every_s):
            try:
                with self.db() as connection:
                    converge(connection, StandaloneLauncher.from_environment(environment), policy)
            except Exception as error:  # a service is away on purpose: the next pass finds it
                self.errors.append(f"{type(error).__name__}: {error}")

    # -- steering

    def keep(self, edge: str, value: float, ttl_s: float | None = None) -> int:
        with self.db() as connection:
            return settings.set_keep(
                connection, self.pipeline.name, edge, value, ttl_s=ttl_s, by="test", reason="by hand"
            ).decision_id

    def stop(self, timeout_s: float = 60.0) -> None:
        with self.db() as connection:
            pipelines.set_desired(connection, self.pipeline.name, "stopped", "test")
        until(lambda: not self.drivers(), timeout_s, "the drivers end")

    def running(self) -> bool:
        waiting = """
            select a.application from spillway.application a
            left join spillway.heartbeat h using (pipeline, application, generation)
            where a.pipeline = %s and (h.state is distinct from 'running' or h.at < now() - interval '8 s')"""
        return not self.sql(waiting, self.pipeline.name)

    def _newest(self, operator: str, log: str) -> int:
        folder = Path(self.env["SPILLWAY_CHECKPOINTS"].removeprefix("file://")) / self.pipeline.name / operator / "0" / log
        return max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1)

    def planned(self, operator: str) -> int:
        """The newest batch in the operator's offset log."""
        return self._newest(operator, "offsets")

    def committed(self, operator: str) -> int:
        return self._newest(operator, "commits")

    # -- processes

    def _processes(self, wanted: Callable[[list[str]], bool]) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.Error):
                if wanted(process.info["cmdline"] or []) and process.environ().get("SPILLWAY_HOME") == str(
                    self.stack.layout.home
                ):
                    found.append(process)
        return found

    def drivers(self) -> list[psutil.Process]:
        """JVM and Python process of every driver of this pipeline."""
        name = self.pipeline.name
        return self._processes(lambda c: any(a.endswith("spark_jobs/run.py") for a in c) and "--pipeline" in c and name in c)

    def executors(self, application: str = "%") -> list[psutil.Process]:
        found = self.sql(
            "select distinct spark_app from spillway.heartbeat where pipeline = %s and application like %s",
            self.pipeline.name,
            application,
        )
        apps = {r[0] for r in found}
        return self._processes(lambda c: "--app-id" in c and "--executor-id" in c and c[c.index("--app-id") + 1] in apps)

    def kill(self, processes: list[psutil.Process], number: int = signal.SIGKILL) -> int:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return len(processes)

    # -- events

    def produce(self, topic: str, events: list[tuple[bytes | None, bytes]]) -> None:
        """Delivers every event exactly once, or fails."""
        producer, failed = self._producer(), list[str]()
        for key, value in events:
            producer.produce(topic, value, key, on_delivery=lambda e, _: failed.append(str(e)) if e else None)
            producer.poll(0)
        if producer.flush(60) or failed:
            producer.purge()
            del self._own.producer
            raise AssertionError(f"not delivered: {failed[:3]}")

    def _producer(self) -> Producer:
        """Of this thread: a new one for every few events would cost more than they do."""
        if not hasattr(self._own, "producer"):
            self._own.producer = Producer(
                {
                    "bootstrap.servers": self.env["SPILLWAY_KAFKA"],
                    "enable.idempotence": True,
                    "linger.ms": 10,
                    "delivery.timeout.ms": 60000,
                    "log_level": 0,
                }
            )
        return self._own.producer

    def consume(self, topic: str, committed: bool = True) -> list[tuple[int, int, bytes | None, bytes]]:
        """(partition, offset, key, value) of every committed record, or of every record at all."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.env["SPILLWAY_KAFKA"],
                "group.id": "test-reader",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        rows, ended, deadline = [], set(), time.monotonic() + 60
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"reading {topic} does not end"
            for message in consumer.consume(5000, timeout=1.0):
                if message.error() is None:
                    rows.append((message.partition(), message.offset(), message.key(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        consumer.close()
        return rows

    def records(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(value) for *_, value in self.consume(topic)]

    def end_offsets(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.env["SPILLWAY_KAFKA"], "group.id": "test-offsets", "log_level": 0})
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        total = sum(consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in partitions)
        consumer.close()
        return total

    def kill_inside_transaction(self, application: str, topic: str, timeout_s: float = 180.0) -> int:
        """Kills the executors of an application while one of them has written to the topic and neither committed nor aborted.
        They are stopped before that is looked at, so that it is still true when they are killed."""
        admin = AdminClient({"bootstrap.servers": self.env["SPILLWAY_KAFKA"], "log_level": 0})
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions

        def end(level: IsolationLevel) -> int:
            wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}
            return sum(f.result().offset for f in admin.list_offsets(wanted, isolation_level=level).values())

        def hit() -> int:
            executors = self.executors(application)
            families = [p for executor in executors for p in (executor, *executor.children(recursive=True))]
            self.kill(families, signal.SIGSTOP)
            time.sleep(0.2)  # a commit that was already on its way to the broker ends
            written = end(IsolationLevel.READ_UNCOMMITTED)
            if executors and end(IsolationLevel.READ_COMMITTED) < written:
                self.kill(families)
                return len(executors)
            self.kill(families, signal.SIGCONT)
            return 0

        return until(hit, timeout_s, f"an open transaction in {topic}", every_s=0.1)

    def caught_up(self, edge: str) -> bool:
        """The newest batch on the edge ended at the end of its topic, as the topic is now."""
        topic = next(e.topic for e in self.pipeline.edges if e.name == edge)
        rows = self.sql(
            "select distinct on (partition) partition, end_offset from spillway.partition_metric "
            "where pipeline = %s and edge = %s order by partition, checkpoint desc, batch_id desc",
            self.pipeline.name,
            edge,
        )
        return bool(rows) and sum(r[1] for r in rows) >= self.end_offsets(topic)


def _fetched(connection: Any, text: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        return cursor.fetchall()


def driver_log(stack: Stack) -> str:
    """The end of every driver's log, for a failed test's report."""
    logs = sorted(Path(stack.layout.home).rglob("driver-*/stderr"), key=lambda p: p.stat().st_mtime)
    return "\n".join(f"== {p.parent.name}\n" + "\n".join(p.read_text(errors="replace").splitlines()[-15:]) for p in logs[-3:])
