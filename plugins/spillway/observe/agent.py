"""The program beside the workers: `python -m spillway.observe.agent`.

Every few seconds it measures the nodes it stands for, their executors and drivers, and the end offsets of what pipelines read.
Postgres or Kafka being away stops none of the rest.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psutil

from spillway.observe.buffer import Buffer, Row, Writer
from spillway.observe.node import Nodes, NodeSample, parse_nodes
from spillway.observe.processes import Processes, Usage
from spillway.observe.topics import EndOffset, Topics
from spillway.policy import Policy, PolicyError
from spillway.store.connection import connect
from spillway.store.environment import environment
from spillway.store.errors import StoreError
from spillway.store.queries import query, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.agent")
TABLES = ("executor_cpu", "node_metric", "topic_metric")
TOPICS_LOCK = "spillway.topics"
REFRESH_S = 10.0
LEAD_S = 0.2
"""How long before a full interval of the clock it measures: windows end there, and nothing later belongs to them."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Whose a Spark application is, as far as its driver has said so."""

    owner: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """spark_app → pipeline, application"""
    spark_app: Mapping[str, str] = field(default_factory=dict)
    """spillway:pipeline:application:generation → spark_app"""


def executor_rows(usages: Iterable[Usage], directory: Directory, at: datetime) -> list[Row]:
    """Rows of executor_cpu. A driver that has not said its application id yet goes by its name."""
    found = []
    for usage in usages:
        name = usage.role.name
        app = usage.role.spark_app or directory.spark_app.get(name or "", name or "")
        pipeline, application = tuple(name.split(":")[1:3]) if name else directory.owner.get(app, (None, None))
        values = (usage.node, app, usage.role.executor, pipeline, application, at, usage.cpu_pct, usage.rss_bytes, usage.window_s)
        found.append(("executor_cpu", values))
    return found


def node_rows(samples: Iterable[NodeSample], usages: Sequence[Usage], at: datetime) -> list[Row]:
    found = []
    for s in samples:
        own = sum(u.cpu_pct for u in usages if u.node == s.node)
        measured = (s.cores, s.cpu_pct, own, s.load1, s.mem_used, s.mem_total, s.net_rx_bps, s.net_tx_bps)
        found.append(("node_metric", (s.node, at, *measured, s.window_s)))
    return found


def until_next(interval_s: float, now_s: float) -> float:
    """Seconds to the next measurement, shortly before the clock shows a multiple of the interval; not one that is almost due.

    >>> until_next(5.0, 100.0), until_next(5.0, 104.5), until_next(5.0, 104.8)
    (4.8, 5.3, 5.0)
    """
    wait_s = interval_s - (now_s + LEAD_S) % interval_s
    return round(wait_s if wait_s >= interval_s / 4 else wait_s + interval_s, 6)


def topic_rows(offsets: Iterable[EndOffset], at: datetime) -> list[Row]:
    return [("topic_metric", (o.topic, o.partition, at, o.end_offset)) for o in offsets]


class Surroundings(threading.Thread):
    """What has to be asked of others, and may take its time: the directory from Postgres, end offsets from Kafka."""

    def __init__(
        self, buffer: Buffer, kafka: str | None, interval_s: float, stop: threading.Event, wake: Callable[[], None]
    ) -> None:
        super().__init__(name="surroundings", daemon=True)
        self.directory = Directory()
        self._buffer, self._wake = buffer, wake
        self._topics = Topics(kafka) if kafka else None
        self._interval_s = interval_s
        self._stop_asked = stop
        self._conn: Connection | None = None
        self._read_at = float("-inf")
        self._reads: list[str] = []
        self._ours = False

    def run(self) -> None:
        while not self._stop_asked.wait(until_next(self._interval_s, time.time())):
            now_s = time.monotonic()
            if self._topics is not None and self._ours:
                self._read_offsets(self._topics, now_s)
            if now_s - self._read_at >= REFRESH_S:
                self._read_at = now_s
                self._refresh()

    def _read_offsets(self, topics: Topics, now_s: float) -> None:
        """Dated in the middle between question and answer."""
        asked = datetime.now(UTC)
        try:
            offsets = topics.end_offsets(self._reads, now_s)
        except Exception as error:  # KafkaException, or a time-out of the future
            log.warning("End offsets wait for Kafka: %s", error)
            return
        self._buffer.add(topic_rows(offsets, asked + (datetime.now(UTC) - asked) / 2))
        self._wake()

    def _refresh(self) -> None:
        try:
            if self._conn is None or self._conn.closed:
                self._conn = connect("job", application_name="spillway-agent", connect_timeout_s=3, autocommit=True)
                self._ours = False  # the lock went with the last session
            known = rows(self._conn, "agent_applications")
            self.directory = Directory(
                {r["spark_app"]: (r["pipeline"], r["application"]) for r in known},
                {f"spillway:{r['pipeline']}:{r['application']}:{r['generation']}": r["spark_app"] for r in known},
            )
            self._reads = [r["topic"] for r in rows(self._conn, "agent_topics")]
            self._ours = self._lead(self._conn)
        except Exception as error:  # the last known directory stays in force
            log.warning("The directory of applications waits for Postgres: %s", error)
            self._conn = None

    def _lead(self, conn: Connection) -> bool:
        """One agent of an installation reads the offsets: whoever has the lock. While Postgres is away it goes on doing so."""
        if self._ours:
            return True
        with conn.cursor() as cursor:
            cursor.execute("select pg_try_advisory_lock(hashtext(%s))", (TOPICS_LOCK,))
            held = cursor.fetchone()
        return bool(held and held[0])


def run(environ: Mapping[str, str], policy: Policy, stop: threading.Event) -> None:
    """Measures until `stop` is set."""
    nodes = parse_nodes(environ, psutil.cpu_count() or 1)
    buffer = Buffer(policy.agent_buffer_rows)
    writer = Writer(
        buffer,
        lambda: connect(
            "job", application_name="spillway-agent", connect_timeout_s=3, statement_timeout_s=policy.metric_timeout_s
        ),
        {table: query(f"agent_insert_{table}") for table in TABLES},
        ",".join(nodes),
    )
    surroundings = Surroundings(buffer, environ.get("SPILLWAY_KAFKA"), policy.agent_interval_s, stop, writer.wake)
    processes = Processes(nodes, time.monotonic())
    processes.rescan()
    last = time.monotonic()
    processes.measure(last)  # what was used before the first window is nobody's
    node_meter = Nodes(nodes, last)
    writer.start()
    surroundings.start()
    log.info("Measuring %s every %g s.", ", ".join(nodes), policy.agent_interval_s)
    while not stop.wait(until_next(policy.agent_interval_s, time.time())):
        processes.rescan()
        last, at = time.monotonic(), datetime.now(UTC)
        usages = processes.measure(last)
        buffer.add(executor_rows(usages, surroundings.directory, at))
        buffer.add(node_rows(node_meter.measure(last), usages, at))
        writer.wake()
    writer.end(timeout_s=5.0)


def main() -> int:
    logging.basicConfig(level=os.environ.get("SPILLWAY_LOG", "INFO"), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run(environment(), Policy.load(), stop)
    except (ValueError, StoreError, PolicyError) as error:
        print(f"spillway agent: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
