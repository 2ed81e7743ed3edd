"""At keep = 1 every event is processed exactly once at every sink, whatever is killed; checked by lineage id, not by counts."""

from __future__ import annotations

import collections
import json
import random
import signal
import sys
import time

import pytest
from spillway.embedded import Stack
from spillway.policy import Policy

from tests.support.line import Line, driver_log, until
from tests.support.live import Feed, numbered

YAML = """
pipeline: kills
trigger: 1s
batch_target: 3s
lineage: true
operators:
  slow:
    function: tests.support.operators:slow_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    args: {pause_s: 0.03}
  by_source:
    function: tests.support.operators:slow_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    args: {pause_s: 0.03}
  by_shuffle:
    function: tests.support.operators:plain_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 3
  by_state:
    function: tests.support.operators:tally
    kind: aggregate
    output_mode: update
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    args: {pause_s: 0.03}
edges:
  - {topic: kills.in, to: slow, partitions: 4}
  - {from: slow, to: by_source, partitions: 4}
  - {from: slow, to: by_shuffle, partitions: 4}
  - {from: slow, to: by_state, partitions: 4}
applications:
  first:
    operators: [slow, by_shuffle]
    executors: 2
    slots: 1
    conf: &quick
      spark.sql.execution.arrow.maxRecordsPerBatch: "10"
      spark.buffer.size: "512"  # small, so that rows reach the sink one by one and its transaction stays open for a while
      spark.network.timeout: 6s
      spark.network.timeoutInterval: 1s
      spark.executor.heartbeatInterval: 1s
  second:
    operators: [by_source, by_state]
    executors: 2
    slots: 1
    conf: *quick
"""
KEYS = 500


def progress(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def committed(line: Line) -> int:
    return line.sql("select coalesce(sum(input_rows), 0) from spillway.batch_metric where pipeline = 'kills'")[0][0]


def settle(line: Line, what: str) -> None:
    """Running again, and a batch has ended since."""
    until(line.running, 180, f"the applications run again after {what}")
    before = committed(line)
    until(lambda: committed(line) > before, 180, f"a batch ends after {what}")


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_every_event_once_whatever_is_killed(stack: Stack) -> None:
    chance = random.Random(7)
    kills: collections.Counter[str] = collections.Counter()
    with Line(stack, YAML) as line:
        until(line.running, 240, "the applications run\n" + driver_log(stack))
        feed = Feed(line, "kills.in", numbered(KEYS), 200, every_s=2.0)  # slowly, so that every kill falls into running batches
        feed.start()
        settle(line, "the start")

        open_in = {"kills.slow.by_source": "first", "kills.by_source.out": "second", "kills.by_state.out": "second"}
        for hits in (["kills.slow.by_source", "kills.by_source.out"], ["kills.by_state.out"]):
            progress("kill -9 of the drivers")
            assert line.kill(line.drivers()) >= 2
            kills["driver"] += 2
            settle(line, "the drivers were killed")
            for topic in hits:
                progress(f"kill -9 of the executors of {open_in[topic]} inside a transaction of {topic}")
                kills["executor"] += line.kill_inside_transaction(open_in[topic], topic)
            settle(line, "executors were killed")

        progress("an executor of each application stops with its Python workers, and they wake up again")
        zombies = [chance.choice(line.executors(application)) for application in ("first", "second")]
        families = [p for zombie in zombies for p in (zombie, *zombie.children(recursive=True))]
        line.kill(families, signal.SIGSTOP)
        time.sleep(9)  # longer than the network timeout: their tasks run elsewhere by now
        line.kill(families, signal.SIGCONT)
        kills["zombie"] += len(zombies)
        settle(line, "zombies woke up")

        progress("kill -9 of Kafka, then Postgres stops and starts")
        stack.kill("kafka")
        stack.wait_healthy("kafka")
        kills["kafka"] += 1
        stack.stop("postgres")
        time.sleep(6)  # batches go on meanwhile, those that Kafka's death has broken among them
        stack.start("postgres")
        kills["postgres"] += 1
        settle(line, "Kafka and Postgres restarted")

        rows_sent = feed.finish()
        for edge in ("kills.in:slow", "slow:by_source", "slow:by_shuffle", "slow:by_state"):
            until(lambda edge=edge: line.caught_up(edge), 300, f"{edge} is read to its end")
        line.stop()
        for operator in ("slow", "by_source", "by_shuffle", "by_state"):
            assert line.planned(operator) == line.committed(operator) >= 0, f"{operator} was stopped inside a batch"
        bounds = dict(line.sql("select operator, min(max_rows) from spillway.batch_metric where pipeline = 'kills' group by 1"))
        progress(f"smallest bound of a batch: {bounds}")
        assert min(bounds.values()) < Policy().batch_rows_first, "no bound followed the batches that took too long"
        progress(f"{sum(kills.values())} kills: {dict(kills)}")
        assert sum(kills.values()) >= 10

        source = {f"kills.in-{partition}-{offset}": json.loads(value) for partition, offset, _, value in line.consume("kills.in")}
        assert len(source) == rows_sent
        for topic in ("kills.slow.by_source", "kills.by_source.out", "kills.by_shuffle.out"):
            seen = collections.Counter(r["lineage"] for r in line.records(topic))
            lost, doubled = source.keys() - seen.keys(), {k: n for k, n in seen.items() if n > 1}
            assert not lost and not doubled, f"{topic}: {len(lost)} lost, {len(doubled)} doubled: {list(doubled.items())[:5]}"
            assert seen.keys() == source.keys()

        # The kills have hit open transactions: what they aborted is still in the log for readers of uncommitted rows.
        for topic in ("kills.slow.by_source", "kills.by_source.out", "kills.by_state.out"):
            written, kept = len(line.consume(topic, committed=False)), len(line.consume(topic))
            progress(f"{topic}: {written - kept} records of aborted transactions beside {kept}")
            assert written > kept, f"no kill hit an open transaction of {topic}"

        rows: collections.Counter[str] = collections.Counter()
        total: collections.Counter[str] = collections.Counter()
        for event in source.values():
            rows[event["key"]] += 1
            total[event["key"]] += event["n"]
        # Update mode: the newest record of a key is the one with the most rows.
        newest: dict[str, dict[str, int]] = {}
        states = line.records("kills.by_state.out")
        assert max(collections.Counter((r["key"], r["rows"]) for r in states).values()) == 1, "a state was written twice"
        for record in states:
            if record["key"] not in newest or record["rows"] > newest[record["key"]]["rows"]:
                newest[record["key"]] = record
        assert {k: (r["rows"], r["total"]) for k, r in newest.items()} == {k: (rows[k], total[k]) for k in rows}
