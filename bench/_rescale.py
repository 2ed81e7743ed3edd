"""What benches that rescale share: a pipeline with state under load, and how long a change of it was felt."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from _carrier import TUNABLES
from _common import say
from confluent_kafka import Consumer, Producer, TopicPartition
from spillway.decide.rescale import plan_request
from spillway.embedded import Stack
from spillway.model.rescale import Kind, Request
from spillway.model.rescale_plan import Answer
from spillway.policy import Policy
from spillway.store import rescale
from spillway.store.rescale_world import world

from tests.support.line import Line, until

# ---- how long it was felt; pure ----


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Commit:
    at: float
    """Unix time."""
    end: int
    """Sum of the offsets it read to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    begins: float
    ends: float

    @property
    def length_s(self) -> float:
        return self.ends - self.begins


def gaps(commits: Iterable[Commit]) -> list[Gap]:
    """Times between commits that brought new rows; a batch that is repeated, or a repartition, brings none.

    >>> [g.length_s for g in gaps([Commit(at=1.0, end=5), Commit(at=2.0, end=9), Commit(at=3.0, end=9), Commit(at=5.0, end=12)])]
    [1.0, 3.0]
    """
    further: list[Commit] = []
    for commit in sorted(commits):
        if not further or commit.end > further[-1].end:
            further.append(commit)
    return [Gap(begins=a.at, ends=b.at) for a, b in pairwise(further)]


def longest(found: Iterable[Gap], since: float, until_: float) -> float | None:
    """Of the gaps that reach into a span of time; None: there is none.

    >>> longest([Gap(begins=0.0, ends=4.0), Gap(begins=4.0, ends=5.0), Gap(begins=5.0, ends=9.0)], 4.5, 5.0)
    1.0
    """
    return max((g.length_s for g in found if g.ends > since and g.begins < until_), default=None)


def lag_back(lags: Iterable[tuple[float, int]], normal: float, since: float) -> float | None:
    """Seconds until the lag was normal again after it was greatest; None: it was not.

    >>> lag_back([(1.0, 5), (2.0, 90), (3.0, 40), (4.0, 6)], normal=10, since=1.5)
    2.5
    """
    after = [(at, lag) for at, lag in lags if at >= since]
    if not after:
        return None
    peak = max(range(len(after)), key=lambda i: after[i][1])
    return next((at - since for at, lag in after[peak:] if lag <= normal), None)


# ---- load ----


class Feed(threading.Thread):
    """Events by number, each delivered exactly once, at a rate; waits out a broker that is away."""

    def __init__(self, bootstrap: str, topic: str, make: Callable[[int], tuple[bytes, bytes]], rate: float) -> None:
        super().__init__(daemon=True)
        self._topic, self._make, self._rate = topic, make, rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 10,
                "delivery.timeout.ms": 300_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self.sent, self._failed = 0, 0
        self._ending, self._flowing = threading.Event(), threading.Event()
        self._flowing.set()
        self._turn = threading.Lock()

    def burst(self, events: int) -> None:
        """As fast as it goes."""
        with self._turn:
            for number in range(self.sent, self.sent + events):
                self._put(number)
            self.sent += events
            self._producer.flush(120)

    def _put(self, number: int) -> None:
        key, value = self._make(number)
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: Any, _: Any) -> None:
        self._failed += error is not None

    def run(self) -> None:
        began, before = time.monotonic(), 0
        while not self._ending.wait(0.1):
            with self._turn:
                if not self._flowing.is_set():
                    began, before = time.monotonic(), 0
                    continue
                due = int(self._rate * (time.monotonic() - began)) - before
                for number in range(self.sent, self.sent + due):
                    self._put(number)
                self.sent, before = self.sent + due, before + due
                self._producer.poll(0)

    def pause(self) -> int:
        """Until `resume`, and all is delivered; returns how many events there are."""
        self._flowing.clear()
        with self._turn:
            left = self._producer.flush(300)
        if left or self._failed:
            raise RuntimeError(f"{left + self._failed} events were not delivered: nothing can be said about what was lost")
        return self.sent

    def resume(self) -> None:
        self._flowing.set()

    def finish(self) -> int:
        sent = self.pause()
        self._ending.set()
        self.join(10)
        return sent


class Watch(threading.Thread):
    """Every commit of one operator, over all its checkpoints, before it is purged; and how far the operator is behind."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._folder, self._topic = folder, topic
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-lag", "log_level": 0})
        self._seen: dict[tuple[str, str], Commit] = {}
        self.lags: list[tuple[float, int]] = []
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.4):
            with contextlib.suppress(Exception):  # a file was purged, a broker is away: the next look finds it
                self.look()
                self.lags.append((time.time(), self._arrived() - self.furthest))

    def look(self) -> None:
        for checkpoint in self._folder.iterdir() if self._folder.exists() else ():
            commits = checkpoint / "commits"
            for file in commits.iterdir() if checkpoint.name.isdigit() and commits.exists() else ():
                key = (checkpoint.name, file.name)
                if not file.name.isdigit() or key in self._seen:
                    continue
                with contextlib.suppress(OSError, ValueError):
                    sources = (checkpoint / "offsets" / file.name).read_text().splitlines()[2:]
                    ends = [
                        end for source in sources if source != "-" for of in json.loads(source).values() for end in of.values()
                    ]
                    self._seen[key] = Commit(at=file.stat().st_mtime, end=sum(ends))

    def _arrived(self) -> int:
        partitions = self._consumer.list_topics(self._topic, timeout=5).topics[self._topic].partitions
        return sum(self._consumer.get_watermark_offsets(TopicPartition(self._topic, p), timeout=5)[1] for p in partitions)

    @property
    def commits(self) -> list[Commit]:
        return list(self._seen.values())

    @property
    def furthest(self) -> int:
        return max((c.end for c in self._seen.values()), default=0)

    def gaps(self, since: float = 0.0, checkpoint: int | None = None) -> list[Gap]:
        """Of all its checkpoints, or of one: what follows commits what it repeats on one of its own."""
        found = [commit for (name, _), commit in list(self._seen.items()) if checkpoint is None or name == str(checkpoint)]
        return [g for g in gaps(found) if g.begins >= since]

    def behind(self) -> int:
        self.look()
        return self._arrived() - self.furthest

    def close(self) -> None:
        self._ending.set()
        self.join(10)


# ---- a pipeline whose operator is rescaled ----


class Rescaled(Line):
    """A pipeline of which one operator is rescaled: plans are asked for as by `spillway rescale`, a carrier carries them out."""

    def __init__(self, stack: Stack, yaml: str, operator: str) -> None:
        super().__init__(stack, yaml, converge_here=False)
        self.operator = operator
        self.application = next(a.name for a in self.pipeline.applications if operator in a.operators)
        [edge] = self.pipeline.inputs(operator)
        checkpoints = Path(self.env["SPILLWAY_CHECKPOINTS"].removeprefix("file://"))
        self.watch = Watch(checkpoints / self.pipeline.name / operator, self.env["SPILLWAY_KAFKA"], edge.topic)

    def __exit__(self, *given: object) -> None:
        if self.watch.is_alive():
            self.watch.close()
        super().__exit__(*given)

    def ask(self, kind: str, *, to: int | None = None, buckets: int | None = None, node: str | None = None) -> rescale.Plan:
        """Raises Refused, or RuntimeError with the planner's sentence."""
        request = Request(operator=self.operator, to=to, buckets=buckets, node=node, kind=Kind(kind))
        policy = Policy(rescale_quota_per_day=int(TUNABLES["rescale_quota_per_day"]))
        with self.db() as connection:
            planned = plan_request(world(connection, self.pipeline.name, now=datetime.now(UTC)), request, policy)
            connection.commit()
            if planned.answer is Answer.REFUSED or not planned.changes:
                raise RuntimeError(planned.words)
            return rescale.request(connection, self.pipeline.name, planned, by="bench")

    def plan(self, number: int) -> rescale.Plan:
        with self.db("READ") as connection:
            found = rescale.by_id(connection, number)
        assert found is not None
        return found

    def followed(self, number: int, limit_s: float) -> rescale.Plan:
        """Until it has ended; says its steps as they go. An absent Postgres is waited out."""
        deadline, shown = time.monotonic() + limit_s, ""
        while True:
            with contextlib.suppress(Exception):
                plan = self.plan(number)
                now = f"{plan.state} at {plan.step}" if plan.open else f"{plan.state}: {plan.detail}"
                if now != shown:
                    say(f"  plan {number} {now}")
                    shown = now
                if not plan.open:
                    return plan
            if time.monotonic() > deadline:
                raise TimeoutError(f"plan {number} is still {shown} after {limit_s:.0f} s")
            time.sleep(0.2)

    def now_has(self) -> dict[str, Any]:
        """Executors, buckets, node and generation, as they should be."""
        text = """
            select a.executors, s.buckets, a.node, a.generation from spillway.application a
            join spillway.operator_state s on s.pipeline = a.pipeline and s.operator = %s
            where a.pipeline = %s and a.application = %s"""
        [found] = self.sql(text, self.operator, self.pipeline.name, self.application)
        return dict(zip(("executors", "buckets", "node", "generation"), found, strict=True))

    def runs_as_it_should(self) -> bool:
        text = """
            select h.state = 'running' and h.at > now() - interval '8 s' and coalesce(h.executors, a.executors) = a.executors
                   and o.phase = 'running' and o.generation = a.generation
                   and (o.checkpoint, o.buckets) = (s.checkpoint, s.buckets)
            from spillway.application a
            join spillway.heartbeat h using (pipeline, application, generation)
            join spillway.operator_state s on s.pipeline = a.pipeline and s.operator = %s
            join spillway.operator_actual o on o.pipeline = s.pipeline and o.operator = s.operator
            where a.pipeline = %s and a.application = %s"""
        return self.sql(text, self.operator, self.pipeline.name, self.application) == [(True,)]

    def driver(self, generation: int) -> list[psutil.Process]:
        """JVM and Python process of one generation."""
        found = []
        for process in self.drivers():
            with contextlib.suppress(psutil.Error, ValueError, IndexError):
                line = process.cmdline()
                if line[line.index("--application") + 1] == self.application:
                    found += [process] if line[line.index("--generation") + 1] == str(generation) else []
        return found

    def batches_go_on(self, more: int, limit_s: float = 120.0) -> None:
        before = time.time()
        until(lambda: len(self.watch.gaps(before)) >= more, limit_s, f"{more} batches with new rows", every_s=0.2)

    def stop_and_start(self) -> None:
        """The plain way: the application ends, and is launched anew by whoever converges."""
        self._want("stopped")
        over = """
            select h.state in ('stopped', 'fenced') from spillway.application a
            join spillway.heartbeat h using (pipeline, application, generation)
            where a.pipeline = %s and a.application = %s"""
        who = self.pipeline.name, self.application
        until(lambda: self.sql(over, *who) == [(True,)], 90, "the application stops", every_s=0.1)
        self._want("running")
        until(self.runs_as_it_should, 180, "the application runs again")

    def _want(self, desired: str) -> None:
        text = "update spillway.application set desired = %s, attempts = 0 where pipeline = %s and application = %s"
        with self.db() as connection, connection.cursor() as cursor:
            cursor.execute(text, (desired, self.pipeline.name, self.application))


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known.

    >>> middle([3.0, None, 1.0, 2.0]), middle([None])
    (2.0, None)
    """
    known = [v for v in values if v is not None]
    return median(known) if known else None
