"""Lease, fencing, heartbeat and settings of a driver, on a real Postgres, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from spillway.embedded import Stack
from spillway.model.settings import Effective, Setting
from spillway.policy import Policy
from spillway.store import pipelines, settings
from spillway.topology import check_text

from spark_jobs.runtime.control import Control, Fenced, Identity, acquire
from spark_jobs.runtime.database import connect
from spark_jobs.runtime.driver import assignment
from tests.support.line import until

pytestmark = pytest.mark.integration
POLICY = Policy(heartbeat_s=0.5, fence_s=3.0, lease_s=30.0, setting_poll_s=0.2)


@pytest.fixture
def pipeline(stack: Stack, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("SPILLWAY_DSN_JOB", stack.env["SPILLWAY_DSN_JOB"])
    name = unique("lease")
    yaml = f"""
pipeline: {name}
operators:
  op: {{function: "m:f", buckets: 2}}
edges:
  - {{topic: {name}.in, to: op, when_silent: open}}
"""
    topology, problems = check_text(yaml)
    assert topology is not None, problems
    connection = psycopg2.connect(stack.env["SPILLWAY_DSN_CONTROL"])
    pipelines.apply(connection, topology, yaml, "test")
    pipelines.set_desired(connection, name, "running", "test")
    yield name
    # Whoever converges later in this session must not try to launch it.
    pipelines.set_desired(connection, name, "stopped", "test")
    connection.close()


@pytest.fixture
def control_db(stack: Stack) -> Iterator[Any]:
    connection = psycopg2.connect(stack.env["SPILLWAY_DSN_CONTROL"])
    connection.autocommit = True
    yield connection
    connection.close()


def launch(db: Any, pipeline: str, generation: int) -> None:
    with db.cursor() as cursor:
        cursor.execute("update spillway.application set generation = %s where pipeline = %s", (generation, pipeline))


def work(pipeline: str, generation: int) -> Any:
    connection = connect("test")
    try:
        return assignment(connection, pipeline, "op", generation)
    finally:
        connection.close()


def running(pipeline: str, generation: int, seen: dict[str, Effective]) -> Control:
    found = work(pipeline, generation)
    connection = connect("test")
    acquire(connection, found.identity, POLICY)
    connection.close()
    control = Control(found.identity, found.pipeline.edges, POLICY, seen.__setitem__)
    control.status.state = "running"
    control.start()
    return control


def test_a_newer_generation_waits_for_the_older_which_stops(pipeline: str, control_db: Any) -> None:
    launch(control_db, pipeline, 1)
    older = running(pipeline, 1, {})
    launch(control_db, pipeline, 2)
    until(lambda: older.stop_reason, 10, "the older one sees the newer")
    assert older.stop_reason == "fenced: generation 2 exists, this is 1"
    connection = connect("test")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            older.close("fenced", older.stop_reason or "")
        time.sleep(seconds)

    acquire(connection, work(pipeline, 2).identity, POLICY, sleep=sleep)
    assert 3 <= len(waited) <= 6, "it waited while the older one was at work, and no longer"
    with pytest.raises(Fenced):
        acquire(connection, Identity(pipeline=pipeline, application="op", generation=1, version=1), POLICY)
    with pytest.raises(Fenced):
        work(pipeline, 1)
    states = run_sql(control_db, "select generation, state from spillway.heartbeat where pipeline = %s order by 1", pipeline)
    assert states == [(1, "fenced")]
    connection.close()


def run_sql(db: Any, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with db.cursor() as cursor:
        cursor.execute(text, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_a_driver_that_died_silently_is_succeeded_after_the_fence(pipeline: str, control_db: Any) -> None:
    launch(control_db, pipeline, 1)
    connection = connect("test")
    acquire(connection, work(pipeline, 1).identity, POLICY)  # and never renewed
    launch(control_db, pipeline, 2)
    began = time.monotonic()
    acquire(connection, work(pipeline, 2).identity, POLICY)
    assert 2.0 <= time.monotonic() - began <= 6.0
    connection.close()


def test_two_drivers_of_one_generation_the_second_loses(pipeline: str, control_db: Any) -> None:
    launch(control_db, pipeline, 1)
    connection = connect("test")
    acquire(connection, work(pipeline, 1).identity, POLICY)
    with pytest.raises(Fenced):
        acquire(connection, work(pipeline, 1).identity, POLICY)
    connection.close()


def test_desired_state_settings_and_time_to_live_reach_the_driver(pipeline: str, control_db: Any) -> None:
    launch(control_db, pipeline, 1)
    seen: dict[str, Effective] = {}
    control = running(pipeline, 1, seen)
    edge = f"{pipeline}.in:op"
    control_db.autocommit = False
    made = settings.set_keep(control_db, pipeline, edge, 0.4, ttl_s=3, by="test", reason="")
    issued = time.monotonic()
    until(
        lambda: seen.get(edge) == Effective(keep=0.4, decision_id=made.decision_id, source="setting"), 5, "the keep arrives", 0.02
    )
    assert time.monotonic() - issued < 1.5, "within about a second"
    until(lambda: seen[edge].source == "open", 6, "its time to live ends")
    assert seen[edge].keep == 1.0
    pipelines.set_desired(control_db, pipeline, "stopped", "test")
    until(lambda: control.stop_reason == "asked to stop", 5, "the driver is asked to stop")
    control.close("stopped")
    control_db.commit()
    control_db.autocommit = True
    state = run_sql(
        control_db,
        "select h.state, l.released_at is not null from spillway.heartbeat h join spillway.lease l using (pipeline, application) "
        "where pipeline = %s",
        pipeline,
    )
    assert state == [("stopped", True)]


def test_without_postgres_the_last_setting_stays_until_the_lease_ends(
    pipeline: str, control_db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(control_db, pipeline, 1)
    found, clock = work(pipeline, 1), [0.0]
    seen: dict[str, Effective] = {}
    monkeypatch.setenv("SPILLWAY_DSN_JOB", "postgresql://nobody@127.0.0.1:9/none")
    edge = found.pipeline.edges[0].name
    control = Control(found.identity, found.pipeline.edges, POLICY, seen.__setitem__, clock=lambda: clock[0])
    control._settings = {edge: (Setting(keep=0.4, decision_id=7, remaining_s=None), 0.0)}
    control.start()
    clock[0] = POLICY.lease_s - 1
    time.sleep(1.0)
    assert control.stop_reason is None and seen == {edge: Effective(keep=0.4, decision_id=7, source="setting")}
    clock[0] = POLICY.lease_s + 1
    until(lambda: control.stop_reason, 5, "the lease is over")
    assert control.stop_reason == "the lease could not be renewed for 30 s"
    control.close("stopped")
