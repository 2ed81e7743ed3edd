"""The end of an operator's query: its rows as records, and who writes them where."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spillway.model.topology import Delivery, Edge, Operator, SinkType

from spark_jobs.runtime.checkpoint import WRITERS, Checkpoint
from spark_jobs.runtime.muting import ALWAYS, NEVER, UNMUTED
from spark_jobs.runtime.plan import to_records
from spark_jobs.runtime.progress import SINK
from spark_jobs.runtime.site import Site
from spark_jobs.runtime.topics import MARKER_CONFIG, Topic, Topics, data_topics, marker_topic, writer_id
from spark_jobs.runtime.writers import WrittenBy, arrange, by_columns, unsteady, written_by
from spark_jobs.sinks import kafka as kafka_sink
from spark_jobs.sinks import postgres as postgres_sink
from spark_jobs.sinks.kafka import KafkaSink
from spark_jobs.sinks.postgres import PostgresSink

log = logging.getLogger("spillway.writing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How one start of a query writes."""

    site: Site
    operator: Operator
    checkpoint: int
    """Its number: part of every writer's name."""
    buckets: int
    muted: int = NEVER
    """Batches up to this one write nothing."""
    alone: bool = True
    """Nobody else writes under the names of this checkpoint, as the query does of which a rehearsal has a copy."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        return self.site.pipeline.inputs(self.operator.name)


def written(frame: DataFrame, how: Writing, topics: Topics) -> tuple[DataStreamWriter, str | None]:
    """The writer of `frame`, and a note on who writes, where that belongs to the checkpoint (`pin_writers`). Makes the topics of
    the markers."""
    names, output = data_topics(how.site.pipeline, how.operator), how.operator.output
    deliveries = {e.delivery for e in how.site.pipeline.outputs(how.operator.name)}
    if not deliveries and output is not None:
        deliveries = {output.delivery}
    mode = how.operator.output_mode
    if not names and (output is None or output.type is SinkType.NONE):
        counted = frame.observe(SINK, F.count(F.lit(1)).alias("rows"))
        return counted.writeStream.format("noop").outputMode(mode), None
    records = to_records(frame, how.operator, nulls=not names)
    if names and deliveries == {Delivery.AT_LEAST_ONCE}:
        return _at_least_once(records, names, how), None
    by = written_by(frame, len(how.edges))
    if not names and by is WrittenBy.SOURCE:
        by = WrittenBy.SHUFFLE
    _refuse_unsteady(frame, by, how)
    if names:
        rows = arrange(records, by, how.buckets).mapInArrow(_kafka_task(names, by, how, topics), "rows bigint")
    else:
        arranged = by_columns(frame, records, output, how.buckets) if by is WrittenBy.SHUFFLE else records
        rows = arranged.select("value").mapInArrow(_postgres_task(frame, how), "rows bigint")
    log.info("%s is written by %s", how.operator.name, by)
    note = by.value if by is WrittenBy.SOURCE else f"{by.value}, {how.buckets} of them"
    return rows.observe(SINK, F.sum("rows").alias("rows")).writeStream.format("noop").outputMode(mode), note


def pin_writers(checkpoint: Checkpoint, operator: str, note: str) -> None:
    """Who writes belongs to the checkpoint: a batch that was begun with other writers must be finished by them."""
    before = checkpoint.read_text(WRITERS)
    if before == note:
        return
    head = checkpoint.head()
    if before is not None and not head.settled:
        raise RuntimeError(
            f"batch {head.planned} of {operator} was begun with rows written by {before}, now they would be written by {note}: "
            "run the version before until it is committed, or `spillway reset` the operator"
        )
    checkpoint.write_text(WRITERS, note)


def _refuse_unsteady(frame: DataFrame, by: WrittenBy, how: Writing) -> None:
    if by is not WrittenBy.SHUFFLE or "_src" in frame.columns:
        return
    if expression := unsteady(frame, [e.name for e in how.edges]):
        raise RuntimeError(
            f"{how.operator.name} is shuffled by key in front of its sink, and {expression} may give a row another key when "
            "a batch is replayed: rows could be lost or doubled; keep the column _src in its output"
        )


def _at_least_once(records: DataFrame, names: tuple[str, ...], how: Writing) -> DataStreamWriter:
    """Spark's own sink. It knows nothing of batches that write nothing: those lose their rows in front of it."""
    counted = records.observe(SINK, F.count(F.lit(1)).alias("rows"))
    if how.muted > NEVER:
        counted = counted.select("key", "value").mapInArrow(muted_task(how.muted), "key binary, value binary")
    plain = counted.select("key", "value", F.explode(F.array(*[F.lit(n) for n in names])).alias("topic"))
    writer = plain.writeStream.format("kafka").outputMode(how.operator.output_mode)
    for key, value in {"bootstrap.servers": how.site.bootstrap, **how.site.client_conf}.items():
        writer = writer.option(f"kafka.{key}", value)
    return writer


def _kafka_task(names: tuple[str, ...], by: WrittenBy, how: Writing, topics: Topics) -> Callable[[Iterator[Any]], Iterator[Any]]:
    pipeline, operator = how.site.pipeline.name, how.operator.name
    if by is WrittenBy.SOURCE:
        counts = topics.partitions()
        markers = [(marker_topic(pipeline, operator, how.checkpoint, e.name), counts[e.topic]) for e in how.edges]
    else:
        markers = [(marker_topic(pipeline, operator, how.checkpoint, by.name.lower()), how.buckets)]
    if how.alone:
        topics.ensure([Topic(name=n, partitions=c, config=MARKER_CONFIG, grow=True) for n, c in markers])
    sink = KafkaSink(
        bootstrap=how.site.bootstrap,
        writer_id=f"{writer_id(pipeline, operator, how.checkpoint)}-{by.name.lower()}",
        topics=names,
        marker_topics=tuple(n for n, _ in markers),
        by_source=by is WrittenBy.SOURCE,
        client_conf=dict(how.site.client_conf),
    )
    return sink_task(kafka_sink.write_partition, sink, how.muted, kafka_sink.stand_by if how.alone else kafka_sink.warm)


def _postgres_task(frame: DataFrame, how: Writing) -> Callable[[Iterator[Any]], Iterator[Any]]:
    output = how.operator.output
    assert output is not None and output.table is not None
    name = writer_id(how.site.pipeline.name, how.operator.name, how.checkpoint)
    columns = tuple(c for c in frame.columns if c != "_src")
    sink = PostgresSink(writer_id=name, table=output.table, keys=output.keys, columns=columns)
    return sink_task(postgres_sink.write_partition, sink, how.muted)


def epoch_of_task() -> tuple[int, int]:
    """The batch id, which Spark hands to tasks as a local property, and the task's partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    epoch = context.getLocalProperty("streaming.sql.batchId")
    if epoch is None:
        raise RuntimeError("Spark gave the task no batch id (streaming.sql.batchId); this version of Spark is not supported")
    return int(epoch), context.partitionId()


def muted_now(muted: int) -> int:
    """Up to which batch a task writes nothing: what its query was started with, or has been told since if that was for good."""
    from pyspark import TaskContext

    context = TaskContext.get()
    told = context.getLocalProperty(UNMUTED) if muted >= ALWAYS and context is not None else None
    return muted if told is None else int(told)


def sink_task(
    write: Callable[..., int],
    sink: KafkaSink | PostgresSink,
    muted: int = NEVER,
    warm: Callable[..., None] | None = None,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function each task runs over its rows. Its epoch is the batch id; up to `muted` the rows are read and counted, and
    nothing is written, but `warm` may load and connect what writing needs."""

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        epoch, partition = epoch_of_task()
        if epoch > muted_now(muted):
            rows = write(sink, epoch, partition, batches)
        else:
            first, rows = None, 0
            for batch in batches:
                first, rows = first or (batch if batch.num_rows else None), rows + batch.num_rows
            if warm is not None:
                warm(sink, epoch, partition, first)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], ["rows"])

    return part


def muted_task(muted: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Hands rows on, except those of batches up to `muted`."""

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        epoch, _ = epoch_of_task()
        until = muted_now(muted)
        for batch in batches:
            if epoch > until:
                yield batch

    return part
