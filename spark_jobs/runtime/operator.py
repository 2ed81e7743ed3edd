"""One operator at work: its query, its bound, its dead letters, and what it reports."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spillway.model.settings import Effective
from spillway.model.topology import Delivery, Operator, Pipeline, SinkType
from spillway.policy import Policy

from spark_jobs.runtime import topics as topic_names
from spark_jobs.runtime import utility
from spark_jobs.runtime.bound import Admission, BoundFollower, BoundPolicy, Limits
from spark_jobs.runtime.checkpoint import Checkpoint, refuse_lost
from spark_jobs.runtime.deadletter import Sweep, Sweeper
from spark_jobs.runtime.metrics import Buffer, ProgressReader
from spark_jobs.runtime.plan import Input, build, to_records
from spark_jobs.runtime.progress import SINK, BatchContext, batch_rows, lag, positions
from spark_jobs.runtime.topics import Topic, Topics, data_topics, marker_topic, writer_id
from spark_jobs.runtime.utility import UtilityFollower
from spark_jobs.runtime.writers import WrittenBy, arrange, by_columns, unsteady, written_by
from spark_jobs.sinks import kafka as kafka_sink
from spark_jobs.sinks import postgres as postgres_sink
from spark_jobs.sinks.kafka import KafkaSink
from spark_jobs.sinks.postgres import PostgresSink

log = logging.getLogger("spillway.operator")

WRITERS = "spillway-writers"
"""File in the checkpoint: who writes the operator's rows."""
_STREAMING = "org.apache.spark.sql.execution.streaming"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where an application runs and what it may use; the same for all its operators."""

    pipeline: Pipeline
    application: str
    generation: int
    bootstrap: str
    checkpoints: str
    client_conf: dict[str, str]
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What Postgres remembers of an operator."""

    checkpoint: int
    buckets: int
    max_rows: int | None
    reported: int | None = None
    """The newest batch of this checkpoint that has metrics; None: no batch has."""


class OperatorQuery:
    def __init__(
        self,
        spark: SparkSession,
        site: Site,
        operator: Operator,
        state: State,
        buffer: Buffer,
        effective: Callable[[], dict[str, Effective]],
        event: Callable[[str, str, str], None],
    ) -> None:
        self.operator, self.site, self.state = operator, site, state
        self.spark = spark.newSession()
        for key, value in session_conf(state, site.checkpoints).items():
            self.spark.conf.set(key, value)
        self.edges = site.pipeline.inputs(operator.name)
        self.location = "/".join((site.checkpoints.rstrip("/"), site.pipeline.name, operator.name, str(state.checkpoint)))
        first = min(state.max_rows or site.policy.batch_rows_first, site.policy.batch_rows_max)
        limits = BoundPolicy(
            target_s=site.pipeline.batch_target_s, floor=site.policy.batch_rows_min, ceiling=site.policy.batch_rows_max
        )
        follower = BoundFollower(first, limits, restored=state.max_rows is not None)
        self._limits = Limits(follower, [e.name for e in self.edges])
        self.query: StreamingQuery | None = None
        self.batches = self.rows = 0
        self.last: dict[str, Any] = {}
        self._buffer, self._effective, self._event = buffer, effective, event
        self._sweeper: Sweeper | None = None
        self._utilities = UtilityFollower(self.edges, site.policy.utility_half_life_s, self._publish_utilities)

    # -- starting and stopping

    def start(self, topics: Topics) -> None:
        """Makes the marker topics and starts the query from its checkpoint."""
        source = Input(
            bootstrap=self.site.bootstrap,
            max_rows=max(1, self.max_rows // len(self.edges)),
            options=tuple((f"kafka.{key}", value) for key, value in self.site.client_conf.items()),
        )
        if self.query is None:
            self._recover_positions()
        frame = build(self.spark, self.site.pipeline, self.operator, source)
        writer = self._writer(frame, topics)
        if self._sweeper is None and self.operator.schema:
            self._sweeper = self._make_sweeper(topics)
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.operator.name)
        self.query = (
            writer.queryName(f"{self.site.pipeline.name}:{self.operator.name}")
            .option("checkpointLocation", self.location)
            .trigger(processingTime=f"{int(self.site.pipeline.trigger_s * 1000)} milliseconds")
            .start()
        )
        self._reader = ProgressReader(self.query)
        self._limits.attach(Admission(self.query, self.spark, {e.name: e.topic for e in self.edges}))
        if self._sweeper is not None and self._sweeper.ident is None:
            self._sweeper.start()

    def hold(self) -> bool:
        """Admits nothing more; False when that could not be said to the query."""
        return self.alive and self._limits.hold()

    def will_keep(self, edge: str, keep: float) -> None:
        """Told before the keep of an edge changes, by the thread that changes it: a batch that keeps more may take less."""
        self._limits.keep(edge, keep)

    def stop(self, drain_s: float) -> None:
        """Stops at a batch boundary: admits nothing more, lets the batch in flight commit, then ends the query."""
        if self.query is None:
            return
        if self.query.isActive:
            drained = self.hold()
            deadline, idle = time.monotonic() + drain_s, 0
            while drained and self.query.isActive and time.monotonic() < deadline:
                # Two looks in a row without a running trigger: one could fall between two phases of a batch.
                idle = 0 if self.query.status["isTriggerActive"] else idle + 1
                if idle >= 2:
                    break
                time.sleep(0.1)
            self.query.stop()
        self.collect()
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None

    @property
    def max_rows(self) -> int:
        return self._limits.max_rows

    @property
    def alive(self) -> bool:
        return self.query is not None and self.query.isActive

    def failure(self) -> str:
        """Why the query ended, in one line."""
        return said(str(self.query.exception() or "")) if self.query is not None else "it was never started"

    # -- while it runs

    def collect(self) -> int:
        """Takes every batch that finished since the last call: metrics, dead letters, bound. Returns how many."""
        if self.query is None:
            return 0
        finished = self._reader.new()
        for progress in finished:
            self._buffer.put(batch_rows(progress, self._context(), self._buffer.dropped))
            if self._sweeper is not None:
                self._sweeper.batch(progress)
            self._utilities.batch(progress)
            self._follow(progress)
            self.last, self.batches = progress, self.batches + 1
            self.rows += int(progress["numInputRows"])
        return len(finished)

    def _context(self) -> BatchContext:
        return BatchContext(
            pipeline=self.site.pipeline.name,
            application=self.site.application,
            operator=self.operator.name,
            checkpoint=self.state.checkpoint,
            generation=self.site.generation,
            max_rows=self.max_rows,
            edges=self.edges,
            effective=self._effective(),
        )

    def _recover_positions(self) -> None:
        """A driver that was killed may have committed batches whose metrics it could not write any more. How their rows were
        shed is gone with it; how far they read is in the checkpoint, and without it a quiet topic would seem unread for ever."""
        checkpoint = Checkpoint(self.spark, self.location)
        refuse_lost(checkpoint, self.site.pipeline.name, self.operator.name, self.state.reported)
        reported = -1 if self.state.reported is None else self.state.reported
        silent = [b for b in checkpoint.committed() if b > reported]
        for batch in silent:
            before = checkpoint.offsets(batch - 1) if batch else checkpoint.first_offsets(len(self.edges))
            end = checkpoint.offsets(batch)
            if before is not None and end is not None:
                self._buffer.put(positions(batch, before, end, checkpoint.committed_at(batch), self._context()))
        if silent and self.state.reported is not None:
            which = f"batch {silent[0]} was" if len(silent) == 1 else f"batches {silent[0]} to {silent[-1]} were"
            text = f"{which} committed by a driver that ended before it reported them; only their offsets are known"
            self._event(self.operator.name, "metrics_lost", text)

    def _follow(self, progress: dict[str, Any]) -> None:
        busy_s = float(progress.get("batchDuration", 0)) / 1000.0
        lags = {e.name: lag(progress, e.topic) or 0 for e in self.edges}
        self._limits.batch(int(progress["numInputRows"]), busy_s, lags)

    def _publish_utilities(self, edge: str, text: str) -> None:
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.setProperty(utility.property_name(self.site.pipeline.name, edge), text)

    # -- the sink

    def _writer(self, frame: DataFrame, topics: Topics) -> DataStreamWriter:
        names, output = data_topics(self.site.pipeline, self.operator), self.operator.output
        deliveries = {e.delivery for e in self.site.pipeline.outputs(self.operator.name)}
        if not deliveries and output is not None:
            deliveries = {output.delivery}
        mode = self.operator.output_mode
        if not names and (output is None or output.type is SinkType.NONE):
            counted = frame.observe(SINK, F.count(F.lit(1)).alias("rows"))
            return counted.writeStream.format("noop").outputMode(mode)
        records = to_records(frame, self.operator, nulls=not names)
        if names and deliveries == {Delivery.AT_LEAST_ONCE}:
            counted = records.observe(SINK, F.count(F.lit(1)).alias("rows"))
            plain = counted.select("key", "value", F.explode(F.array(*[F.lit(n) for n in names])).alias("topic"))
            writer = plain.writeStream.format("kafka").outputMode(mode)
            for key, value in {"bootstrap.servers": self.site.bootstrap, **self.site.client_conf}.items():
                writer = writer.option(f"kafka.{key}", value)
            return writer
        by = written_by(frame, len(self.edges))
        if not names and by is WrittenBy.SOURCE:
            by = WrittenBy.SHUFFLE
        self._refuse_unsteady(frame, by)
        self._pin_writers(by)
        if names:
            written = arrange(records, by, self.state.buckets).mapInArrow(self._kafka_task(names, by, topics), "rows bigint")
        else:
            arranged = by_columns(frame, records, output, self.state.buckets) if by is WrittenBy.SHUFFLE else records
            written = arranged.select("value").mapInArrow(self._postgres_task(frame), "rows bigint")
        log.info("%s is written by %s", self.operator.name, by)
        return written.observe(SINK, F.sum("rows").alias("rows")).writeStream.format("noop").outputMode(mode)

    def _refuse_unsteady(self, frame: DataFrame, by: WrittenBy) -> None:
        if by is WrittenBy.SHUFFLE and "_src" not in frame.columns and (expression := unsteady(frame)):
            raise RuntimeError(
                f"{self.operator.name} is shuffled by key in front of its sink, and {expression} may give a row another key when "
                "a batch is replayed: rows could be lost or doubled; keep the column _src in its output"
            )

    def _pin_writers(self, by: WrittenBy) -> None:
        """Who writes belongs to the checkpoint: a batch that was begun with other writers must be finished by them."""
        checkpoint = Checkpoint(self.spark, self.location)
        mine = by.value if by is WrittenBy.SOURCE else f"{by.value}, {self.state.buckets} of them"
        before = checkpoint.read_text(WRITERS)
        if before == mine:
            return
        if before is not None and checkpoint.last_planned() > checkpoint.last_commit():
            raise RuntimeError(
                f"batch {checkpoint.last_planned()} of {self.operator.name} was begun with rows written by {before}, now they "
                f"would be written by {mine}: run the version before until it is committed, or `spillway reset` the operator"
            )
        checkpoint.write_text(WRITERS, mine)

    def _kafka_task(self, names: tuple[str, ...], by: WrittenBy, topics: Topics) -> Callable[[Iterator[Any]], Iterator[Any]]:
        pipeline, operator, checkpoint = self.site.pipeline.name, self.operator.name, self.state.checkpoint
        if by is WrittenBy.SOURCE:
            counts = topics.partitions()
            markers = [(marker_topic(pipeline, operator, checkpoint, e.name), counts[e.topic]) for e in self.edges]
        else:
            markers = [(marker_topic(pipeline, operator, checkpoint, by.name.lower()), self.state.buckets)]
        topics.ensure([Topic(name=n, partitions=c, config=topic_names.MARKER_CONFIG, grow=True) for n, c in markers])
        sink = KafkaSink(
            bootstrap=self.site.bootstrap,
            writer_id=f"{writer_id(pipeline, operator, checkpoint)}-{by.name.lower()}",
            topics=names,
            marker_topics=tuple(n for n, _ in markers),
            by_source=by is WrittenBy.SOURCE,
            client_conf=dict(self.site.client_conf),
        )
        return sink_task(kafka_sink.write_partition, sink)

    def _postgres_task(self, frame: DataFrame) -> Callable[[Iterator[Any]], Iterator[Any]]:
        output = self.operator.output
        assert output is not None and output.table is not None
        name = writer_id(self.site.pipeline.name, self.operator.name, self.state.checkpoint)
        columns = tuple(c for c in frame.columns if c != "_src")
        sink = PostgresSink(writer_id=name, table=output.table, keys=output.keys, columns=columns)
        return sink_task(postgres_sink.write_partition, sink)

    def _make_sweeper(self, topics: Topics) -> Sweeper:
        pipeline, operator, checkpoint = self.site.pipeline, self.operator, self.state.checkpoint
        marker = marker_topic(pipeline.name, operator.name, checkpoint, "dead")
        topics.ensure([Topic(name=marker, partitions=len(self.edges), config=topic_names.MARKER_CONFIG, grow=True)])
        sink = KafkaSink(
            bootstrap=self.site.bootstrap,
            writer_id=f"{writer_id(pipeline.name, operator.name, checkpoint)}-dead",
            topics=(pipeline.dead_letter_topic(operator.name),),
            marker_topics=(marker,),
            by_source=False,
            client_conf=dict(self.site.client_conf),
        )

        def collected(sweep: Sweep, rows: int) -> None:
            self._event(sweep.edge.name, "dead_letter", did_not_parse(rows, sweep.edge.topic, sweep.batch_id, sink.topics[0]))

        def lost(text: str) -> None:
            self._event(operator.name, "dead_letter_lost", text)

        checkpoint_ = Checkpoint(self.spark, self.location)
        return Sweeper(self.spark, pipeline, operator, checkpoint_, sink, self.site.client_conf, collected, lost)


def did_not_parse(rows: int, topic: str, batch_id: int, where: str) -> str:
    """
    >>> did_not_parse(1, "trips", 7, "tips.mean_tip.dead")
    '1 event of trips did not parse (batch 7); it is in tips.mean_tip.dead'
    >>> did_not_parse(2, "trips", 7, "tips.mean_tip.dead")
    '2 events of trips did not parse (batch 7); they are in tips.mean_tip.dead'
    """
    events, they_are = ("1 event", "it is") if rows == 1 else (f"{rows} events", "they are")
    return f"{events} of {topic} did not parse (batch {batch_id}); {they_are} in {where}"


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


def sink_task(write: Callable[..., int], sink: KafkaSink | PostgresSink) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function each task runs over its rows. Its epoch is the batch id, which Spark hands to tasks as a local property."""

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        epoch = context.getLocalProperty("streaming.sql.batchId")
        if epoch is None:
            raise RuntimeError("Spark gave the task no batch id (streaming.sql.batchId); this version of Spark is not supported")
        rows = write(sink, int(epoch), context.partitionId(), batches)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], ["rows"])

    return part


def session_conf(state: State, checkpoints: str) -> dict[str, str]:
    """What belongs to an operator's own session: its buckets, and state that survives in small pieces."""
    conf = {
        "spark.sql.shuffle.partitions": str(state.buckets),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    if checkpoints.startswith(("file:", "/")):
        # The default manager forks processes for permissions on a local file system: two to seven times the commit time.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = (
            f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        )
    return conf
