"""An operator is given other buckets, executors and drivers under load: nothing is lost, nothing doubled, whoever is killed.

The rows that tell drivers what to do are written here by hand, in the place of the plans that write them otherwise. The tests of
this file share one pipeline and follow upon each other; the last one counts.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from spillway.act.launch import LaunchSpec
from spillway.act.launch.standalone import StandaloneLauncher
from spillway.act.streams import converge
from spillway.embedded import Stack
from spillway.policy import Policy
from spillway.store.queries import execute, row

from spark_jobs.runtime.topics import Topics
from tests.support.line import Line, driver_log, until
from tests.support.live import Feed, numbered

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
YAML = """
pipeline: grow
trigger: 1s
batch_target: 3s
lineage: true
operators:
  pass:
    function: tests.support.operators:hand_on_key
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
  tally:
    function: tests.support.operators:tally
    kind: aggregate
    output_mode: update
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    parallelism: {max: 4}
edges:
  - {topic: grow.in, to: pass, partitions: 2}
  - {from: pass, to: tally, partitions: 2}
applications:
  main: {operators: [pass, tally], node: n1, executors: 2, slots: 1}
"""
KEYS = 2000
NAME, APPLICATION, OPERATOR = "grow", "main", "tally"


def progress(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


class Rescaled(Line):
    """The pipeline, whose converging can be suspended: a driver that rehearses is a stranger to it."""

    def __init__(self, stack: Stack) -> None:
        self.suspended = threading.Event()
        self.made = 0
        """The number of the newest checkpoint."""
        self.given_up: int | None = None
        super().__init__(stack, YAML)
        self.launcher = StandaloneLauncher.from_environment({**stack.env, "SPARK_LOCAL_IP": "127.0.0.1"})

    def _converge(self) -> None:
        policy = Policy(backoff_first_s=1.0, backoff_most_s=5.0)
        while not self._stopping.wait(1.0):
            if self.suspended.is_set():
                continue
            try:
                with self.db() as connection:
                    converge(connection, self.launcher, policy)
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    def order(self, text: str, *parameters: Any) -> None:
        with self.db() as connection, connection.cursor() as cursor:
            cursor.execute(text, parameters)

    def one(self, text: str, *parameters: Any) -> tuple[Any, ...]:
        [found] = self.sql(text, *parameters)
        return found

    def restart(self, buckets: int) -> int:
        """Orders it, and returns its incarnation."""
        which = "where pipeline = %s and operator = %s"
        self.order(
            f"update spillway.operator_state set incarnation = incarnation + 1, buckets = %s {which}", buckets, NAME, OPERATOR
        )
        return self.one(f"select incarnation from spillway.operator_state {which}", NAME, OPERATOR)[0]

    def actual(self, operator: str = OPERATOR) -> dict[str, Any]:
        names = [
            "generation",
            "checkpoint",
            "buckets",
            "incarnation",
            "phase",
            "batch_id",
            "stopped_batch",
            "started_at",
            "detail",
        ]
        rows = self.sql(
            f"select {', '.join(names)} from spillway.operator_actual where pipeline = %s and operator = %s", NAME, operator
        )
        return dict(zip(names, rows[0], strict=True)) if rows else {}

    def runs(self, **wanted: Any) -> bool:
        actual = self.actual()
        return bool(actual) and actual["phase"] == "running" and all(actual[k] == v for k, v in wanted.items())

    def drivers_of(self, generation: int) -> list[psutil.Process]:
        return [p for p in self.drivers() if str(generation) == p.info["cmdline"][p.info["cmdline"].index("--generation") + 1]]

    def newest(self, checkpoint: int) -> tuple[int, int]:
        """The newest batch that was begun and the newest that was committed."""
        folder = self.folder(checkpoint=checkpoint)
        planned, committed = (
            max((int(f.name) for f in (folder / log).iterdir() if f.name.isdigit()), default=-1) for log in ("offsets", "commits")
        )
        return planned, committed

    def buckets(self, checkpoint: int) -> int:
        planned, _ = self.newest(checkpoint)
        entry = (self.folder(checkpoint=checkpoint) / "offsets" / str(planned)).read_text().splitlines()[1]
        return int(json.loads(entry)["conf"]["spark.sql.shuffle.partitions"])

    def folder(self, operator: str = OPERATOR, checkpoint: int = 0) -> Path:
        return Path(self.env["SPILLWAY_CHECKPOINTS"].removeprefix("file://")) / NAME / operator / str(checkpoint)

    def commits(self, *folders: Path) -> list[tuple[float, int]]:
        """(when, how far) of every commit that got further than those before, over several checkpoints of an operator."""
        found = []
        for folder in folders:
            for file in (folder / "commits").iterdir():
                offsets = folder / "offsets" / file.name
                if file.name.isdigit() and offsets.exists():
                    [ends] = json.loads(offsets.read_text().splitlines()[2]).values()
                    found.append((file.stat().st_mtime, sum(ends.values())))
        new: list[tuple[float, int]] = []
        for when, end in sorted(found):
            if not new or end > new[-1][1]:
                new.append((when, end))
        return new

    def gaps(self, since: float, *folders: Path) -> list[float]:
        """Times between two commits with new rows, of those that ended after `since`."""
        return [
            b[0] - a[0]
            for a, b in pairwise(self.commits(*(folders or (self.folder(checkpoint=self.actual()["checkpoint"]),))))
            if b[0] > since
        ]

    # -- a driver beside the running one

    def generation(self) -> int:
        return int(self.one("select generation from spillway.application where pipeline = %s", NAME)[0])

    def succeed(self, kind: str, node: str, buckets: int) -> int:
        """Launches a successor; returns its plan."""
        self.suspended.set()
        generation, state = self.generation(), self.actual()
        self.made += 1
        with self.db() as connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into spillway.rescale_plan (pipeline, application, operator, kind, state, executors_from, executors_to, "
                "buckets_from, buckets_to, node_to, checkpoint_from, checkpoint_to, generation_from, generation_to, requested_by)"
                " values (%s, %s, %s, %s, 'running', 2, 2, %s, %s, %s, %s, %s, %s, %s, 'test') returning id",
                (NAME, APPLICATION, OPERATOR, kind, state["buckets"], buckets, node, state["checkpoint"], self.made, generation,
                 generation + 1),
            )  # fmt: skip
            [(plan,)] = cursor.fetchall()
            cursor.execute(
                "insert into spillway.successor (pipeline, application, plan, generation, node, executors, operator, "
                "checkpoint_to, buckets_to) values (%s, %s, %s, %s, %s, 2, %s, %s, %s) on conflict (pipeline, application) do "
                "update set plan = excluded.plan, generation = excluded.generation, node = excluded.node, desired = 'rehearse', "
                "state = 'wanted', checkpoint_to = excluded.checkpoint_to, buckets_to = excluded.buckets_to, batches = 0",
                (NAME, APPLICATION, plan, generation + 1, node, OPERATOR, self.made, buckets),
            )
            store = (row(connection, "streams_store") or {})["store"]
        spec = LaunchSpec(
            pipeline=NAME, application=APPLICATION, generation=generation + 1, store=store, node=node, executors=2,
            max_executors=4, successor=plan,
        )  # fmt: skip
        handle = self.launcher.submit(spec)
        self.order("update spillway.successor set handle = %s where plan = %s", handle, plan)
        return plan

    def successor(self, plan: int) -> str:
        [(state, detail)] = self.sql("select state, detail from spillway.successor where plan = %s", plan)
        assert state != "failed", detail
        return state

    def cut_over(self, plan: int, *, stays: bool = False) -> None:
        """As a plan does it, in one transaction. `stays`: what has followed is not gone on from."""
        with self.db() as connection, connection.cursor() as cursor:
            cursor.execute(
                "update spillway.application a set generation = p.generation_to, handle = s.handle, launched_at = now(), "
                "node = p.node_to, launched_node = p.node_to, executors = p.executors_to, launcher = 'standalone' "
                "from spillway.rescale_plan p join spillway.successor s on s.plan = p.id "
                "where p.id = %s and a.pipeline = p.pipeline and a.application = p.application",
                (plan,),
            )
            if stays:
                execute(connection, "successor_stays", plan=plan)
            cursor.execute(
                "update spillway.operator_state s set checkpoint = p.checkpoint_to, buckets = p.buckets_to "
                "from spillway.rescale_plan p where p.id = %s and s.pipeline = p.pipeline and s.operator = p.operator",
                (plan,),
            )
            cursor.execute("update spillway.successor set desired = 'take_over' where plan = %s", (plan,))

    def end(self, plan: int, state: str = "done") -> None:
        self.order("update spillway.rescale_plan set state = %s where id = %s", state, plan)
        self.suspended.clear()

    def batches_go_on(self, more: int = 3) -> None:
        folder, before = self.folder(checkpoint=self.actual()["checkpoint"]), time.time()
        until(lambda: sum(when > before for when, _ in self.commits(folder)) >= more, 180, "batches with new rows", every_s=0.2)


@pytest.fixture(scope="module")
def line(stack: Stack) -> Iterator[Rescaled]:
    with Rescaled(stack) as line:
        try:
            until(line.running, 300, "the application runs")
            until(lambda: line.runs(), 300, "the operator is reported")
        except AssertionError:
            print(driver_log(stack))
            raise
        yield line


@pytest.fixture(scope="module")
def feed(line: Rescaled) -> Iterator[Feed]:
    feed = Feed(line, "grow.in", numbered(KEYS, 7), 100, every_s=0.2)
    feed.start()
    until(lambda: len(line.commits(line.folder())) > 8, 300, "batches flow")
    yield feed
    if feed.is_alive():
        feed.finish()


def test_a_query_is_started_again_inside_its_driver(line: Rescaled, feed: Feed) -> None:
    generation, drivers = line.actual()["generation"], {p.pid for p in line.drivers()}
    for buckets in (4, 8):
        began = time.time()
        wanted = {"incarnation": line.restart(buckets), "buckets": buckets}
        until(lambda wanted=wanted: line.runs(**wanted), 300, f"it runs with {buckets} buckets", every_s=0.1)
        line.batches_go_on()
        actual = line.actual()
        progress(f"restart with {buckets} buckets: longest gap {max(line.gaps(began)):.2f} s: {actual}")
        assert actual["stopped_batch"] is not None and actual["batch_id"] > actual["stopped_batch"]
    assert line.actual()["generation"] == generation and {p.pid for p in line.drivers()} == drivers, "in the living driver"


def test_executors_come_and_go_under_the_running_queries(line: Rescaled, feed: Feed) -> None:
    registered = "select executors from spillway.heartbeat where pipeline = %s order by generation desc limit 1"
    for executors in (4, 2):
        began = time.time()
        line.order("update spillway.application set executors = %s where pipeline = %s", executors, NAME)
        until(lambda n=executors: line.one(registered, NAME)[0] == n, 300, f"{executors} executors are registered")
        until(lambda n=executors: len(line.executors()) == n, 300, "and no others are left")
        line.batches_go_on()
        progress(f"{executors} executors: longest gap {max(line.gaps(began)):.2f} s")


def test_a_driver_on_another_node_that_followed_takes_over_from_the_checkpoint_there_is(line: Rescaled, feed: Feed) -> None:
    """As where rows were shed meanwhile, which could not be repeated."""
    began, generation, checkpoint = time.time(), line.generation(), line.actual()["checkpoint"]
    plan = line.succeed("handover", "n2", line.actual()["buckets"])
    until(lambda: line.successor(plan) == "ready", 300, lambda: "it follows\n" + driver_log(line.stack), every_s=0.2)
    beside = max(line.gaps(began))
    batches, behind = line.one("select batches, behind_rows from spillway.successor where plan = %s", plan)
    assert batches >= 3 and behind is not None
    assert line.actual()["generation"] == generation
    assert list(line.folder(checkpoint=line.made).glob("commits/*")), "on a checkpoint of its own"
    began = time.time()
    line.cut_over(plan, stays=True)
    line.given_up = line.made
    wanted = {"generation": generation + 1, "checkpoint": checkpoint}
    until(lambda: line.runs(**wanted), 300, lambda: "it has taken over\n" + driver_log(line.stack), every_s=0.1)
    line.batches_go_on()
    progress(f"handover: longest gap {max(line.gaps(began)):.2f} s, {beside:.2f} s beside")
    until(lambda: len(line.drivers()) == 2, 300, "the driver before it has ended")
    until(lambda: line.successor(plan) == "running", 60, "it says so")
    line.end(plan)
    copies = line.folder().parents[2] / ".scratch" / NAME
    until(lambda: not list(copies.glob("*/*/*")), 180, "the copies are removed, also what executors wrote afterwards")


def test_a_shadow_with_other_buckets_takes_over(line: Rescaled, feed: Feed) -> None:
    began, checkpoint = time.time(), line.actual()["checkpoint"]
    plan = line.succeed("shadow", "n1", 4)
    until(lambda: line.successor(plan) == "ready", 300, lambda: "it has caught up\n" + driver_log(line.stack), every_s=0.2)
    beside = max(line.gaps(began))
    began = time.time()
    line.cut_over(plan)
    until(lambda: line.runs(checkpoint=line.made, buckets=4), 300, lambda: "it runs\n" + driver_log(line.stack), every_s=0.1)
    line.batches_go_on()
    gap = max(line.gaps(began, line.folder(checkpoint=checkpoint), line.folder(checkpoint=line.made)))
    progress(f"shadow: longest gap {gap:.2f} s, {beside:.2f} s beside")
    until(lambda: len(line.drivers()) == 2, 300, "the driver before it has ended")
    line.end(plan)


def test_a_driver_killed_while_it_repartitions(line: Rescaled, feed: Feed) -> None:
    """The next one finds half of it done, and does the rest."""
    checkpoint, generation = line.actual()["checkpoint"], line.generation()
    before = line.buckets(checkpoint)
    line.restart(16)
    until(lambda: line.buckets(checkpoint) != before, 300, "the repartition is begun", every_s=0.005)
    line.kill(line.drivers())
    planned, committed = line.newest(checkpoint)
    progress(f"killed with batch {planned} begun and {committed} committed")
    until(lambda: line.runs(buckets=16), 300, lambda: "it runs again\n" + driver_log(line.stack))
    assert line.generation() > generation
    line.batches_go_on()


def test_what_followed_takes_over_from_a_driver_that_is_killed_and_is_killed_itself(line: Rescaled, feed: Feed) -> None:
    checkpoint, generation = line.actual()["checkpoint"], line.generation()
    plan = line.succeed("shadow", "n2", 4)
    until(lambda: line.successor(plan) == "ready", 300, lambda: "it has caught up\n" + driver_log(line.stack), every_s=0.2)

    def inside_a_batch() -> bool:
        planned, committed = line.newest(checkpoint)
        return planned > committed

    until(inside_a_batch, 180, "a batch is begun", every_s=0.002)
    line.kill(line.drivers_of(generation))
    line.cut_over(plan)
    planned, committed = line.newest(checkpoint)
    progress(f"killed with batch {planned} begun and {committed} committed")
    aligned = line.folder(checkpoint=line.made) / "spillway-aligned"
    until(aligned.exists, 300, lambda: "it has aligned itself\n" + driver_log(line.stack), every_s=0.005)
    line.kill(line.drivers_of(generation + 1))
    line.end(plan)
    until(lambda: line.runs(checkpoint=line.made, buckets=4), 300, lambda: "the next driver runs it\n" + driver_log(line.stack))
    assert line.actual()["generation"] > generation + 1
    line.batches_go_on()
    topics = Topics(line.env["SPILLWAY_KAFKA"]).partitions()
    markers = {int(name.split(".")[3]) for name in topics if name.startswith(f"__spillway.{NAME}.tally.")}
    assert {checkpoint, line.made} <= markers and line.given_up in range(line.made) and line.given_up not in markers


def test_everything_was_counted_exactly_once(line: Rescaled, feed: Feed) -> None:
    sent = feed.finish()
    for edge in ("grow.in:pass", "pass:tally"):
        until(lambda edge=edge: line.caught_up(edge), 180, f"{edge} is read to its end")
    line.suspended.clear()
    line.stop(180)
    source = {f"grow.in-{partition}-{offset}": json.loads(value) for partition, offset, _, value in line.consume("grow.in")}
    assert len(source) == sent
    seen = collections.Counter(r["lineage"] for r in line.records("grow.pass.tally"))
    assert not source.keys() - seen.keys() and max(seen.values()) == 1 and seen.keys() == source.keys()

    rows: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    for event in source.values():
        rows[event["key"]] += 1
        total[event["key"]] += event["n"]
    states = line.records("grow.tally.out")
    assert max(collections.Counter((r["key"], r["rows"]) for r in states).values()) == 1, "a state was written twice"
    newest: dict[str, dict[str, int]] = {}
    for record in states:
        if record["key"] not in newest or record["rows"] > newest[record["key"]]["rows"]:
            newest[record["key"]] = record
    assert {k: (r["rows"], r["total"]) for k, r in newest.items()} == {k: (rows[k], total[k]) for k in rows}
    assert line.errors == []
