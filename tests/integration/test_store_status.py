"""Events and status, as a person sees them, on a real Postgres."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.store import events, pipelines, settings
from spillway.store.status import status

from tests.support.database import Database
from tests.support.taxi import apply, launch

pytestmark = pytest.mark.integration


def test_events_tell_the_story(control: Any) -> None:
    apply(control)
    pipelines.set_desired(control, "taxi", "running", "tester")
    settings.set_keep(control, "taxi", "union:light", 0.5, ttl_s=30, by="tester", reason="why not")
    told = events.recent(control)
    assert [(e.kind, e.subject, e.text, e.actor) for e in told] == [
        ("applied", None, "version 1 of pipeline taxi is in force (10 changes)", "tester"),
        ("desired", None, "pipeline taxi should be running", "tester"),
        ("keep", "union:light", "keep of union:light is 0.5 for 30 s: why not", "tester"),
    ]
    assert events.recent(control, after=told[1].id) == told[2:]
    assert events.recent(control, limit=1) == told[2:]
    assert events.recent(control, pipeline="other") == []


def batch(
    database: Database,
    operator: str,
    edge: str,
    batch_id: int,
    keep: float,
    read: int,
    kept: int,
    ago_s: float,
    *,
    generation: int = 1,
    checkpoint: int = 0,
) -> None:
    at = f"now() - interval '{ago_s} s'"
    database.sql(
        "job",
        "insert into spillway.batch_metric (pipeline, application, operator, checkpoint, batch_id, generation, "
        f"started_at, ended_at, input_rows, batch_ms) values ('taxi', 'front', %s, %s, %s, %s, {at}, {at}, %s, 700)",
        operator, checkpoint, batch_id, generation, read,
    )  # fmt: skip
    database.sql(
        "job",
        "insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read, rows_kept, keep, "
        f"keep_source, decision_id, lag_rows) values ('taxi', %s, %s, %s, %s, {at}, %s, %s, %s, 'setting', 3, 42)",
        operator, edge, checkpoint, batch_id, read, kept, keep,
    )  # fmt: skip


def test_status_without_anything(control: Any) -> None:
    assert status(control) == []


def test_status_before_the_first_start(control: Any) -> None:
    apply(control)
    (taxi,) = status(control)
    front = taxi.applications[0]
    assert (taxi.desired, front.state, front.heartbeat_age_s, taxi.settled) == ("stopped", "never started", None, True)
    assert {o.accuracy for o in front.operators} == {None}, "nothing measured is nothing known"
    assert {e.keep for e in front.edges} == {None}


def test_status_of_a_running_pipeline(database: Database, control: Any) -> None:
    apply(control)
    pipelines.set_desired(control, "taxi", "running", "tester")
    launch(database, "front")
    settings.set_keep(control, "taxi", "yellow:union", 0.5, by="tester")
    batch(database, "union", "yellow:union", 6, 1.0, 9000, 9000, 200)
    batch(database, "union", "yellow:union", 7, 0.5, 1000, 500, 10)
    batch(database, "union", "yellow:union", 8, 0.5, 2000, 1000, 5)
    batch(database, "light", "union:light", 3, 1.0, 600, 600, 5)
    batch(database, "light", "weather:light", 3, 1.0, 10, 10, 5)
    control.rollback()
    (taxi,) = status(control, "taxi")
    front, heavy = taxi.applications
    assert (front.state, front.generation, heavy.state, taxi.settled) == ("running", 1, "never started", False)
    assert front.heartbeat_age_s is not None
    assert front.heartbeat_age_s < 5
    union = next(o for o in front.operators if o.operator == "union")
    assert (union.batch_id, union.batch_ms, union.rows_per_s, union.accuracy) == (8, 700, 100.0, 0.5)
    light = next(o for o in front.operators if o.operator == "light")
    assert (light.accuracy, light.floor, light.priority) == (0.5, 0.2, 1)
    yellow = next(e for e in front.edges if e.edge == "yellow:union")
    assert (yellow.keep_set, yellow.keep, yellow.keep_source, yellow.kept_share, yellow.lag_rows) == (
        0.5,
        0.5,
        "setting",
        0.5,
        42,
    )
    assert status(control, "nothing") == []


def test_status_of_silent_relaunched_and_dead_drivers(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front")
    database.sql("job", "update spillway.heartbeat set at = now() - interval '20 s'")
    launch(database, "heavy", "failed")
    database.sql("control", "update spillway.application set generation = 2 where application = 'heavy'")
    control.rollback()
    assert [a.state for a in status(control)[0].applications] == ["silent", "launched"]
    launch(database, "heavy", "failed", generation=2)
    control.rollback()
    assert [(a.state, a.settled) for a in status(control)[0].applications] == [("silent", False), ("failed", True)]


def union_of(conn: Any) -> tuple[Any, Any]:
    conn.rollback()
    front = status(conn)[0].applications[0]
    return (
        next(o for o in front.operators if o.operator == "union"),
        next(e for e in front.edges if e.edge == "yellow:union"),
    )


def test_nothing_is_known_of_a_generation_that_has_not_reported_yet(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front")
    batch(database, "union", "yellow:union", 7, 0.5, 1000, 500, 10)
    launch(database, "front", "stopped")
    union, yellow = union_of(control)
    assert (union.batch_id, union.accuracy, yellow.lag_rows) == (7, 0.5, 42), "of a stopped driver the last word stays"
    launch(database, "front", "running", generation=2)
    union, yellow = union_of(control)
    assert (union.batch_id, union.rows_per_s, union.accuracy) == (None, None, None)
    assert (yellow.keep, yellow.lag_rows, yellow.kept_share) == (None, None, None)
    batch(database, "union", "yellow:union", 8, 1.0, 300, 300, 1, generation=2)
    union, yellow = union_of(control)
    assert (union.batch_id, union.rows_per_s, union.accuracy, yellow.keep) == (8, 10.0, 1.0, 1.0)


def test_nothing_is_known_of_an_operator_that_starts_anew(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front")
    batch(database, "union", "yellow:union", 7, 0.5, 1000, 500, 10)
    launch(database, "front", "stopped")
    assert pipelines.reset(control, "taxi", "union", "tester") == 1
    union, yellow = union_of(control)
    assert (union.batch_id, union.accuracy, yellow.lag_rows) == (None, None, None)
    launch(database, "front", "running", generation=2)
    batch(database, "union", "yellow:union", 0, 1.0, 300, 300, 1, generation=2, checkpoint=1)
    union, yellow = union_of(control)
    assert (union.batch_id, union.rows_per_s, union.accuracy, yellow.kept_share) == (0, 10.0, 1.0, 1.0)
