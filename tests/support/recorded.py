"""An hour, or any other stretch, of metrics as the line would have stored them: seeded, and the same for the same arguments.

One pipeline: a source topic, an operator `front` that feeds the queries `light` (priority 5) and `heavy` (priority 1). During a
rush more arrives than the core of `heavy` carries, and nobody sheds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg2.extras import execute_values
from spillway.model.topology import Pipeline
from spillway.topology import check_text

YAML = """
pipeline: {name}
trigger: 2s
operators:
  front: {{function: tests.support.operators:plain_pass, buckets: 2}}
  light:
    function: tests.support.operators:plain_pass
    query: {{priority: 5, min_accuracy: 0.8}}
    output: {{type: none}}
  heavy:
    function: tests.support.operators:plain_pass
    query: {{priority: 1, min_accuracy: 0.3}}
    output: {{type: none}}
edges:
  - {{topic: {name}.in, to: front, partitions: 2}}
  - {{from: front, to: light, partitions: 2}}
  - {{from: front, to: heavy, partitions: 2}}
applications:
  ahead: {{operators: [front, light], node: n1, executors: 2}}
  behind: {{operators: [heavy], node: n2, executors: 1}}
"""
AGENT_S, TRIGGER_S, LEAD_S = 5.0, 2.0, 0.1
COST_S = {"front": 0.0001, "light": 0.0001, "heavy": 0.00125}
"""Seconds of a core per row: one core carries 800 rows a second of `heavy`."""
FIXED_S = 0.2
BOUND = {"front": 40_000, "light": 40_000, "heavy": 3_200}


def declared(name: str = "rec") -> Pipeline:
    pipeline, problems = check_text(YAML.format(name=name))
    assert pipeline is not None, problems
    return pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    operator: str
    number: int
    started_s: float
    ended_s: float
    read: int
    put_out: int
    end: int
    latest: int
    busy_s: float


@dataclass
class Recording:
    start: datetime
    seconds: float
    seed: int = 1
    name: str = "rec"
    rush: tuple[float, float] = (600.0, 1500.0)
    calm_rate: float = 300.0
    rush_rate: float = 1600.0
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        front = self._run("front", self.arrived)
        sent = [(b.ended_s, b.put_out) for b in front]

        def forwarded(t_s: float) -> int:
            return sum(rows for at, rows in sent if at <= t_s)

        self.batches = front + self._run("light", forwarded) + self._run("heavy", forwarded)

    # -- the world

    def rate(self, t_s: float) -> float:
        return self.rush_rate if self.rush[0] <= t_s < self.rush[1] else self.calm_rate

    def arrived(self, t_s: float) -> int:
        """Rows in the source topic at a moment."""
        inside = max(0.0, min(t_s, self.rush[1]) - self.rush[0])
        return int(self.calm_rate * (t_s - inside) + self.rush_rate * inside) if t_s > 0 else 0

    def _run(self, operator: str, arrived: Callable[[float], int]) -> list[Batch]:
        found: list[Batch] = []
        t_s, taken, number = TRIGGER_S, 0, 0
        while t_s < self.seconds:
            there = arrived(t_s)
            rows = min(there - taken, BOUND[operator])
            if rows <= 0:
                t_s += TRIGGER_S
                continue
            taken += rows
            busy_s = (FIXED_S + rows * COST_S[operator]) * self.rng.uniform(0.97, 1.03)
            found.append(
                Batch(operator=operator, number=number, started_s=t_s, ended_s=t_s + busy_s, read=rows, put_out=rows, end=taken,
                      latest=there, busy_s=busy_s)
            )  # fmt: skip
            number += 1
            ended = t_s + busy_s
            t_s = ended if there > taken else max(ended, t_s + TRIGGER_S)
        return found

    # -- the rows

    def at(self, t_s: float) -> datetime:
        return self.start + timedelta(seconds=t_s)

    def used(self, operators: tuple[str, ...], begin_s: float, end_s: float) -> float:
        """Seconds of CPU in a stretch."""
        near = [b for b in self.batches if b.operator in operators and b.started_s < end_s and b.ended_s > begin_s]
        return sum(min(b.ended_s, end_s) - max(b.started_s, begin_s) for b in near)

    def write(self, connection: Any) -> None:
        """Applies the pipeline as it was at the start, and stores every metric; commits."""
        name = self.name
        with connection, connection.cursor() as cursor:
            for pipeline, application, spark in ((name, "ahead", f"{name}-1"), (name, "behind", f"{name}-2")):
                cursor.execute(
                    "insert into spillway.heartbeat"
                    " (pipeline, application, generation, holder, state, at, started_at, spark_app, version)"
                    " values (%s, %s, 1, 'x', 'running', %s, %s, %s, 1)",
                    (pipeline, application, self.at(self.seconds), self.start - timedelta(minutes=5), spark),
                )
            self._insert(cursor, "batch_metric", self._batch_rows())
            self._insert(cursor, "edge_metric", self._edge_rows())
            self._insert(cursor, "partition_metric", self._partition_rows())
            for table, rows in self._agent_rows().items():
                self._insert(cursor, table, rows)

    def _insert(self, cursor: Any, table: str, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0])
        text = f"insert into spillway.{table} ({', '.join(columns)}) values %s"
        execute_values(cursor, text, [tuple(r[c] for c in columns) for r in rows], page_size=1000)

    def _application(self, operator: str) -> str:
        return "behind" if operator == "heavy" else "ahead"

    def _edge(self, operator: str) -> str:
        return f"{self.name}.in:front" if operator == "front" else f"front:{operator}"

    def _batch_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "pipeline": self.name, "application": self._application(b.operator), "operator": b.operator, "checkpoint": 0,
                "batch_id": b.number, "generation": 1, "started_at": self.at(b.started_s), "ended_at": self.at(b.ended_s),
                "input_rows": b.read, "output_rows": b.put_out, "batch_ms": int(1000 * (b.ended_s - b.started_s)),
                "add_batch_ms": int(1000 * b.busy_s), "written_at": self.at(b.ended_s + 0.7),
            }
            for b in self.batches
        ]  # fmt: skip

    def _edge_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "pipeline": self.name, "operator": b.operator, "edge": self._edge(b.operator), "checkpoint": 0,
                "batch_id": b.number, "ended_at": self.at(b.ended_s), "rows_read": b.read, "rows_kept": b.read, "keep": 1.0,
                "keep_source": "default", "lag_rows": b.latest - b.end, "written_at": self.at(b.ended_s + 0.7),
            }
            for b in self.batches
        ]  # fmt: skip

    def _partition_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "pipeline": self.name, "operator": b.operator, "edge": self._edge(b.operator), "checkpoint": 0,
                "batch_id": b.number, "ended_at": self.at(b.ended_s), "partition": p, "end_offset": (b.end + p) // 2,
                "latest_offset": (b.latest + p) // 2, "written_at": self.at(b.ended_s + 0.7),
            }
            for b in self.batches
            for p in (0, 1)
        ]  # fmt: skip

    def _agent_rows(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {"node_metric": [], "executor_cpu": [], "topic_metric": [], "executor_rows": []}
        name = self.name
        for tick in range(1, int(self.seconds / AGENT_S) + 1):
            t_s = tick * AGENT_S - LEAD_S
            stamps = {"at": self.at(t_s), "written_at": self.at(t_s + 0.05)}
            begin = max(0.0, t_s - AGENT_S)
            for node, spark, operators, executors in (
                ("n1", f"{name}-1", ("front", "light"), 2),
                ("n2", f"{name}-2", ("heavy",), 1),
            ):
                cpu = 100.0 * self.used(operators, begin, t_s) / AGENT_S
                found["node_metric"].append(
                    {"node": node, **stamps, "cores": 1, "cpu_pct": min(100.0, cpu + 8.0), "own_cpu_pct": cpu, "load1": 1.0,
                     "mem_used": 1, "mem_total": 2, "net_rx_bps": 0.0, "net_tx_bps": 0.0, "window_s": AGENT_S}
                )  # fmt: skip
                for executor in range(executors):
                    found["executor_cpu"].append(
                        {"node": node, "spark_app": spark, "executor": str(executor), "pipeline": name,
                         "application": "ahead" if node == "n1" else "behind", **stamps, "cpu_pct": cpu / executors,
                         "rss_bytes": 1, "window_s": AGENT_S}
                    )  # fmt: skip
            for p in (0, 1):
                found["topic_metric"].append(
                    {"topic": f"{name}.in", "partition": p, **stamps, "end_offset": (self.arrived(t_s) + p) // 2}
                )  # fmt: skip
            if tick % 3 == 0:
                for operator in ("front", "light", "heavy"):
                    for executor in range(1 if operator == "heavy" else 2):
                        found["executor_rows"].append(
                            {"pipeline": name, "application": self._application(operator), "operator": operator,
                             "executor": str(executor), **stamps, "rows": 1,
                             "cpu_ms": 1000.0 * self.used((operator,), max(0.0, t_s - 15.0), t_s) / 2, "window_s": 15.0}
                        )  # fmt: skip
        return found


def store(database: Any, recording: Recording, mode: str = "apply") -> None:
    """A recording in a database: the pipeline was applied and running five minutes before it began."""
    from spillway.store import pipelines

    connection = database.connect("control")
    try:
        pipelines.apply(connection, declared(recording.name), YAML.format(name=recording.name), "test")
        pipelines.set_mode(connection, recording.name, mode, "test")
        pipelines.set_desired(connection, recording.name, "running", "test")
    finally:
        connection.close()
    database.sql(
        "owner", "update spillway.pipeline_history set at = at - (now() - %s::timestamptz) where pipeline = %s",
        recording.start - timedelta(minutes=5), recording.name,
    )  # fmt: skip
    connection = database.connect("owner")
    try:
        recording.write(connection)
    finally:
        connection.close()


def noon() -> datetime:
    """A past moment at the beginning of a cycle, within the days that have partitions."""
    now = datetime.now(UTC)
    return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
