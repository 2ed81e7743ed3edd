"""The exactly-once sinks on a real broker and a real Postgres, without Spark: what a replay, a zombie and a move do.

Both sinks answer the same contract.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spillway.embedded import Stack

from spark_jobs.sinks import kafka, postgres
from spark_jobs.sinks.kafka import SOURCE_SHIFT, KafkaSink
from spark_jobs.sinks.librdkafka import ArrowProducer, KafkaWriteError
from spark_jobs.sinks.postgres import PostgresSink

pytestmark = pytest.mark.integration

Write = Callable[[int, int, list[dict[str, Any]]], int]


class Target:
    """One sink, with a way to read what it holds: sorted values, so that what is twice shows twice."""

    def __init__(self, write: Write, read: Callable[[], list[Any]], forget: Callable[[], None]) -> None:
        self.write, self.read, self.forget = write, read, forget


def batches(rows: list[dict[str, Any]], source: int | None = None) -> Iterator[pa.RecordBatch]:
    """Arrow batches of three rows, an empty one among them."""
    for first in range(0, len(rows), 3):
        part = rows[first : first + 3]
        columns = {
            "key": pa.array([str(r["k"]).encode() for r in part], pa.binary()),
            "value": pa.array([json.dumps(r).encode() for r in part], pa.binary()),
        }
        if source is not None:
            columns["_src"] = pa.array([source] * len(part), pa.int32())
        batch = pa.RecordBatch.from_pydict(columns)
        yield batch.slice(0, 0)
        yield batch


def committed(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "t", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, timeout=10).topics[topic].partitions])
    found, open_ = [], len(consumer.assignment())
    while open_:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(json.loads(message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            open_ -= 1
    consumer.close()
    return found


@pytest.fixture
def sink(stack: Stack, unique: Callable[[str], str]) -> KafkaSink:
    bootstrap, name = stack.env["SPILLWAY_KAFKA"], unique("sink")
    topics = [NewTopic(name, 2), NewTopic(f"{name}.m", 4, config={"cleanup.policy": "compact"})]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result()
    return KafkaSink(bootstrap=bootstrap, writer_id=name, topics=(name,), marker_topics=(f"{name}.m",), by_source=False)


@pytest.fixture
def kafka_target(sink: KafkaSink) -> Target:
    def forget() -> None:
        for tid in list(kafka._PRODUCERS):
            kafka._drop(tid)

    return Target(
        lambda epoch, partition, rows: kafka.write_partition(sink, epoch, partition, batches(rows)),
        lambda: sorted(r["n"] for r in committed(sink.bootstrap, sink.topics[0])),
        forget,
    )


@pytest.fixture
def postgres_target(stack: Stack, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv("SPILLWAY_DSN_JOB", stack.env["SPILLWAY_DSN_JOB"])
    table = unique("sink").replace("-", "_").replace(".", "_")
    owner = psycopg2.connect(stack.env["SPILLWAY_DSN_OWNER"])
    owner.autocommit = True
    cursor = owner.cursor()
    cursor.execute(f"create table spillway.{table} (k int, n int, more jsonb, times int default 1, primary key (k, n))")
    cursor.execute(f"grant select, insert, update on spillway.{table} to spillway_job")
    target = PostgresSink(writer_id=table, table=f"spillway.{table}", keys=("k", "n"))

    def read() -> list[Any]:
        cursor.execute(f"select n from spillway.{table} order by n")
        return [r[0] for r in cursor.fetchall()]

    yield Target(lambda e, p, rows: postgres.write_partition(target, e, p, batches(rows)), read, lambda: None)
    cursor.execute(f"drop table spillway.{table}")
    owner.close()


@pytest.fixture(params=["kafka", "postgres"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(f"{request.param}_target")
    return found


def rows(first: int, count: int = 7) -> list[dict[str, Any]]:
    return [{"k": n % 3, "n": n, "more": {"of": [n]}} for n in range(first, first + count)]


def test_each_epoch_is_written_once_whoever_repeats_it(target: Target) -> None:
    assert target.write(0, 0, rows(0)) == 7
    assert target.write(0, 1, rows(100)) == 7
    assert target.write(1, 0, rows(10)) == 7
    before = target.read()
    assert before == [*range(7), *range(10, 17), *range(100, 107)]
    assert target.write(1, 0, rows(10)) == 7, "a replay in the same process: counted, not written"
    target.forget()
    assert target.write(1, 0, rows(10)) == 7, "a replay in another process"
    assert target.write(0, 0, rows(0)) == 7, "an older epoch"
    assert target.read() == before
    target.forget()
    target.write(2, 0, rows(20))
    assert target.read() == sorted([*before, *range(20, 27)])


def test_an_empty_task_writes_nothing_and_a_gap_in_epochs_is_no_harm(target: Target) -> None:
    assert target.write(0, 0, []) == 0
    assert target.write(3, 0, rows(0)) == 7
    assert target.write(9, 0, rows(10)) == 7
    assert target.read() == [*range(7), *range(10, 17)]


def test_a_task_that_fails_half_way_leaves_nothing(target: Target) -> None:
    broken = [*rows(0), {"k": object()}]
    with pytest.raises(TypeError):
        target.write(0, 0, broken)
    assert target.read() == []
    assert target.write(0, 0, rows(0)) == 7
    assert target.read() == [*range(7)]


def test_a_zombie_that_wakes_up_cannot_commit(sink: KafkaSink) -> None:
    """Another process has taken over the epoch while this one stood still in its open transaction."""
    program = textwrap.dedent("""
        import sys, json, pickle
        from spark_jobs.sinks import kafka
        from tests.integration.test_sinks import batches, rows
        print(kafka.write_partition(pickle.loads(bytes.fromhex(sys.argv[1])), 1, 0, batches(rows(10))))
    """)
    import pickle

    def slow(found: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(found)):
            if number == 4:  # the transaction is open: the other process does the whole epoch now
                done = subprocess.run([sys.executable, "-c", program, pickle.dumps(sink).hex()], capture_output=True, check=True)
                assert done.stdout.strip() == b"7"
            yield batch

    kafka.write_partition(sink, 0, 0, batches(rows(0)))
    with pytest.raises(KafkaWriteError) as error:
        kafka.write_partition(sink, 1, 0, slow(rows(10)))
    assert error.value.fenced
    assert sorted(r["n"] for r in committed(sink.bootstrap, sink.topics[0])) == [*range(7), *range(10, 17)]
    assert kafka.write_partition(sink, 1, 0, batches(rows(10))) == 7, "its retry finds the epoch done"
    assert sorted(r["n"] for r in committed(sink.bootstrap, sink.topics[0])) == [*range(7), *range(10, 17)]


def test_an_open_transaction_of_another_writer_hides_no_marker(sink: KafkaSink) -> None:
    kafka.write_partition(sink, 0, 0, batches(rows(0)))
    other = ArrowProducer({"bootstrap.servers": sink.bootstrap, "transactional.id": f"{sink.writer_id}-p1"})
    other.init(30)
    other.begin()
    other.send(sink.marker_topics[0], pa.array([b"x"]), pa.array([b"9"]), 1)
    for tid in list(kafka._PRODUCERS):
        kafka._drop(tid)
    assert kafka.last_epoch(sink.bootstrap, sink.marker_topics[0], 0, f"{sink.writer_id}-p0", {}) == 0
    other.close()


def test_rows_of_two_source_partitions_in_one_task_are_refused(sink: KafkaSink) -> None:
    by_source = KafkaSink(
        bootstrap=sink.bootstrap,
        writer_id=f"{sink.writer_id}-s",
        topics=sink.topics,
        marker_topics=sink.marker_topics,
        by_source=True,
    )
    first, second = batches(rows(0, 3), source=1), batches(rows(3, 3), source=2)
    with pytest.raises(RuntimeError, match="several source partitions"):
        kafka.write_partition(by_source, 0, 0, iter([*first, *second]))
    assert committed(sink.bootstrap, sink.topics[0]) == []
    assert kafka.write_partition(by_source, 0, 5, batches(rows(0, 3), source=(0 << SOURCE_SHIFT) | 1)) == 3
    assert kafka.last_epoch(sink.bootstrap, sink.marker_topics[0], 1, f"{sink.writer_id}-s-e0-1", {}) == 0


def test_a_bad_client_setting_says_so() -> None:
    with pytest.raises(KafkaWriteError, match=r"setting no\.such\.thing"):
        ArrowProducer({"bootstrap.servers": "127.0.0.1:1", "no.such.thing": "1"})
