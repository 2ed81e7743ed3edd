"""The sinks beside the exactly-once topic (a table, at-least-once, none), on a line whose services come late or go."""

from __future__ import annotations

import collections
import json
import time

import psycopg2
import pytest
from spillway.embedded import Stack

from tests.support.line import Line, driver_log, until

YAML = """
pipeline: other
trigger: 300ms
lineage: true
operators:
  ledger:
    function: tests.support.operators:tally
    kind: aggregate
    output_mode: update
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
    output: {type: postgres, table: ledger.tally, keys: [key]}
  relay:
    function: tests.support.operators:slow_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
  nowhere:
    function: tests.support.operators:plain_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
    output: {type: none}
edges:
  - {topic: other.paid, to: ledger, partitions: 2}
  - {topic: other.in, to: relay, partitions: 2}
  - {from: relay, to: nowhere, partitions: 2, delivery: at_least_once}
applications:
  all: {operators: [ledger, relay, nowhere], executors: 1, slots: 2}
"""
TABLE = """
create schema ledger;
create table ledger.tally (key text primary key, rows bigint, total bigint, checksum bigint);
grant usage on schema ledger to spillway_job, spillway_read;
grant select, insert, update on ledger.tally to spillway_job;
grant select on ledger.tally to spillway_read;
"""
EDGES = ("other.paid:ledger", "other.in:relay", "relay:nowhere")


def write(line: Line, numbers: range) -> None:
    for topic in ("other.paid", "other.in"):
        line.produce(topic, [(f"{n % 50}".encode(), json.dumps({"n": n, "key": f"k{n % 50}"}).encode()) for n in numbers])


def generation(line: Line) -> int:
    return line.sql("select generation from spillway.application where pipeline = 'other'")[0][0]


def settled(line: Line) -> bool:
    return line.running() and all(line.caught_up(e) for e in EDGES)


@pytest.mark.integration
@pytest.mark.timeout(500)
def test_every_sink_keeps_its_promise_though_services_are_late_and_drivers_die(stack: Stack) -> None:
    with psycopg2.connect(stack.env["SPILLWAY_DSN_OWNER"]) as owner, owner.cursor() as cursor:
        cursor.execute(TABLE)
    line = Line(stack, YAML)
    write(line, range(1000))

    # Kafka is away when the driver starts: it says so, ends, and is started again until Kafka is there.
    stack.stop("kafka")
    with line:
        said = "select text from spillway.event where pipeline = 'other' and kind = 'failed'"
        [text, *_] = until(lambda: line.sql(said), 120, "the driver says that Kafka is away")[0]
        assert f"Kafka at {stack.env['SPILLWAY_KAFKA']} does not answer" in text and "check that the broker runs" in text
        stack.start("kafka")
        until(lambda: settled(line), 120, "all is read once Kafka is there\n" + driver_log(stack))

        # A driver is killed inside batches; its successor finds no Postgres when it starts, and waits for it.
        before = generation(line)
        write(line, range(1000, 4000))
        time.sleep(0.7)
        line.kill(line.drivers())
        until(lambda: generation(line) > before and line.drivers(), 60, "a successor is launched", every_s=0.05)
        stack.stop("postgres")
        write(line, range(4000, 5000))
        time.sleep(12)
        assert line.drivers(), "the driver waits for Postgres"
        stack.start("postgres")
        until(lambda: settled(line), 120, "all is read once Postgres is there\n" + driver_log(stack))

        # An executor is killed, and Postgres restarts while its table is being written.
        write(line, range(5000, 8000))
        time.sleep(0.7)
        line.kill(line.executors())
        stack.stop("postgres")
        stack.start("postgres")
        until(lambda: settled(line), 120, "all is read after the restart of Postgres\n" + driver_log(stack))
        line.stop()

    expected: dict[str, tuple[int, int]] = {f"k{k}": (160, sum(range(k, 8000, 50))) for k in range(50)}
    assert {key: (rows, total) for key, rows, total in line.sql("select key, rows, total from ledger.tally")} == expected
    source = {f"other.in-{partition}-{offset}" for partition, offset, *_ in line.consume("other.in")}
    relayed = collections.Counter(r["lineage"] for r in line.records("other.relay.nowhere"))
    assert len(source) == 8000 and relayed.keys() == source, "at least once: none is lost, and none is made up"
    [(read, out)] = line.sql(
        "select sum(input_rows), sum(output_rows) from spillway.batch_metric where pipeline = 'other' and operator = 'nowhere'"
    )
    assert read == out > 0
