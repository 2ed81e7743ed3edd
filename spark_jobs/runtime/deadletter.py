"""Garbage events go to a dead-letter topic, each exactly once, without costing anything while there is none.

The query only counts garbage (it is dropped after parsing, and an aggregation would lose it anyway). When a batch reports some,
its offset range is read once more by a small batch job that keeps just the garbage and writes it with the transactional sink
(epoch = batch id). A mark in the checkpoint says up to which batch that was done, so a driver that died in between leaves
nothing behind, and the sink's own marker keeps a dead letter from coming twice.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.topology import Edge, Operator, Pipeline, Shed

from spark_jobs.runtime.checkpoint import Checkpoint, Offsets
from spark_jobs.runtime.plan import READER, parse, with_utility
from spark_jobs.runtime.progress import offsets, source_of
from spark_jobs.runtime.shed import rank
from spark_jobs.runtime.site import Site
from spark_jobs.runtime.topics import MARKER_CONFIG, Topic, Topics, marker_topic, writer_id
from spark_jobs.sinks.kafka import KafkaSink, fence, last_epoch, write_partition

log = logging.getLogger("spillway.deadletter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One batch's offset range on one edge, and how it was shed."""

    batch_id: int
    edge: Edge
    start: dict[int, int]
    """Empty: where the checkpoint's first batch began."""
    end: dict[int, int]
    keep: float
    cut: tuple[float | None, float | None, float] | None = None
    """By utility: (low, high, part) of the bin that held the cut."""


def sweeps(progress: dict[str, Any], edges: tuple[Edge, ...]) -> list[Sweep]:
    """What a batch's progress asks to be swept: every edge on which it counted garbage."""
    found = []
    for edge in edges:
        seen = progress.get("observedMetrics", {}).get(edge.name) or {}
        source = source_of(progress, edge.topic)
        if source is None or not int(seen.get("bad") or 0):
            continue
        end = offsets(source, "endOffset", edge.topic)
        start = offsets(source, "startOffset", edge.topic)
        # A query's very first batch does not say where it began.
        begin = {p: start.get(p, 0) for p in end} if start else {}
        setting = seen["setting"]
        cut = (setting.get("low"), setting.get("high"), float(setting["part"])) if edge.shed is Shed.BY_UTILITY else None
        batch_id, keep = int(progress["batchId"]), float(setting["keep"])
        found.append(Sweep(batch_id=batch_id, edge=edge, start=begin, end=end, keep=keep, cut=cut))
    return found


def garbage(
    spark: SparkSession, pipeline: Pipeline, operator: Operator, sweep: Sweep, bootstrap: str, client_conf: dict[str, str]
) -> DataFrame:
    """The garbage of one sweep as dead letters: key = where it was (topic-partition-offset), value = its bytes."""
    topic = sweep.edge.topic
    reader = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: {str(p): o for p, o in sweep.start.items()}}))
        .option("endingOffsets", json.dumps({topic: {str(p): o for p, o in sweep.end.items()}}))
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "false")
    )
    for key, value in {**READER, **client_conf}.items():
        reader = reader.option(f"kafka.{key}", value)
    frame = reader.load()
    if sweep.keep < 1.0:
        frame = kept_rows(frame, pipeline, operator, sweep)
    parsed, bad = parse(F.col("value"), operator, pipeline.lineage and sweep.edge.producer is not None)
    return (
        frame.withColumn("__p", parsed)
        .where(bad)
        .select(
            F.concat_ws("-", "topic", "partition", "offset").cast("binary").alias("key"),
            F.col("value").cast("binary").alias("value"),
        )
    )


def kept_rows(frame: DataFrame, pipeline: Pipeline, operator: Operator, sweep: Sweep) -> DataFrame:
    """The rows that the batch kept."""
    low, high, part = sweep.cut or (None, None, sweep.keep)
    values = {"keep": sweep.keep, "low": low, "high": high, "part": part}
    setting = F.struct(*[F.lit(v).cast("double").alias(n) for n, v in values.items()])
    if sweep.edge.shed is Shed.BY_UTILITY:
        frame = with_utility(frame, pipeline, operator, sweep.edge)
    return frame.where(rank(pipeline.name, sweep.edge, setting) < F.lit(sweep.keep)).drop("__p")


def collect(frame: DataFrame, sink: KafkaSink, epoch: int, writer: int) -> int:
    """Writes a sweep's garbage as one transaction; returns how many rows it had."""

    def part(batches: Any) -> Any:
        import pyarrow as pa

        yield pa.RecordBatch.from_arrays([pa.array([write_partition(sink, epoch, writer, batches)], pa.int64())], ["rows"])

    written = frame.repartition(1).mapInArrow(part, "rows bigint").agg(F.sum("rows").alias("rows")).collect()
    return int(written[0]["rows"] or 0)


MARK = "spillway-dead-letters"
"""File in the checkpoint: garbage of all batches up to this one has been collected."""
MARK_EVERY_S = 10.0
LARGEST = 900_000
"""Bytes of a dead letter where Kafka refused a larger one: what a broker takes by default, less what a record adds."""


class Sweeper(threading.Thread):
    """Collects the garbage of one operator, batch after batch, in order."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        operator: Operator,
        checkpoint: Checkpoint,
        sink: KafkaSink,
        client_conf: dict[str, str],
        on_collected: Callable[[Sweep, int], None],
        on_lost: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"dead-letters-{operator.name}", daemon=True)
        self._spark, self._pipeline, self._operator, self._checkpoint = spark, pipeline, operator, checkpoint
        self._sink, self._client_conf, self._on_collected = sink, client_conf, on_collected
        self._on_lost = on_lost
        self._edges = pipeline.inputs(operator.name)
        self._queue: queue.Queue[tuple[int, list[Sweep]] | None] = queue.Queue()
        self._last = checkpoint.last_commit()
        """The newest batch before this driver's own: what was left until then is looked for once; the rest is reported."""

    def batch(self, progress: dict[str, Any]) -> None:
        """Called for every finished batch."""
        self._queue.put((int(progress["batchId"]), sweeps(progress, self._edges)))

    def close(self, patience_s: float = 10.0) -> None:
        """Collects what was reported, says so in the checkpoint, and ends."""
        self._queue.put(None)
        self.join(patience_s)

    def missed(self) -> list[Sweep]:
        """What a driver that died may have left: every batch committed since the mark. How those batches were shed is not
        known any more, so garbage a shedder dropped may be among it; it is still garbage. A driver that only seems to be dead is
        fenced before its marker is read: otherwise it could still write a batch that is then collected here once more."""
        last, mark = self._last, int(self._checkpoint.read_text(MARK) or -1)
        if last <= mark:
            return []
        end = self._checkpoint.offsets(last) or {}
        start = self._begin(mark)
        found = []
        for edge in self._edges:
            begin, until = start.get(edge.topic, {}), end.get(edge.topic, {})
            fence(self._sink, self._writer(edge))
            done = last_epoch(
                self._sink.bootstrap,
                self._sink.marker_topics[0],
                self._ordinal(edge),
                self._writer(edge),
                dict(self._client_conf),
            )
            if done > mark:
                begin = self._begin(done).get(edge.topic, begin)
            if done < last and until:
                found.append(Sweep(batch_id=last, edge=edge, start={p: begin.get(p, 0) for p in until}, end=until, keep=1.0))
        return found

    def _begin(self, mark: int) -> Offsets:
        """Where the batch after `mark` began. Spark keeps the offsets of the last hundred batches; a mark older than that
        was left by a writer that could not reach Kafka while batches went on, and what is gone from the log is not swept."""
        if mark < 0:
            return self._checkpoint.first_offsets(len(self._edges))
        known = self._checkpoint.offsets(mark)
        if known is None:
            self._on_lost(
                f"the offsets of batch {mark} of {self._operator.name} are gone: its dead letters are collected from the oldest "
                "batch on record, older ones stay only in the source topic"
            )
            known = self._checkpoint.oldest_offsets()
        return known

    def _ordinal(self, edge: Edge) -> int:
        return self._edges.index(edge)

    def _writer(self, edge: Edge) -> str:
        return f"{self._sink.writer_id}-p{self._ordinal(edge)}"

    def sweep_missed(self) -> None:
        """All that was left until now, and the mark for it."""
        if self._last > int(self._checkpoint.read_text(MARK) or -1):
            self._until_done(self.missed)
            self._until_done(list, mark=self._last)

    def run(self) -> None:
        self.sweep_missed()
        marked_at, marked, last = time.monotonic(), self._last, self._last
        while True:
            item = self._queue.get()
            if item is None:
                if last > marked:
                    self._until_done(list, mark=last)
                return
            batch_id, found = item
            if batch_id <= self._last:
                continue
            self._until_done(lambda found=found: found)  # type: ignore[misc]
            last = batch_id
            if time.monotonic() - marked_at > MARK_EVERY_S or found:
                self._until_done(list, mark=batch_id)
                marked_at, marked = time.monotonic(), batch_id

    def _until_done(self, what: Callable[[], list[Sweep]], mark: int | None = None) -> None:
        wait, largest = 1.0, None
        while True:
            try:
                for sweep in what():
                    if not sweep.start:
                        first = self._checkpoint.first_offsets(len(self._edges)).get(sweep.edge.topic, {})
                        sweep = replace(sweep, start={p: first.get(p, 0) for p in sweep.end})
                    frame = garbage(self._spark, self._pipeline, self._operator, sweep, self._sink.bootstrap, self._client_conf)
                    if largest is not None:
                        frame = frame.where(F.length("value") <= largest)
                    rows = collect(frame, self._sink, sweep.batch_id, self._ordinal(sweep.edge))
                    if rows:
                        self._on_collected(sweep, rows)
                if mark is not None:
                    self._checkpoint.write_text(MARK, str(mark))
                return
            # Whatever it is, garbage must not stop the stream; the next try starts from Kafka's own marker.
            except Exception as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                if "MSG_SIZE_TOO_LARGE" in str(error):
                    which = "all of these stay" if largest else f"those above {LARGEST:,} bytes stay"
                    self._on_lost(
                        f"dead letters of {self._operator.name} are larger than Kafka takes; {which} only in their topic"
                    )
                    if largest:
                        return
                    largest = LARGEST
                    continue
                log.warning("dead letters of %s wait: %s", self._operator.name, said)
                time.sleep(wait)
                wait = min(30.0, wait * 2)


def dead_letter_sink(site: Site, operator: Operator, checkpoint: int, topics: Topics) -> KafkaSink:
    """Where the garbage of an operator goes; makes the topic of its markers."""
    pipeline = site.pipeline
    marker = marker_topic(pipeline.name, operator.name, checkpoint, "dead")
    edges = len(pipeline.inputs(operator.name))
    topics.ensure([Topic(name=marker, partitions=edges, config=MARKER_CONFIG, grow=True)])
    return KafkaSink(
        bootstrap=site.bootstrap,
        writer_id=f"{writer_id(pipeline.name, operator.name, checkpoint)}-dead",
        topics=(pipeline.dead_letter_topic(operator.name),),
        marker_topics=(marker,),
        by_source=False,
        client_conf=dict(site.client_conf),
    )


def make_sweeper(
    spark: SparkSession,
    site: Site,
    operator: Operator,
    checkpoint: Checkpoint,
    sink: KafkaSink,
    event: Callable[[str, str, str], None],
) -> Sweeper:
    def collected(sweep: Sweep, rows: int) -> None:
        event(sweep.edge.name, "dead_letter", did_not_parse(rows, sweep.edge.topic, sweep.batch_id, sink.topics[0]))

    def lost(text: str) -> None:
        event(operator.name, "dead_letter_lost", text)

    return Sweeper(spark, site.pipeline, operator, checkpoint, sink, site.client_conf, collected, lost)


def did_not_parse(rows: int, topic: str, batch_id: int, where: str) -> str:
    """
    >>> did_not_parse(1, "trips", 7, "tips.mean_tip.dead")
    '1 event of trips did not parse (batch 7); it is in tips.mean_tip.dead'
    >>> did_not_parse(2, "trips", 7, "tips.mean_tip.dead")
    '2 events of trips did not parse (batch 7); they are in tips.mean_tip.dead'
    """
    events, they_are = ("1 event", "it is") if rows == 1 else (f"{rows} events", "they are")
    return f"{events} of {topic} did not parse (batch {batch_id}); {they_are} in {where}"
