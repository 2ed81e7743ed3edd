"""One operator at work: its query, its bound, its dead letters, and what it reports."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spillway.model.topology import Operator

from spark_jobs.runtime import utility
from spark_jobs.runtime.bound import Admission, BoundFollower, BoundPolicy, Limits
from spark_jobs.runtime.checkpoint import BUCKETS, Checkpoint, Head, Offsets, location, refuse_lost
from spark_jobs.runtime.deadletter import Sweeper, dead_letter_sink, make_sweeper
from spark_jobs.runtime.metrics import ProgressReader
from spark_jobs.runtime.muting import ALWAYS, NEVER, muted_until
from spark_jobs.runtime.plan import Input, build
from spark_jobs.runtime.progress import BatchContext, batch_rows, ends, lag
from spark_jobs.runtime.session import operator_session
from spark_jobs.runtime.site import Outlets, Site, State
from spark_jobs.runtime.topics import Topics
from spark_jobs.runtime.utility import UtilityFollower
from spark_jobs.runtime.writers import unrepeatable
from spark_jobs.runtime.writing import Writing, pin_writers, written
from spark_jobs.sinks.kafka import KafkaSink

log = logging.getLogger("spillway.operator")

_LOOK_S = 0.005
"""How often a query that is about to stop is looked at: what passes here is a pause of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A query of which only the start is left to do."""

    writer: DataStreamWriter
    note: str | None
    """Who writes, for the checkpoint."""
    state: State
    muted: int
    held: bool
    watermarked: bool
    """Which rows share a batch matters to its state."""
    dead_letters: KafkaSink | None
    unrepeatable: str | None
    """Why its state may be another one when the same rows are read in other batches; None: it is the same."""
    running: Running | None = None
    """A query that runs already, and goes on in the place of one that would be started."""


class Running(Protocol):
    @property
    def query(self) -> StreamingQuery: ...
    def go_on(self, trigger_s: float, muted: int) -> None:
        """From now on by itself, this often; batches after `muted` write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Where a query came to rest."""

    batch_id: int
    at: datetime
    settled: bool
    """No batch was begun and not committed."""


class OperatorQuery:
    def __init__(
        self, spark: SparkSession, site: Site, operator: Operator, state: State, outlets: Outlets, *, scratch: str | None = None
    ) -> None:
        """`scratch`: the query only rehearses, muted, on a checkpoint at another place, and reports nothing."""
        self.operator, self.site, self.state, self.outlets = operator, site, state, outlets
        self.spark = operator_session(spark, state.buckets, site.checkpoints)
        self.edges = site.pipeline.inputs(operator.name)
        self.trigger_s = site.pipeline.trigger_s
        self._scratch = scratch
        first = min(state.max_rows or site.policy.batch_rows_first, site.policy.batch_rows_max)
        limits = BoundPolicy(
            target_s=site.pipeline.batch_target_s,
            floor=site.policy.batch_rows_min,
            ceiling=site.policy.batch_rows_max,
            start=site.policy.batch_rows_first,
        )
        follower = BoundFollower(first, limits, restored=state.max_rows is not None)
        self._limits = Limits(follower, [e.name for e in self.edges])
        self.query: StreamingQuery | None = None
        self.batches = self.rows = 0
        self.last: dict[str, Any] = {}
        self.found = Head(planned=-1, committed=-1)
        """What the checkpoint had when this driver first started the query on it."""
        self.position: tuple[int, Offsets] = (-1, {})
        """The newest committed batch and where it ended."""
        self.started_at: datetime | None = None
        self.muted = ALWAYS if scratch else NEVER
        """Batches up to this one write and report nothing."""
        self._reader: ProgressReader | None = None
        self._sweeper: Sweeper | None = None
        self.utilities = UtilityFollower(self.edges, site.policy.utility_half_life_s, self._publish_utilities)

    @property
    def location(self) -> str:
        return self._location_of(self.state)

    def _location_of(self, state: State) -> str:
        return self._scratch or self._own_location(state)

    def _own_location(self, state: State) -> str:
        return location(self.site.checkpoints, self.site.pipeline.name, self.operator.name, state.checkpoint)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.spark, self.location)

    @property
    def rehearses(self) -> bool:
        return self._scratch is not None

    # -- starting and stopping

    def prepare(self, topics: Topics, state: State | None = None, *, held: bool = False) -> Prepared:
        """Everything a start needs that can be done while another query runs on the checkpoint. `held`: it will admit nothing
        but a batch that was begun before."""
        state = state or self.state
        source = Input(
            bootstrap=self.site.bootstrap,
            max_rows=0 if held else max(1, self.max_rows // len(self.edges)),
            options=tuple((f"kafka.{key}", value) for key, value in self.site.client_conf.items()),
        )
        frame = build(self.spark, self.site.pipeline, self.operator, source)
        known = muted_until(Checkpoint(self.spark, self._location_of(state)))
        muted = ALWAYS if self.rehearses else NEVER if known is None else known
        alone = self._location_of(state) == self._own_location(state)
        how = Writing(
            site=self.site, operator=self.operator, checkpoint=state.checkpoint, buckets=state.buckets, muted=muted, alone=alone
        )
        writer, note = written(frame, how, topics)
        collects = self.operator.schema and not self.rehearses
        dead = dead_letter_sink(self.site, self.operator, state.checkpoint, topics) if collects else None
        note = None if self.rehearses else note
        watermarked = "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()
        return Prepared(
            writer=writer, note=note, state=state, muted=muted, held=held, watermarked=watermarked, dead_letters=dead,
            unrepeatable=unrepeatable(frame, [e.name for e in self.edges]),
        )  # fmt: skip

    def start(self, topics: Topics, prepared: Prepared | None = None) -> None:
        """Starts the query from its checkpoint, which is as the operator's state says (`settle`)."""
        ready = prepared or self.prepare(topics)
        checkpoint = self.checkpoint
        if self.query is None:
            self.found = checkpoint.head()
            refuse_lost(checkpoint, self.site.pipeline.name, self.operator.name, self.state.reported)
        self.state, self.muted = ready.state, ready.muted
        if ready.note is not None:
            pin_writers(checkpoint, self.operator.name, ready.note)
        self._begin(ready)
        batch = self.found.committed if self.position[0] < 0 else self.position[0]
        self.position = (batch, (checkpoint.offsets(batch) or {}) if batch >= 0 else {})
        if self._sweeper is None and ready.dead_letters is not None:
            event = self.outlets.event
            self._sweeper = make_sweeper(self.spark, self.site, self.operator, checkpoint, ready.dead_letters, event)
            self._sweeper.start()

    def _begin(self, ready: Prepared) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.operator.name)
        self.spark.conf.set(BUCKETS, str(self.state.buckets))
        name = f"{self.site.pipeline.name}:{self.operator.name}"
        former = self._reader
        if ready.running is not None:
            self.query = ready.running.query
        else:
            self.query = (
                ready.writer.queryName(f"{name}:rehearsal" if self.rehearses else name)
                .option("checkpointLocation", self.location)
                .trigger(processingTime=f"{int(self.trigger_s * 1000)} milliseconds")
                .start()
            )
        self.started_at = datetime.now(UTC)
        self._reader = ProgressReader(self.query)
        self._limits.attach(Admission(self.query, self.spark, {e.name: e.topic for e in self.edges}), held=ready.held)
        if ready.running is not None:
            self._reader.skip()  # what it did while it followed, squeezed in beside what ran, tells nothing
            ready.running.go_on(self.trigger_s, ready.muted)
            self._limits.open()
        if former is not None:
            self._take(former)

    def finish(self, topics: Topics, buckets: int) -> None:
        """Runs a batch that was begun to its end, by as many writers as it was begun with, and stops."""
        state, before = self.state, self.state.buckets
        log.info("%s finishes a batch that was begun with %d buckets instead of %d", self.operator.name, buckets, before)
        self.start(topics, self.prepare(topics, replace(state, buckets=buckets), held=True))
        checkpoint = self.checkpoint
        while not checkpoint.head().settled:
            if not self.alive:
                raise RuntimeError(f"the batch that {self.operator.name} had begun could not be finished: {self.failure()}")
            time.sleep(0.05)
        self.rest(drain_s=5.0)
        self.state = state

    def hold(self) -> bool:
        """Admits nothing more; False when that could not be said to the query."""
        return self.alive and self._limits.hold()

    def hold_in_flight(self, until: float) -> bool:
        """As `hold`, but not before a batch is under way, if one comes soon: then the pause begins with the commit of that batch,
        and not with the one before it."""
        until = min(until, time.monotonic() + self.site.pipeline.trigger_s + 0.1)
        while self.alive and not self._limits.held and not self.in_flight and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return self.hold()

    @property
    def in_flight(self) -> bool:
        """A batch with new rows is under way."""
        if self.query is None:
            return False
        status = self.query._jsq.status()
        return bool(status.isTriggerActive() and status.isDataAvailable())

    def drained(self, until: float) -> bool:
        """Waits until a query that is held has no batch under way."""
        idle = 0
        while self.query is not None and self.query.isActive and time.monotonic() < until:
            # Two looks in a row without a running trigger: one could fall between two phases of a batch.
            idle = 0 if self.query._jsq.status().isTriggerActive() else idle + 1
            if idle >= 2:
                return True
            time.sleep(_LOOK_S)
        return False

    def rest(self, drain_s: float, *, at_once: bool = False) -> Rest:
        """Stops at a batch boundary: admits nothing more, lets the batch in flight commit, then ends the query. What it has
        reported last is taken by the next `collect`. `at_once`: it has nothing more to read, so none is waited for."""
        if self.query is not None and self.query.isActive:
            until = time.monotonic() + drain_s
            if drain_s > 0 and (self.hold() if at_once else self.hold_in_flight(until)):
                self.drained(until)
            self.query.stop()
        head = self.checkpoint.head()
        return Rest(batch_id=head.committed, at=datetime.now(UTC), settled=head.settled)

    def close(self, patience_s: float = 10.0) -> None:
        """After its last `rest`: takes what it has reported last, and collects the dead letters of that."""
        self.collect()
        if self._sweeper is not None:
            self._sweeper.close(patience_s)

    def will_keep(self, edge: str, keep: float) -> None:
        """Told before the keep of an edge changes, by the thread that changes it: a batch that keeps more may take less."""
        self._limits.keep(edge, keep)

    @property
    def sheds(self) -> bool:
        """Less than everything is kept on some edge of it now."""
        known = self.outlets.effective()
        return any(known[e.name].keep < 1.0 for e in self.edges if e.name in known)

    @property
    def max_rows(self) -> int:
        return self._limits.max_rows

    @property
    def alive(self) -> bool:
        return self.query is not None and self.query.isActive

    @property
    def looked_at_sources(self) -> bool:
        return self._limits.ready

    @property
    def working(self) -> bool:
        """It is alive and has got beyond its start: a batch has ended, or there was nothing to read."""
        if self._reader is None or self.started_at is None or not self.alive:
            return False
        idle = (datetime.now(UTC) - self.started_at).total_seconds() > 1.0 and self._limits.ready and not self.in_flight
        return self._reader.seen or idle

    def failure(self) -> str:
        """Why the query ended, in one line."""
        return said(str(self.query.exception() or "")) if self.query is not None else "it was never started"

    # -- while it runs

    def collect(self) -> int:
        """Takes every batch that finished since the last call: metrics, dead letters, bound. Returns how many."""
        return self._take(self._reader) if self._reader is not None else 0

    def _take(self, reader: ProgressReader) -> int:
        finished = reader.new()
        for progress in finished:
            batch = int(progress["batchId"])
            if batch > self.muted:
                self.outlets.buffer.put(batch_rows(progress, self.context(), self.outlets.buffer.dropped))
                if self._sweeper is not None:
                    self._sweeper.batch(progress)
            self.utilities.batch(progress)
            self._follow(progress)
            self.last, self.batches = progress, self.batches + 1
            self.rows += int(progress["numInputRows"])
            self.position = (batch, ends(progress, self.edges) or self.position[1])
        return len(finished)

    def context(self) -> BatchContext:
        return BatchContext(
            pipeline=self.site.pipeline.name,
            application=self.site.application,
            operator=self.operator.name,
            checkpoint=self.state.checkpoint,
            generation=self.site.generation,
            max_rows=self.max_rows,
            edges=self.edges,
            effective=self.outlets.effective(),
        )

    def _follow(self, progress: dict[str, Any]) -> None:
        busy_s = float(progress.get("batchDuration", 0)) / 1000.0
        lags = {e.name: lag(progress, e.topic) or 0 for e in self.edges}
        self._limits.batch(int(progress["numInputRows"]), busy_s, lags)

    def _publish_utilities(self, edge: str, text: str) -> None:
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.setProperty(utility.property_name(self.site.pipeline.name, edge), text)


def said(error: str) -> str:
    """The line of an error that says what is wrong: the last one of a Python traceback inside it, else the first.

    >>> said("[PYTHON_EXCEPTION] thrown:\\nTraceback (most recent call last):\\n  x\\nRuntimeError: too old\\n\\n=== plan")
    'RuntimeError: too old'
    >>> said("[CAST_INVALID_INPUT] no number\\nat line 3")
    '[CAST_INVALID_INPUT] no number'
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Fenced)\b.*: ", line)]
        if raised:
            return raised[-1]
    return lines[0] if lines else "it ended without an error"
