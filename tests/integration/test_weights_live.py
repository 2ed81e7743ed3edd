"""Weights through an exactly-once and an at-least-once edge to the bars of a windowed sum; a running shedder by utility."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from spillway.embedded import Stack

from tests.support.line import Line, driver_log, until

YAML = """
pipeline: weighed
trigger: 500ms
batch_target: 3s
operators:
  first:
    function: tests.support.operators:hand_on
    schema: &event n bigint not null, x double not null, at timestamp not null
    buckets: 2
  second: {function: "tests.support.operators:hand_on", schema: *event, buckets: 2}
  total:
    function: tests.support.operators:weighed
    kind: aggregate
    weight: true
    key: window
    schema: *event
    output_mode: update
    buckets: 2
    query: {priority: 2, min_accuracy: 0.1}
  best:
    function: tests.support.operators:hand_on
    schema: *event
    buckets: 2
    query: {priority: 1, min_accuracy: 0.1}
edges:
  - {topic: weighed.in, to: first, partitions: 2}
  - {from: first, to: second, partitions: 2, delivery: exactly_once}
  - {from: second, to: total, partitions: 2, delivery: at_least_once}
  - {topic: weighed.worth, to: best, partitions: 2, shed: by_utility, utility: "x * x"}
applications:
  all: {operators: [first, second, total, best], node: n1, executors: 1, slots: 1}
"""
ROWS, MINUTES = 40_000, 8


@pytest.fixture(scope="module")
def line(stack: Stack) -> Iterator[Line]:
    with Line(stack, YAML) as line:
        for edge, keep in (("weighed.in:first", 0.8), ("first:second", 0.5), ("second:total", 0.625)):
            line.keep(edge, keep)
        until(line.running, 120, "the application runs\n" + driver_log(stack))
        yield line


def event(n: int, x: float, minute: int) -> tuple[bytes, bytes]:
    at = f"2026-01-01T00:{minute:02}:{n % 60:02}.000Z"
    return str(n).encode(), json.dumps({"n": n, "x": x, "at": at}).encode()


def kept(line: Line, edge: str, since: int = -1) -> tuple[int, int]:
    """(rows read, rows kept) on the edge in batches after `since`."""
    return line.sql(
        "select coalesce(sum(rows_read), 0)::bigint, coalesce(sum(rows_kept), 0)::bigint from spillway.edge_metric "
        "where pipeline = 'weighed' and edge = %s and batch_id > %s",
        edge,
        since,
    )[0]


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_windowed_sum_is_right_within_its_bars_below_three_shedders(line: Line) -> None:
    rng = random.Random(3)
    values = [rng.lognormvariate(0.0, 1.0) for _ in range(ROWS)]
    line.produce("weighed.in", [event(n, x, n % MINUTES) for n, x in enumerate(values)])
    for edge in ("weighed.in:first", "first:second", "second:total"):
        until(lambda edge=edge: line.caught_up(edge), 120, f"all of {edge} is read")
    until(lambda: sum(r["rows"] for r in newest(line).values()) == kept(line, "second:total")[1], 60, "the totals are out")

    read, survived = kept(line, "weighed.in:first")[0], kept(line, "second:total")[1]
    assert read == ROWS and abs(survived / ROWS - 0.25) <= 0.01, "the keeps multiply"
    found = newest(line)
    assert len(found) == MINUTES
    assert {(r["least"], r["most"]) for r in found.values()} == {(4.0, 4.0)}, "one over 0.8 times 0.5 times 0.625"
    first = min(found)
    truth = {first + 60 * m: sum(values[n] for n in range(m, ROWS, MINUTES)) for m in range(MINUTES)}
    held = sum(abs(found[w]["total"] - truth[w]) <= found[w]["total_error"] for w in truth)
    assert held >= MINUTES - 2, found
    assert all(0.02 < r["total_error"] / r["total"] < 0.2 for r in found.values()), found
    assert all(abs(r["events"] - ROWS / MINUTES) <= 2 * r["events_error"] for r in found.values()), found


def newest(line: Line) -> dict[int, dict[str, float]]:
    """The newest row of every window; a window lies in one partition, in order."""
    return {int(r["window"]): r for r in line.records("weighed.total.out")}


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_running_shedder_learns_which_events_are_worth_least(line: Line) -> None:
    """At keep 0.5 half of the events pass: once the driver has seen a few batches, the better half; -3 is worth as much as 3."""
    edge = "weighed.worth:best"
    rng = random.Random(4)
    line.keep(edge, 0.5)

    def send(first: int, last: int) -> dict[int, float]:
        worth = {n: rng.choice((-1, 1)) * rng.expovariate(1.0) ** 3 for n in range(first, last)}
        line.produce("weighed.worth", [event(n, x, 0) for n, x in worth.items()])
        until(lambda: line.caught_up(edge), 90, "all is read")
        return worth

    for round_ in range(4):
        send(round_ * 4000, (round_ + 1) * 4000)
    since = line.sql("select max(batch_id) from spillway.edge_metric where pipeline = 'weighed' and edge = %s", edge)[0][0]
    worth = send(16_000, 36_000)
    until(lambda: kept(line, edge, since)[0] == 20_000, 60, "the batches are reported")
    read, passed = kept(line, edge, since)
    assert abs(passed / read - 0.5) <= 0.03, (read, passed)
    through = {r["n"] for r in line.records("weighed.best.out") if r["n"] >= 16_000}
    assert len(through) == passed
    median = sorted(abs(x) for x in worth.values())[10_000]
    wrong = sum((n in through) != (abs(x) > median) for n, x in worth.items())
    assert wrong <= 0.04 * 20_000, wrong
