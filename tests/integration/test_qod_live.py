"""Overload on a real pipeline: what was seen and decided is stored, published, in force in a batch, and can be decided again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
from spillway.act.cycle import decide_all, observe
from spillway.act.publish import publish
from spillway.embedded import Stack
from spillway.policy import Policy
from spillway.store import pipelines
from spillway.store.decisions import Run

from tests.support.line import Line, driver_log, until
from tests.support.live import Feed, next_window

pytestmark = [pytest.mark.integration, pytest.mark.alone]

NAME, EDGE, FLOOR = "qodlive", "qodlive.in:heavy", 0.1
YAML = f"""
pipeline: {NAME}
trigger: 1s
batch_target: 2s
operators:
  heavy:
    function: spark_jobs.operators.taxi:heavy
    schema: >-
      service string not null, pickup_at timestamp not null, pickup_zone int not null, dropoff_zone int not null
    key: pickup_zone
    buckets: 2
    args: {{work: 200000}}
    query: {{priority: 1, min_accuracy: {FLOOR}}}
edges:
  - {{topic: qodlive.in, to: heavy, partitions: 2}}
applications:
  heavy: {{operators: [heavy], node: n2, executors: 1}}
"""
# One core manages about 60 of these rows a second.
PER_S = 160
POLICY = Policy(qod_cycle_s=10.0, qod_warm_up_s=1.0)


def trip(number: int) -> tuple[bytes, bytes]:
    row = {
        "service": "yellow",
        "pickup_at": "2026-01-01T10:00:00Z",
        "pickup_zone": number % 265,
        "dropoff_zone": number % 263,
    }
    return b"%d" % row["pickup_zone"], json.dumps(row).encode()


def cycle(line: Line, run: Run) -> dict[str, Any] | None:
    """Waits for the end of a window, then does what spillway_qod does; the decision on that window."""
    window = next_window(run.policy.qod_cycle_s, run.policy.qod_settle_s)
    for step in (observe, decide_all, publish):
        with line.db() as connection:
            step(connection, window, run)
    columns = "id, status, reason, policy, observation, output"
    of = "where kind = 'qod' and pipeline = %s and interval_end = %s"
    found = line.sql(f"select {columns} from spillway.decision {of}", NAME, window.end)
    return dict(zip(columns.split(", "), found[0], strict=True)) if found else None


def decided_again(body: dict[str, Any]) -> dict[str, Any]:
    """What `spillway decide qod` makes of a stored input, in a process of its own."""
    changed = {k: v for k, v in asdict(POLICY).items() if v != asdict(Policy())[k]}
    environment = {**os.environ, **{f"SPILLWAY_POLICY_{k.upper()}": str(v) for k, v in changed.items()}}
    done = subprocess.run(
        [sys.executable, "-m", "spillway.cli", "decide", "qod", "-"],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.timeout(240)
def test_an_overload_is_decided_stored_published_in_force_and_replayable(stack: Stack, agent: None) -> None:
    run = Run(policy=POLICY)
    line = Line(stack, YAML)
    with line.db("JOB") as connection, connection.cursor() as cursor:
        # As if learned before: a cold query would take a minute of rows into its first batches, which end in no window.
        cursor.execute("update spillway.operator_state set max_rows = 50 where pipeline = %s", (NAME,))
        assert cursor.rowcount == 1
    with line:
        with line.db() as connection:
            pipelines.set_mode(connection, NAME, "apply", "test")
        until(line.running, 90, "the application starts\n" + driver_log(stack))
        feed = Feed(line, "qodlive.in", trip, PER_S // 2)
        feed.start()
        try:
            behind = "select max(lag_rows) from spillway.edge_metric where pipeline = %s"
            until(lambda: (line.sql(behind, NAME)[0][0] or 0) > PER_S, 60, "it falls behind")
            seen = [cycle(line, run)]
            while (seen[-1] is None or seen[-1]["status"] != "published" or _keep(seen[-1]) >= 1.0) and len(seen) < 5:
                seen.append(cycle(line, run))
            decision = seen[-1]
            assert decision is not None and decision["status"] == "published", seen
            keep = _keep(decision)
            assert FLOOR <= keep < 1.0, decision["output"]

            (body,) = line.sql("select body from spillway.observation where id = %s", decision["observation"])[0]
            (heavy,) = body["operators"]
            assert heavy["name"] == f"{NAME}/heavy" and heavy["instances"][0]["cpu"] > 0
            assert body["edges"][0]["lag"] > 0
            assert json.loads(
                line.sql("select body::text from spillway.policy_version where digest = %s", run.digest)[0][0]
            ) == asdict(POLICY)

            in_force = (
                "select keep, rows_read, rows_kept from spillway.edge_metric"
                " where pipeline = %s and edge = %s and decision_id = %s and keep_source = 'setting' order by batch_id limit 1"
            )
            (first,) = until(lambda: line.sql(in_force, NAME, EDGE, decision["id"]), 30, "a batch with the new keep")
            assert first[0] == pytest.approx(keep)
            assert first[2] < first[1], "rows were shed"

            again = decided_again(body)
            assert [e["keep"] for e in again["edges"]] == [keep]
            assert again["edges"][0]["reason"] == decision["output"]["edges"][0]["reason"]
            assert again["queries"][f"{NAME}/heavy"]["desired"] == decision["output"]["queries"]["heavy"]["desired"]
        finally:
            feed.finish()


def _keep(decision: dict[str, Any]) -> float:
    keep: float = decision["output"]["edges"][0]["keep"] if decision["output"] else 1.0
    return keep
