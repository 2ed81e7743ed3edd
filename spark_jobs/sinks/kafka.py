"""Exactly-once writes of a micro-batch to Kafka: one transaction per writer and epoch.

A *writer* is whatever owns the same rows every time a batch is replayed: a source partition, or a state/shuffle partition after
a shuffle. It is never Spark's task number on a Kafka source, whose order changes between runs. Each writer has a transactional
id and one partition of a marker topic to itself. A transaction holds the rows of one writer in one epoch (= batch id) plus a
marker record with the epoch, so a replay finds out from Kafka itself whether the rows are there already.

Rules that make it hold under kill -9, retries and zombies:
1. `init` first (fences and aborts whoever held the id), marker second.
2. A cached producer is used only when its last epoch is this epoch or the one before; otherwise another process may have
   written meanwhile. If one has, its `init` fenced the cached producer, and the commit fails.
3. Spark replays only the last planned batch. A marker newer than the epoch means the checkpoint was lost or restored: an error.
4. Any exception drops the cached producer and is raised again: Spark's retry starts at rule 1, which settles an ambiguous commit.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sinks import STALE
from spark_jobs.sinks.librdkafka import ANY_PARTITION, ArrowProducer, KafkaWriteError, library

SOURCE_SHIFT = 20
"""`_src` = edge ordinal << SOURCE_SHIFT | partition."""

PRODUCER_CONF: dict[str, str | int | bool] = {
    # Rows are handed over in whole columns: there is nothing to wait for, and a commit would wait as well.
    "linger.ms": 0,
    "compression.type": "lz4",
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",
    # As long as brokers allow by default: a slow batch may take its time, and the next writer's `init` ends an open transaction.
    "transaction.timeout.ms": 900_000,
    "message.max.bytes": 8_388_608,
    "log_level": 2,
}
_CACHE_IDLE_S = 300.0
SPANNING = (
    "a task of {} holds rows of several source partitions, so a replay could lose or double them; drop the _src column in the "
    "operator, so that its rows are shuffled by key, or do not merge partitions"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSink:
    """Where one operator's rows go and who its writers are; pickled into the plan."""

    bootstrap: str
    writer_id: str
    """Unique per operator and checkpoint: a new checkpoint restarts epochs, so it must not meet old markers."""
    topics: tuple[str, ...]
    marker_topics: tuple[str, ...]
    """By source: one marker topic per input edge, in the order of the edge ordinals. By partition: exactly one."""
    by_source: bool
    client_conf: dict[str, str | int | bool] = field(default_factory=dict)
    timeout_s: float = 60.0


@dataclass(slots=True)
class _Cached:
    producer: ArrowProducer
    epoch: int
    used: float
    muted: bool = False
    """It wrote nothing in that epoch, because another checkpoint had."""


_PRODUCERS: dict[str, _Cached] = {}
"""Transactional id → producer, for this Python worker process only."""


_MARKER_LOCK = threading.Lock()
"""A consumer has one assignment: in a driver several threads look for markers."""
_MARKER_READERS: dict[str, Any] = {}
"""Bootstrap servers → consumer for markers: a task that moves to another process pays for connections only once there."""


def _marker_reader(bootstrap: str, client_conf: dict[str, str | int | bool]) -> Any:
    from confluent_kafka import Consumer

    if bootstrap not in _MARKER_READERS:
        _MARKER_READERS[bootstrap] = Consumer(
            {
                **client_conf,
                "bootstrap.servers": bootstrap,
                "group.id": "spillway-markers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "log_level": 2,
            }
        )
    return _MARKER_READERS[bootstrap]


def last_epoch(bootstrap: str, topic: str, partition: int, writer: str, client_conf: dict[str, str | int | bool]) -> int:
    """The newest epoch committed by `writer`, -1 if none: a read_committed scan of its own marker partition."""
    from confluent_kafka import KafkaException

    with _MARKER_LOCK:
        consumer = _marker_reader(bootstrap, client_conf)
        try:
            newest = _scan(consumer, topic, partition, writer)
            consumer.unassign()
            return newest
        except (KafkaWriteError, KafkaException):
            _MARKER_READERS.pop(bootstrap, None)
            consumer.close()
            raise


def _scan(consumer: Any, topic: str, partition: int, writer: str) -> int:
    from confluent_kafka import KafkaError, TopicPartition

    # The watermark call also learns the leader; without it the first fetch waits half a second.
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.assign([TopicPartition(topic, partition, low)])
    newest, deadline = -1, time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None or (message.topic(), message.partition()) != (topic, partition):
            continue
        error = message.error()
        if error is None:
            if message.key() == writer.encode():
                newest = max(newest, int(message.value() or b"-1"))
        elif error.code() == KafkaError._PARTITION_EOF:
            return newest
        elif not error.retriable():
            raise KafkaWriteError(f"reading marker {topic}[{partition}]", error.name(), error.str())
    raise KafkaWriteError(f"reading marker {topic}[{partition}]", "_TIMED_OUT", "no end of the partition within 30 s")


def warm(sink: KafkaSink, *_: object) -> None:
    """Loads and connects what a first write in this process would wait for. Writes nothing, and fences nobody."""
    from confluent_kafka import KafkaException

    library()
    # A broker that does not answer now is waited for by whoever writes.
    with _MARKER_LOCK, contextlib.suppress(KafkaException):
        if sink.bootstrap not in _MARKER_READERS:
            _marker_reader(sink.bootstrap, sink.client_conf).list_topics(timeout=5)


def stand_by(sink: KafkaSink, epoch: int, partition_id: int, first: pa.RecordBatch | None) -> None:
    """As `warm`, and takes the id of the writer, as if this batch had been written: the next one then finds its producer.

    Only for writers of a checkpoint under which nobody else writes."""
    from confluent_kafka import KafkaException

    if first is None:
        warm(sink)
        return
    tid, marker_topic, marker_partition = _writer(sink, first, partition_id)
    with contextlib.suppress(KafkaException, KafkaWriteError):
        cached = _producer(sink, tid, marker_topic, marker_partition, epoch)
        cached.epoch, cached.muted = epoch, True


def fence(sink: KafkaSink, writer: str) -> None:
    """From now on whoever held this writer's id can commit nothing more, so what its marker says is the last word."""
    producer = ArrowProducer(
        {**PRODUCER_CONF, **sink.client_conf, "bootstrap.servers": sink.bootstrap, "transactional.id": writer}
    )
    try:
        producer.init(sink.timeout_s)
    finally:
        producer.close()


def _producer(sink: KafkaSink, tid: str, marker_topic: str, marker_partition: int, epoch: int) -> _Cached:
    cached = _PRODUCERS.get(tid)
    if cached is not None:
        if cached.epoch in (epoch - 1, epoch):
            cached.used = time.monotonic()
            return cached
        _drop(tid)
    for other in [t for t, c in _PRODUCERS.items() if time.monotonic() - c.used > _CACHE_IDLE_S]:
        _drop(other)
    producer = ArrowProducer({**PRODUCER_CONF, **sink.client_conf, "bootstrap.servers": sink.bootstrap, "transactional.id": tid})
    try:
        producer.init(sink.timeout_s)
        epoch_there = last_epoch(sink.bootstrap, marker_topic, marker_partition, tid, sink.client_conf)
    except BaseException:
        producer.close()
        raise
    cached = _PRODUCERS[tid] = _Cached(producer, epoch_there, time.monotonic())
    return cached


def _drop(tid: str) -> None:
    cached = _PRODUCERS.pop(tid, None)
    if cached is not None:
        cached.producer.close()


def _writer(sink: KafkaSink, first: pa.RecordBatch, partition_id: int) -> tuple[str, str, int]:
    """(transactional id, marker topic, marker partition) of the task that holds `first`."""
    if not sink.by_source:
        return f"{sink.writer_id}-p{partition_id}", sink.marker_topics[0], partition_id
    source = first.column("_src")[0].as_py()
    edge, partition = source >> SOURCE_SHIFT, source & ((1 << SOURCE_SHIFT) - 1)
    return f"{sink.writer_id}-e{edge}-{partition}", sink.marker_topics[edge], partition


def write_partition(sink: KafkaSink, epoch: int, partition_id: int, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes one task's rows (columns key, value and, by source, _src) in one transaction; returns how many rows it had.

    Rows that an earlier attempt committed are counted but not written again.
    """
    batches = iter(batches)
    first = next((b for b in batches if b.num_rows), None)
    if first is None:
        return 0
    tid, marker_topic, marker_partition = _writer(sink, first, partition_id)
    try:
        cached = _producer(sink, tid, marker_topic, marker_partition, epoch)
        if cached.epoch > epoch:
            raise RuntimeError(STALE.format(writer=tid, epoch=epoch, marker=cached.epoch))
        if cached.epoch == epoch and not cached.muted:
            return first.num_rows + sum(b.num_rows for b in batches)
        producer, rows = cached.producer, 0
        source = first.column("_src")[0] if sink.by_source else None
        producer.begin()
        for batch in itertools.chain([first], batches):
            if not batch.num_rows:
                continue
            if source is not None:
                span = pc.min_max(batch.column("_src"))
                if span["min"] != source or span["max"] != source:
                    raise RuntimeError(SPANNING.format(sink.writer_id))
            for topic in sink.topics:
                producer.send(topic, batch.column("key"), batch.column("value"), ANY_PARTITION)
            rows += batch.num_rows
        producer.send(marker_topic, pa.array([tid.encode()]), pa.array([str(epoch).encode()]), marker_partition)
        producer.commit(sink.timeout_s)
        cached.epoch, cached.muted = epoch, False
        return rows
    except BaseException:
        _drop(tid)
        raise
