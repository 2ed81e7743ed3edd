"""Overload on a real pipeline: the operator that holds it back is named, with a capacity that is what it really manages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spillway.act.capacity import detect_all, observe
from spillway.act.capacity_propose import propose
from spillway.act.cycle import Step
from spillway.embedded import Stack
from spillway.model.window import Interval
from spillway.observe.capacity import read_capacity
from spillway.policy import Policy
from spillway.store import pipelines
from spillway.store.decisions import Run

from tests.support.line import Line, driver_log, until
from tests.support.live import Feed, next_window

pytestmark = pytest.mark.integration

NAME, PER_S, ROW_S = "caplive", 240, 0.01
YAML = f"""
pipeline: {NAME}
trigger: 1s
batch_target: 3s
operators:
  front:
    function: tests.support.operators:hand_on_key
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
  slow:
    function: tests.support.operators:slow_rows
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    parallelism: {{start: 1, min: 1, max: 4}}
    args: {{row_s: {ROW_S}}}
    query: {{priority: 1, min_accuracy: 0.1}}
    output: {{type: none}}
edges:
  - {{topic: {NAME}.in, to: front, partitions: 2}}
  - {{from: front, to: slow, partitions: 2}}
applications:
  front: {{operators: [front], node: n1, executors: 1}}
  slow: {{operators: [slow], node: n2, executors: 1}}
"""
POLICY = Policy(
    capacity_cycle_s=20.0, capacity_warm_up_s=10.0, qod_warm_up_s=1.0, rescale_persist_evaluations=2, rescale_node_idle=0.0
)
"""That no CPU is idle is no reason here: beside these tests others run, which take what there is."""


def event(number: int) -> tuple[bytes, bytes]:
    return b"%d" % number, json.dumps({"n": number, "key": f"k{number}"}).encode()


def evaluation(line: Line, run: Run) -> tuple[Interval, list[Step]]:
    """Waits for the end of a window, then does what spillway_capacity does."""
    window = next_window(run.policy.capacity_cycle_s, run.policy.qod_settle_s)
    steps = []
    for step in (observe, detect_all, propose):
        with line.db() as connection:
            steps.append(step(connection, window, run))
    return window, steps


DECIDED = "select status, reason, output from spillway.decision where kind = %s and pipeline = %s and interval_end = %s"

ENDED = """select ended_at, input_rows from spillway.batch_metric
where pipeline = %s and operator = 'slow' and ended_at > %s and ended_at <= %s order by ended_at"""


def carried_per_s(line: Line, window: Interval) -> float:
    """What `slow`, which never waits, has done between the first and the last end of a batch in a window."""
    (first, _), *others = line.sql(ENDED, NAME, window.start, window.end)
    rows: int = sum(rows for _, rows in others)
    return rows / (others[-1][0] - first).total_seconds()


@pytest.mark.timeout(300)
def test_the_operator_that_holds_a_pipeline_back_is_named_and_proposed(stack: Stack, agent: None) -> None:
    run = Run(policy=POLICY)
    line = Line(stack, YAML)
    with line.db("JOB") as connection, connection.cursor() as cursor:
        cursor.execute("update spillway.operator_state set max_rows = 240 where pipeline = %s", (NAME,))
    with line:
        with line.db() as connection:
            pipelines.set_mode(connection, NAME, "advise", "test")
        until(line.running, 90, "the applications start\n" + driver_log(stack))
        feed = Feed(line, f"{NAME}.in", event, lambda passed_s, sent: int(PER_S * passed_s) - sent)
        feed.start()
        try:
            behind = "select max(lag_rows) from spillway.edge_metric where pipeline = %s and operator = 'slow'"
            until(lambda: (line.sql(behind, NAME)[0][0] or 0) > 4 * PER_S, 90, "it falls behind")
            named: list[tuple[Interval, Any]] = []
            for _ in range(6):
                window, steps = evaluation(line, run)
                found = line.sql(DECIDED, "capacity", NAME, window.end)
                assert found, steps
                status, reason, output = found[0]
                assert status in ("decided", "held"), reason
                named = [*named, (window, output)] if status == "decided" and output["bottlenecks"] else []
                if len(named) == 2:
                    break
            assert len(named) == 2, (status, reason, output)
        finally:
            feed.finish()
        for _, output in named:
            assert (output["verdict"], output["bottlenecks"], output["source"]) == ("bottleneck", ["slow"], f"{NAME}.in")
            assert output["max_flow"] < 1.05 / ROW_S, "no more than its rows allow"
            assert output["arrival"] == pytest.approx(PER_S, rel=0.2)
        window, output = named[-1]
        carried = carried_per_s(line, window)
        assert output["max_flow"] == pytest.approx(carried, rel=0.3), "what its batches did, one after the other"
        with line.db() as connection:
            part = read_capacity(connection, window, POLICY).parts[NAME]
        slow = part.operator("slow")
        assert slow.busy_share == pytest.approx(1.0, abs=0.03), "it has no time to wait for its trigger"
        assert part.operator("front").busy_share < 0.95
        status, reason, output = line.sql(DECIDED, "rescale", NAME, window.end)[0]
        assert status == "decided"
        [plan] = [p for p in output["plans"] if p["answer"] == "change"]
        assert (plan["operator"], plan["executors"]["from"], plan["executors"]["to"]) == ("slow", 1, 4), (
            "four are declared at most"
        )
        assert line.sql("select count(*) from spillway.rescale_plan where pipeline = %s", NAME) == [(0,)], "it is only advised"
