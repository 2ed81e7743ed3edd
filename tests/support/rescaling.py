"""A pipeline in a store without a cluster: drivers that keep their part of the contract by hand, one look at the store at a time.

`count` keeps state in 8 buckets, read from a topic with two partitions; it runs with 2 executors on n1. `Cluster` is the
launcher: whoever is submitted to it lives until he is told to stop, is killed, or finds himself fenced.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spillway.act.launch import DriverStatus, Found, LauncherUnreachable, LaunchRefused, LaunchSpec, Sighting
from spillway.act.rescale.carry import Went, advance
from spillway.decide.rescale import plan_request
from spillway.model.rescale import Kind, Request
from spillway.policy import Policy
from spillway.store import pipelines, rescale
from spillway.store.queries import row
from spillway.store.rescale_world import world
from spillway.topology import check_text

from tests.support.database import Database

YAML = """
pipeline: {name}
trigger: 1s
operators:
  count:
    function: tests.support.operators:plain_pass
    kind: aggregate
    output_mode: update
    key: key
    schema: key string not null
    buckets: 8
    parallelism: {{start: 2, min: 1, max: 6}}
    query: {{priority: 3, min_accuracy: 0.5}}
    output: {{type: none}}
edges:
  - {{topic: {name}.in, to: count, partitions: 2}}
applications:
  main: {{operators: [count], node: n1, executors: 2}}
"""
POLICY = Policy(backoff_first_s=0.0)
STATE = [(bucket, 100 + bucket, 1_000_003 * (bucket + 1)) for bucket in range(8)]
"""By bucket: rows and checksum."""
COURSE = {
    ("handover", False): ("starting", "cloning", "rehearsing", "ready"),
    ("handover", True): ("starting", "cloning", "catching_up", "ready"),
    ("shadow", True): ("starting", "cloning", "repartitioning", "catching_up", "ready"),
}
"""By kind, and whether it follows what runs on a checkpoint of its own."""


class Driver:
    """A driver of one generation. Each `tick` is one look at the store, with one change of phase or one batch."""

    def __init__(self, line: Line, generation: int, node: str | None) -> None:
        self.line, self.generation, self.node = line, generation, node
        self.phase, self.incarnation, self.registered = "starting", 0, 0
        self.over: str | None = None
        self.obeys = True
        """False: it lives, and does nothing of what it is told."""
        self.fails: str | None = None
        """What it says instead of starting again."""
        self.stopped_batch: int | None = None
        self.beats = True

    def kill(self) -> None:
        self.over = "killed"

    def tick(self) -> None:
        if self.over:
            return
        line = self.line
        desired, generation, executors = line.sql(
            "select desired, generation, executors from spillway.application where pipeline = %s", line.name
        )[0]
        checkpoint, buckets, incarnation = line.sql(
            "select checkpoint, buckets, incarnation from spillway.operator_state where pipeline = %s", line.name
        )[0]
        if desired == "stopped" or generation > self.generation:
            self.over = "stopped" if desired == "stopped" else "fenced"
            line.job(
                "update spillway.lease set released_at = now() where pipeline = %s and generation = %s",
                line.name,
                self.generation,
            )
            self._beat(executors)
            return
        if self.phase == "starting":
            line.job(
                "insert into spillway.lease (pipeline, application, generation, holder) values (%s, 'main', %s, 'x')"
                " on conflict (pipeline, application) do update set generation = excluded.generation, released_at = null",
                line.name, self.generation,
            )  # fmt: skip
            self.incarnation, self.phase = incarnation, "running"
            line.checkpoint, line.buckets = checkpoint, buckets
        elif self.obeys and incarnation > self.incarnation:
            self._restart(incarnation, buckets)
        elif self.phase == "running":
            line.batch(self.generation)
        if self.obeys:
            self.registered = executors
        self._beat(executors)

    def _restart(self, incarnation: int, buckets: int) -> None:
        """One phase at a time."""
        line = self.line
        if self.phase == "running":
            self.phase = "stopping"
        elif self.phase == "stopping":
            self.phase, self.stopped_batch = "stopped", line.batch_id
        elif self.phase == "stopped" and buckets != line.buckets:
            self.phase = "repartitioning"
        elif self.fails and self.phase in ("stopped", "repartitioning"):
            self.phase = "failed"
            line.job(
                "insert into spillway.event (actor, pipeline, subject, kind, text)"
                " values ('driver', %s, 'count', 'restart_refused', %s)", line.name, self.fails,
            )  # fmt: skip
        elif self.phase == "failed":
            if not self.fails:
                self.phase, self.incarnation = "running", incarnation
        else:
            if self.phase == "repartitioning":
                line.batch_id += 1  # Spark's repartition commits a batch of its own
                line.buckets = buckets
            self.phase, self.incarnation = "running", incarnation

    def _beat(self, executors: int) -> None:
        line = self.line
        if not self.beats:
            return
        line.job(
            "insert into spillway.heartbeat (pipeline, application, generation, holder, state, version, executors, spark_app)"
            " values (%s, 'main', %s, 'x', %s, 1, %s, %s) on conflict (pipeline, application, generation)"
            " do update set state = excluded.state, at = now(), executors = excluded.executors",
            line.name, self.generation, self.over or "running", self.registered, f"app-{line.name}-{self.generation}",
        )  # fmt: skip
        if self.over == "fenced":
            return
        line.job(
            "insert into spillway.operator_actual as o (pipeline, operator, application, generation, checkpoint, buckets,"
            " incarnation, phase, batch_id, offsets, stopped_batch, stopped_at, detail)"
            " values (%s, 'count', 'main', %s, %s, %s, %s, %s, %s, %s, %s, case when %s then now() end, %s)"
            " on conflict (pipeline, operator) do update set generation = excluded.generation, checkpoint = excluded.checkpoint,"
            " buckets = excluded.buckets, incarnation = excluded.incarnation, phase = excluded.phase,"
            " batch_id = excluded.batch_id, offsets = excluded.offsets, stopped_batch = excluded.stopped_batch,"
            " stopped_at = coalesce(excluded.stopped_at, o.stopped_at), detail = excluded.detail, at = now()",
            line.name, self.generation, line.checkpoint, line.buckets, self.incarnation, self.phase, line.batch_id,
            json.dumps({f"{line.name}.in": {"0": line.read, "1": line.read}}), self.stopped_batch, self.phase == "stopped",
            self.fails or "",
        )  # fmt: skip


class Successor:
    """A driver that rehearses. It becomes an ordinary one once it is told to, and the one before it has let go."""

    def __init__(self, line: Line, plan: int, generation: int, node: str | None, kind: str, follows: bool) -> None:
        self.line, self.plan, self.generation, self.node = line, plan, generation, node
        self.course, self.follows = list(COURSE[kind, follows]), follows
        self.over: str | None = None
        self.stuck_at: str | None = None
        """It stays in this state for ever."""
        self.dies_at: str | None = None
        self.deaf = False
        self.driver: Driver | None = None

    def kill(self) -> None:
        self.over = "killed"
        if self.driver:
            self.driver.kill()

    def tick(self) -> None:
        if self.over:
            return
        if self.driver:
            self.driver.tick()
            self.over = self.driver.over
            return
        line = self.line
        found = line.sql(
            "select s.desired, s.state, p.state in ('planned', 'running', 'rolling_back') from spillway.successor s"
            " join spillway.rescale_plan p on p.id = s.plan where s.plan = %s", self.plan,
        )  # fmt: skip
        desired, state, wanted = found[0] if found else ("withdraw", "gone", False)
        newest = line.sql("select generation from spillway.application where pipeline = %s", line.name)[0][0]
        if self.deaf:
            pass
        elif desired == "withdraw" or not wanted or newest > self.generation:
            self.over, state = "stopped", "gone"
        elif desired == "take_over":
            state = "taking_over"
            if all(d.over for d in line.drivers if d is not self):
                self.driver, state = Driver(line, self.generation, self.node), "running"
        elif state != self.stuck_at and self.course:
            state = self.course.pop(0)
        if state == self.dies_at:
            self.kill()
            return
        line.job(
            "update spillway.successor set state = %s, at = now(), batches = batches + 1, behind_rows = %s where plan = %s",
            state, 0 if self.follows else None, self.plan,
        )  # fmt: skip
        if self.driver:
            self.driver.tick()


class Cluster:
    """A launcher of simulated drivers; `away`: it does not answer. `before` and `after` a submission somebody may die."""

    name = "simulated"

    def __init__(self, line: Line) -> None:
        self.line = line
        self.refuses: str | None = None
        self.away = False
        self.die_before: Callable[[], None] = lambda: None
        self.die_after: Callable[[], None] = lambda: None
        self.made: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.shape: dict[str, Any] = {}
        """Attributes of whoever is submitted next."""

    def submit(self, spec: LaunchSpec) -> str:
        if self.away:
            raise LauncherUnreachable("the master went away.")
        if self.refuses:
            raise LaunchRefused(self.refuses)
        self.die_before()
        handle = f"{spec.name}-{len(self.made)}"
        if spec.successor is not None:
            [how] = self.line.sql(
                "select kind, checkpoint_from <> checkpoint_to from spillway.rescale_plan where id = %s", spec.successor
            )
            made: Any = Successor(self.line, spec.successor, spec.generation, spec.node, *how)
        else:
            made = Driver(self.line, spec.generation, spec.node)
        for name, value in self.shape.items():
            setattr(made, name, value)
        self.made[handle], self.names[handle] = made, spec.name
        self.line.drivers.append(made)
        self.line.specs.append(spec)
        self.die_after()
        return handle

    def status(self, handle: str) -> DriverStatus:
        if self.away:
            return DriverStatus.UNREACHABLE
        found = self.made.get(handle)
        if found is None:
            return DriverStatus.UNKNOWN
        return DriverStatus.RUNNING if not found.over else DriverStatus.FINISHED

    def kill(self, handle: str) -> None:
        if self.away:
            raise LauncherUnreachable("the master went away.")
        if handle in self.made:
            self.made[handle].kill()

    def find(self, store: str) -> Sighting:
        if self.away:
            raise LauncherUnreachable("the master went away.")
        return Sighting(found=tuple(Found(handle=h, name=self.names[h]) for h, d in self.made.items() if not d.over))


@dataclass
class Line:
    """The pipeline, its drivers, and whoever carries out plans."""

    database: Database
    policy: Policy = POLICY
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.conn = self.database.connect("control")
        self._reader, self._job = self.database.connect("owner"), self.database.connect("job")
        self._reader.autocommit = self._job.autocommit = True
        self.drivers: list[Any] = []
        self.specs: list[LaunchSpec] = []
        self.cluster = Cluster(self)
        self.checkpoint, self.buckets, self.batch_id, self.read = 0, 8, -1, 0
        self._times = itertools.count()
        spec, problems = check_text(YAML.format(name=self.name))
        assert spec is not None, problems
        pipelines.apply(self.conn, spec, YAML.format(name=self.name), "test")
        pipelines.set_desired(self.conn, self.name, "running", "test")
        self.launch()

    def launch(self) -> None:
        """The first driver, as spillway_streams would have launched it."""
        spec = LaunchSpec(pipeline=self.name, application="main", generation=1, store="s", node="n1", executors=2)
        handle = self.cluster.submit(spec)
        self.sql(
            "update spillway.application set generation = 1, handle = %s, launcher = 'simulated', launched_at = now(),"
            " launched_node = node where pipeline = %s", handle, self.name,
        )  # fmt: skip
        for _ in range(4):
            self.tick()

    # -- the world

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reader.cursor() as cursor:
            cursor.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def job(self, text: str, *values: Any) -> None:
        """As a driver: the rights of its role are part of the contract."""
        with self._job.cursor() as cursor:
            cursor.execute(text, values)

    def tick(self) -> None:
        for driver in list(self.drivers):
            driver.tick()

    def batch(self, generation: int) -> None:
        """One committed batch of ten rows from each partition."""
        self.batch_id += 1
        start, self.read = self.read, self.read + 10
        self.job(
            "insert into spillway.batch_metric (pipeline, application, operator, checkpoint, batch_id, generation, started_at,"
            " ended_at, input_rows, batch_ms, state_rows) values (%s, 'main', 'count', %s, %s, %s,"
            " clock_timestamp() - interval '1 ms', clock_timestamp(), 20, 100, 828)",
            self.name, self.checkpoint, self.batch_id, generation,
        )  # fmt: skip
        for partition in (0, 1):
            self.job(
                "insert into spillway.partition_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, partition,"
                " start_offset, end_offset) select %s, 'count', %s, %s, %s, ended_at, %s, %s, %s from spillway.batch_metric"
                " where pipeline = %s and checkpoint = %s and batch_id = %s",
                self.name, f"{self.name}.in:count", self.checkpoint, self.batch_id, partition, start, self.read, self.name,
                self.checkpoint, self.batch_id,
            )  # fmt: skip

    def digest(self, after: list[tuple[int, int, int]] | None = None) -> None:
        """What the job that counts state leaves behind; the state after a change is the same in other buckets."""
        [(plan, buckets)] = self.sql(
            "select id, buckets_to from spillway.rescale_plan where pipeline = %s and step = 'digest' and state = 'running'",
            self.name,
        )
        merged = [(b, sum(r for k, r, _ in STATE if k % buckets == b), sum(c for k, _, c in STATE if k % buckets == b))
                  for b in range(buckets)]  # fmt: skip
        for moment, handles in (("before", STATE), ("after", after or merged)):
            for bucket, count, checksum in handles:
                self.job(
                    "insert into spillway.bucket_handle (plan, operator, moment, bucket, batch_id, location, version, bytes,"
                    " rows, checksum) values (%s, 'count', %s, %s, 1, 'file:/x', 1, 1, %s, %s) on conflict do nothing",
                    plan, moment, bucket, count, checksum,
                )  # fmt: skip

    # -- plans

    def ask(self, **wanted: Any) -> rescale.Plan:
        kind = wanted.pop("kind", None)
        request = Request(operator="count", kind=Kind(kind) if kind else None, **wanted)
        with self.conn:
            clock = row(self.conn, "store_clock")
            assert clock is not None
            planned = plan_request(world(self.conn, self.name, now=clock["now"]), request, self.policy)
        return rescale.request(self.conn, self.name, planned, by="test")

    def plan(self) -> rescale.Plan:
        with self.conn:
            return rescale.plans(self.conn, self.name)[0]

    def advance(self, conn: Any = None) -> list[Went]:
        """What a pass did with the plans of this pipeline; others in the store are none of this test's business."""
        return [w for w in advance(conn or self.conn, self.cluster, self.policy) if w.pipeline == self.name]

    def carry(self, *, until: str | None = None, passes: int = 60) -> rescale.Plan:
        """Passes and looks in turn, until the plan has ended, or is at a step."""
        for _ in range(passes):
            plan = self.plan()
            if not plan.open or (until is not None and plan.step == until and plan.state == "running"):
                return plan
            if plan.step == "digest" and plan.state == "running":
                self.digest()
            self.advance()
            self.tick()
        return self.plan()

    def late(self, seconds: float = 100_000.0) -> None:
        """The step at work, or the way back, began this long ago."""
        ago = f"interval '{seconds} seconds'"
        self.sql(
            f"update spillway.rescale_step set began_at = began_at - {ago} where state = 'running' and plan in"
            " (select id from spillway.rescale_plan where pipeline = %s)", self.name,
        )  # fmt: skip
        self.sql(f"update spillway.rescale_plan set changed_at = changed_at - {ago} where pipeline = %s", self.name)

    def application(self) -> tuple[Any, ...]:
        [found] = self.sql("select generation, node, executors from spillway.application where pipeline = %s", self.name)
        return found

    def state(self) -> tuple[Any, ...]:
        [found] = self.sql("select checkpoint, buckets, incarnation from spillway.operator_state where pipeline = %s", self.name)
        return found

    def events(self) -> list[str]:
        return [
            k
            for (k,) in self.sql(
                "select kind from spillway.event where pipeline = %s and actor = 'rescale' order by id", self.name
            )
        ]

    def close(self) -> None:
        self.conn.rollback()
        self.sql("delete from spillway.pipeline where pipeline = %s", self.name)
        for connection in (self.conn, self._reader, self._job):
            connection.close()
