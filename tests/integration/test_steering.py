"""A running stateful query is steered through Postgres: keep, fallback, garbage, and Postgres itself coming and going."""

from __future__ import annotations

import collections
import json
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from spillway.embedded import Stack

from tests.support.line import Line, driver_log, until
from tests.support.live import Feed, numbered

YAML = """
pipeline: steer
trigger: 1s
batch_target: 3s
lineage: true
operators:
  pass:
    function: tests.support.operators:plain_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
  tally:
    function: tests.support.operators:tally
    kind: aggregate
    output_mode: update
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    query: {priority: 1, min_accuracy: 0.2}
edges:
  - {topic: steer.in, to: pass, partitions: 2}
  - {from: pass, to: tally, partitions: 2, when_silent: open}
applications:
  all: {operators: [pass, tally], node: n1, executors: 1, slots: 1}
"""
EDGE = "pass:tally"


@pytest.fixture(scope="module")
def line(stack: Stack) -> Iterator[Line]:
    with Line(stack, YAML) as line:
        until(line.running, 120, "the application runs\n" + driver_log(stack))
        yield line


@pytest.fixture
def feed(line: Line) -> Iterator[Feed]:
    feed = Feed(line, "steer.in", numbered(97), 400, every_s=0.2)
    feed.start()
    yield feed
    feed.finish()


def batches(line: Line, edge: str = EDGE) -> list[tuple[int, int, int, float, str, int | None, bool]]:
    """(batch, read, kept, keep, source, decision, began after the newest setting) in order."""
    return line.sql(
        "select e.batch_id, e.rows_read, e.rows_kept, e.keep, e.keep_source, e.decision_id, "
        "b.started_at > (select max(issued_at) from spillway.setting_history s where s.pipeline = 'steer' and s.edge = e.edge) "
        "from spillway.edge_metric e join spillway.batch_metric b using (pipeline, operator, checkpoint, batch_id) "
        "where e.pipeline = 'steer' and e.edge = %s order by e.batch_id",
        edge,
    )


def in_force(line: Line, decision: int, keep: float) -> None:
    """Of the batches that began after the setting at most one still ran with the older keep."""
    until(lambda: sum(b[6] for b in batches(line)) >= 4, 60, "four batches after the setting")
    after = [b for b in batches(line) if b[6]]
    assert [b[5] for b in after[1:]] == [decision] * (len(after) - 1), after
    assert all(b[3] == keep and b[4] == "setting" for b in after[1:]), after


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_keep_changes_on_a_running_stateful_query_while_postgres_comes_and_goes(line: Line, feed: Feed, stack: Stack) -> None:
    until(lambda: len(batches(line)) > 3, 90, "batches flow")

    decision = line.keep(EDGE, 0.5)
    in_force(line, decision, 0.5)

    stack.stop("postgres")
    before = line.end_offsets("steer.tally.out")
    until(lambda: line.end_offsets("steer.tally.out") > before, 60, "batches go on without Postgres")
    time.sleep(6)
    stack.start("postgres")
    until(line.running, 60, "the heartbeat comes back")
    assert len(line.drivers()) == 2, "the job lived on: one JVM, one Python process"

    kept = lambda: [b for b in batches(line) if b[5] == decision]  # noqa: E731
    until(
        lambda: sum(b[1] for b in kept()) > 30_000,
        300,
        "30 000 rows with keep 0.5, of which a hundredth is three and a half standard deviations",
    )
    share = sum(b[2] for b in kept()) / sum(b[1] for b in kept())
    assert abs(share - 0.5) <= 0.01, share
    ids = [b[0] for b in batches(line)]
    assert ids == list(range(ids[0], ids[0] + len(ids))), "metrics of the time without Postgres were caught up"
    assert line.sql("select max(metrics_dropped) from spillway.batch_metric where pipeline = 'steer'")[0][0] == 0

    decision = line.keep(EDGE, 0.25)
    in_force(line, decision, 0.25)


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_keep_that_outlives_its_time_to_live_falls_back_as_declared(line: Line, feed: Feed) -> None:
    decision = line.keep(EDGE, 0.3, ttl_s=4)
    until(lambda: any(b[4] == "setting" and b[5] == decision for b in batches(line)), 60, "the setting is in force")
    opened = until(lambda: [b for b in batches(line) if b[4] == "open"], 60, "the fallback is reported")
    assert opened[-1][3] == 1.0 and opened[-1][1] == opened[-1][2]
    assert (
        line.sql("select count(*) from spillway.event where pipeline = 'steer' and kind = 'fallback' and subject = %s", EDGE)[0][
            0
        ]
        == 1
    )


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_frozen_postgres_does_not_slow_the_stream(line: Line, feed: Feed, stack: Stack) -> None:
    until(lambda: line.caught_up("steer.in:pass") or len(batches(line)) > 10, 60, "batches flow")
    server = psutil.Process(stack.pids()["postgres"])
    family = [server, *server.children(recursive=True)]
    out = line.end_offsets("steer.tally.out")
    line.kill(family, signal.SIGSTOP)
    try:
        time.sleep(12)
        grown = line.end_offsets("steer.tally.out") - out
    finally:
        line.kill(family, signal.SIGCONT)
    assert grown > 97 * 2, f"only {grown} records in 12 s"
    until(line.running, 60, "the heartbeat comes back")
    ids = [b[0] for b in until(lambda: batches(line), 30, "metrics")]
    assert ids == list(range(ids[0], ids[0] + len(ids)))


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_garbage_is_a_dead_letter_once_and_never_a_crash(line: Line) -> None:
    generation = line.sql("select generation from spillway.application where pipeline = 'steer'")[0][0]
    garbage = [
        b"",
        b"not json",
        b'{"n": 1',
        b'{"n": "x", "key": "k"}',
        b'{"key": "no n"}',
        b'{"n": 3}',
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"7",
    ]
    good = [json.dumps({"n": n, "key": "good"}).encode() for n in range(1000)]
    mixed = [(b"g", v) for v in [*garbage * 3, *good]]
    line.produce("steer.in", mixed)
    until(lambda: line.caught_up("steer.in:pass"), 60, "all is read")
    until(lambda: len(line.consume("steer.pass.dead")) >= 30, 60, "the garbage is in the dead-letter topic")

    # A driver killed as soon as it has committed more garbage leaves none behind and doubles none, although the metrics of that
    # batch may have died with it: how far it read is still known afterwards.
    before = line.committed("pass")
    line.produce("steer.in", [(b"g", v) for v in garbage])
    until(lambda: line.committed("pass") > before, 60, "a batch with more garbage is committed", every_s=0.02)
    line.kill(line.drivers())
    until(
        lambda: line.sql("select generation from spillway.application where pipeline = 'steer'")[0][0] > generation,
        60,
        "a restart",
    )
    until(line.running, 90, "the application runs again")
    until(lambda: line.caught_up("steer.in:pass") and line.caught_up(EDGE), 90, "all is read again")
    until(lambda: len(line.consume("steer.pass.dead")) >= 40, 60, "the rest of the garbage is there")
    time.sleep(3)
    dead = line.consume("steer.pass.dead")
    assert collections.Counter(value or b"" for *_, value in dead) == collections.Counter(dict.fromkeys(garbage, 4))
    assert len({key for _, _, key, _ in dead}) == 40, "each dead letter says where it was"
    kept = [r for r in line.records("steer.pass.tally") if r["key"] == "good"]
    assert len(kept) == 1000 and len({r["lineage"] for r in kept}) == 1000
    counted = line.sql("select sum(rows_bad) from spillway.edge_metric where pipeline = 'steer' and edge = 'steer.in:pass'")[0][0]
    lost = line.sql("select text from spillway.event where pipeline = 'steer' and subject = 'pass' and kind = 'metrics_lost'")
    assert counted == 40 or (30 <= counted < 40 and lost), (counted, lost)
