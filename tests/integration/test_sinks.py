"""The exactly-once sinks on a real broker and a real Postgres, without Spark: what a replay, a zombie and a move do.

Both sinks answer the same contract.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spillway.embedded import Stack

from spark_jobs.sinks import STALE, kafka, postgres
from spark_jobs.sinks.kafka import SOURCE_SHIFT, KafkaSink
from spark_jobs.sinks.librdkafka import ArrowProducer, KafkaWriteError
from spark_jobs.sinks.postgres import PostgresSink

pytestmark = pytest.mark.integration

Write = Callable[[int, int, list[dict[str, Any]]], int]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One sink, with a way to read what it holds: sorted values, so that what is twice shows twice."""

    writer: str
    write: Write
    read: Callable[[], list[Any]]
    forget: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Table:
    sink: PostgresSink
    sql: Callable[[str], list[tuple[Any, ...]]]

    def write(self, epoch: int, partition: int, found: list[dict[str, Any]]) -> int:
        return postgres.write_partition(self.sink, epoch, partition, batches(found))

    def numbers(self) -> list[int]:
        return [n for (n,) in self.sql("select n from {} order by n")]


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


def wait_for_leaders(bootstrap: str, partitions: list[TopicPartition], within_s: float = 20.0) -> None:
    """A broker answers for a new topic a moment before it leads its partitions."""
    consumer, deadline = Consumer({"bootstrap.servers": bootstrap, "group.id": "t"}), time.monotonic() + within_s
    for partition in partitions:
        while True:
            try:
                consumer.get_watermark_offsets(partition, timeout=5)
                break
            except KafkaException as error:
                assert time.monotonic() < deadline, error
                time.sleep(0.1)
    consumer.close()


@pytest.fixture
def sink(stack: Stack, unique: Callable[[str], str]) -> KafkaSink:
    bootstrap, name = stack.env["SPILLWAY_KAFKA"], unique("sink")
    topics = [NewTopic(name, 2), NewTopic(f"{name}.m", 4, config={"cleanup.policy": "compact"})]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result()
    wait_for_leaders(bootstrap, [TopicPartition(t.topic, p) for t in topics for p in range(t.num_partitions)])
    return KafkaSink(bootstrap=bootstrap, writer_id=name, topics=(name,), marker_topics=(f"{name}.m",), by_source=False)


@pytest.fixture
def kafka_target(sink: KafkaSink) -> Target:
    def forget() -> None:
        for tid in list(kafka._PRODUCERS):
            kafka._drop(tid)

    return Target(
        writer=sink.writer_id,
        write=lambda epoch, partition, rows: kafka.write_partition(sink, epoch, partition, batches(rows)),
        read=lambda: sorted(r["n"] for r in committed(sink.bootstrap, sink.topics[0])),
        forget=forget,
    )


@pytest.fixture
def table(stack: Stack, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setenv("SPILLWAY_DSN_JOB", stack.env["SPILLWAY_DSN_JOB"])
    name = unique("sink")
    owner = psycopg2.connect(stack.env["SPILLWAY_DSN_OWNER"])
    owner.autocommit = True
    cursor = owner.cursor()

    def run(text: str) -> list[tuple[Any, ...]]:
        cursor.execute(text.format(f"spillway.{name}"))
        return cursor.fetchall() if cursor.description else []

    run("create table {} (k int, n int, more jsonb, primary key (k, n))")
    run("grant select, insert, update on {} to spillway_job")
    sink = PostgresSink(writer_id=name, table=f"spillway.{name}", keys=("k", "n"), columns=("k", "n", "more"))
    yield Table(sink=sink, sql=run)
    run("drop table {}")
    owner.close()


@pytest.fixture
def postgres_target(table: Table) -> Target:
    return Target(writer=table.sink.writer_id, write=table.write, read=table.numbers, forget=lambda: None)


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
    assert target.read() == before
    target.forget()
    target.write(2, 0, rows(20))
    assert target.read() == sorted([*before, *range(20, 27)])


def test_an_epoch_older_than_the_marker_is_refused(target: Target) -> None:
    """The checkpoint was wiped or restored: what is asked for now are other rows than those written under this epoch."""
    target.write(4, 0, rows(0))
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            target.write(3, 0, rows(10))
        assert str(raised.value) == STALE.format(writer=f"{target.writer}-p0", epoch=3, marker=4)
        target.forget()
    assert target.write(3, 1, rows(20)) == 7, "another writer has a marker of its own"
    assert target.write(5, 0, rows(30)) == 7
    assert target.read() == [*range(7), *range(20, 27), *range(30, 37)]


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


@pytest.mark.parametrize("pause_s", [0.0, 0.5], ids=["at once", "slowly"])
def test_a_zombie_that_wakes_up_cannot_commit(sink: KafkaSink, pause_s: float) -> None:
    """Another process has taken over the epoch while this one stood still in its open transaction. Whether it hears of that by
    its rows or by its commit depends on how quickly it goes on."""
    program = textwrap.dedent("""
        import sys, json, pickle
        from spark_jobs.sinks import kafka
        from tests.integration.test_sinks import batches, rows
        print(kafka.write_partition(pickle.loads(bytes.fromhex(sys.argv[1])), 1, 0, batches(rows(10))))
    """)

    def slow(found: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(found)):
            if number == 4:  # the transaction is open: the other process does the whole epoch now
                done = subprocess.run([sys.executable, "-c", program, pickle.dumps(sink).hex()], capture_output=True, check=True)
                assert done.stdout.strip() == b"7"
            time.sleep(pause_s if number > 4 else 0.0)
            yield batch

    kafka.write_partition(sink, 0, 0, batches(rows(0)))
    with pytest.raises(KafkaWriteError) as error:
        kafka.write_partition(sink, 1, 0, slow(rows(10)))
    assert error.value.fenced and error.value.fatal
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


def test_threads_that_look_for_their_markers_together_find_their_own(sink: KafkaSink) -> None:
    for partition in range(4):
        kafka.write_partition(sink, partition + 5, partition, batches(rows(0)))
    topic = sink.marker_topics[0]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        looked = [
            (p, pool.submit(kafka.last_epoch, sink.bootstrap, topic, p, f"{sink.writer_id}-p{p}", {})) for p in [*range(4)] * 3
        ]
        assert [(p, found.result(60)) for p, found in looked] == [(p, p + 5) for p, _ in looked]


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


def test_every_column_of_a_row_is_written_whatever_shares_its_batch(table: Table) -> None:
    table.write(0, 0, [{"k": 1, "n": 1, "more": {"of": 1}}, {"k": 2, "n": 2, "more": [2]}])
    table.write(1, 0, [{"k": 1, "n": 1}, {"k": 2, "n": 2, "more": None}])
    assert table.sql("select k, n, more from {} order by k") == [(1, 1, None), (2, 2, None)]
    table.write(2, 0, [{"k": 1, "n": 1, "more": [1]}, {"k": 3, "n": 3}])
    assert table.sql("select k, more from {} order by k") == [(1, [1]), (2, None), (3, None)]


def test_rows_are_written_in_the_order_of_their_keys_and_the_last_of_a_key_stays(table: Table) -> None:
    found = [{"k": k, "n": 0, "more": more} for more in ([1], [2]) for k in (5, 3, 8, 1)]
    assert table.write(0, 0, found) == 8
    assert table.sql("select k, more from {} order by ctid") == [(k, [2]) for k in (1, 3, 5, 8)]


def test_the_character_zero_that_postgres_cannot_hold_stops_nothing(table: Table) -> None:
    table.write(0, 0, [{"k": 1, "n": 1, "more": {"a\x00": ["b\x00c", None]}}])
    assert table.sql("select k, more from {}") == [(1, {"a": ["bc", None]})]
    table.sql("alter table {} alter n type text")
    table.write(1, 0, [{"k": 2, "n": "x\x00", "more": [1]}, {"k": 2, "n": "x", "more": [2]}])
    assert table.sql("select n, more from {} where k = 2") == [("x", [2])], "keys that are the same without it are one row"


def test_a_table_of_keys_alone_takes_a_row_twice(table: Table) -> None:
    only = Table(sink=replace(table.sink, columns=("k", "n")), sql=table.sql)
    only.write(0, 0, rows(0))
    only.write(1, 0, rows(3))
    assert table.numbers() == [*range(10)]


def test_keys_that_the_rows_do_not_have_are_refused_at_the_start() -> None:
    with pytest.raises(RuntimeError) as raised:
        PostgresSink(writer_id="w", table="public.bills", keys=("zone", "hour"), columns=("zone", "fare"))
    assert str(raised.value) == (
        "public.bills is keyed by hour, but the operator's rows only have zone, fare: "
        "let its function return the key columns, or change `keys` of its output"
    )


def test_a_writer_that_stands_by_writes_at_once_when_its_turn_comes(sink: KafkaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows another query takes its own writers' ids meanwhile: the first batch it writes waits for no handshake."""
    first, inits, init = next(b for b in batches([{"n": 1, "k": 1}]) if b.num_rows), [], ArrowProducer.init
    monkeypatch.setattr(ArrowProducer, "init", lambda self, timeout_s: (inits.append(1), init(self, timeout_s)))
    for epoch in (4, 5):
        kafka.stand_by(sink, epoch, 1, first)
    assert len(inits) == 1 and committed(sink.bootstrap, sink.topics[0]) == []
    assert kafka.write_partition(sink, 6, 1, batches([{"n": 6, "k": 1}])) == 1
    assert len(inits) == 1, "the producer of the batches that wrote nothing"
    assert kafka.write_partition(sink, 6, 1, batches([{"n": 6, "k": 1}])) == 1, "repeated: counted, not written"
    assert [r["n"] for r in committed(sink.bootstrap, sink.topics[0])] == [6]


def test_an_epoch_for_which_a_writer_only_stood_by_is_not_taken_for_written(sink: KafkaSink) -> None:
    kafka.stand_by(sink, 3, 0, next(b for b in batches([{"n": 3, "k": 1}]) if b.num_rows))
    assert kafka.write_partition(sink, 3, 0, batches([{"n": 3, "k": 1}])) == 1
    assert [r["n"] for r in committed(sink.bootstrap, sink.topics[0])] == [3]


def test_a_writer_that_is_written_by_elsewhere_meanwhile_does_not_write_on_what_it_stood_by_for(sink: KafkaSink) -> None:
    """A driver that was taken for dead stands by for names under which the next one writes."""
    first = next(b for b in batches([{"n": 0, "k": 1}]) if b.num_rows)
    kafka.stand_by(sink, 3, 0, first)
    zombie = kafka._PRODUCERS.pop(f"{sink.writer_id}-p0")
    assert kafka.write_partition(sink, 4, 0, batches([{"n": 4, "k": 1}])) == 1
    kafka._drop(f"{sink.writer_id}-p0")
    kafka._PRODUCERS[f"{sink.writer_id}-p0"] = zombie
    with pytest.raises(KafkaWriteError) as told:
        kafka.write_partition(sink, 4, 0, batches([{"n": 4, "k": 1}]))
    assert told.value.fenced
    assert kafka.write_partition(sink, 4, 0, batches([{"n": 4, "k": 1}])) == 1, "again, as Spark does: its marker is found"
    assert [r["n"] for r in committed(sink.bootstrap, sink.topics[0])] == [4]


def test_a_stopped_process_does_not_keep_its_locks_and_cannot_commit_when_it_wakes_up(table: Table) -> None:
    """SIGSTOP in the open transaction, behind the marker and before the rows."""
    sink = replace(table.sink, idle_s=2.0, lock_s=8.0)
    program = textwrap.dedent("""
        import os, pickle, signal, sys
        import psycopg2.extras
        from spark_jobs.sinks import postgres
        from tests.integration.test_sinks import batches, rows
        real = psycopg2.extras.execute_values
        def stopped(*args, **options):
            os.kill(os.getpid(), signal.SIGSTOP)
            return real(*args, **options)
        psycopg2.extras.execute_values = stopped
        postgres.write_partition(pickle.loads(bytes.fromhex(sys.argv[1])), 1, 0, batches(rows(100)))
    """)
    postgres.write_partition(sink, 0, 0, batches(rows(0)))
    zombie = subprocess.Popen([sys.executable, "-c", program, pickle.dumps(sink).hex()], stderr=subprocess.PIPE, text=True)
    try:
        _, how = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(how)
        began = time.monotonic()
        assert postgres.write_partition(sink, 1, 0, batches(rows(10))) == 7
        assert 0.5 < time.monotonic() - began < 8, "it waited for the server to end the other transaction, and no longer"
        os.kill(zombie.pid, signal.SIGCONT)
        _, error = zombie.communicate(timeout=10)
        assert zombie.returncode == 1
        assert "idle-in-transaction timeout" in error or "server closed the connection" in error
    finally:
        zombie.kill()
        zombie.wait(10)
    assert table.numbers() == [*range(7), *range(10, 17)]
    assert postgres.write_partition(sink, 1, 0, batches(rows(10))) == 7, "its retry finds the epoch done"
    assert table.numbers() == [*range(7), *range(10, 17)]
