"""The cycle as a DAG: where it stops is a red task, and it goes on for whoever it does not concern."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from spillway.act.cycle import Step
from spillway.act.live import STEPS
from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store.decisions import Run

from tests.support.airflow_process import REPO, call, environment
from tests.support.database import Database
from tests.support.recorded import Recording, store

pytestmark = [pytest.mark.dags, pytest.mark.integration]


def test_short_cycles_are_one_task_that_stays(tmp_path: Any) -> None:
    env = environment(tmp_path, f"sqlite:///{tmp_path}/none.db", SPILLWAY_POLICY_QOD_CYCLE_S="5")
    found = call(env, "parse", str(REPO / "dags"))
    qod = found["dags"]["spillway_qod"]
    assert found["errors"] == {}
    assert (qod["timetable"], qod["tasks"], qod["max_active_runs"]) == ("ContinuousTimetable", ["cycles"], 1)
    assert datetime.fromisoformat(qod["start_date"]) < datetime.now(UTC), "without a past start it would run once and never again"


@pytest.mark.parametrize("name", ["publish", "verify"])
def test_a_replay_does_not_even_look_at_what_is_in_force(name: str) -> None:
    now = datetime.now(UTC)
    window = Interval(start=now - timedelta(seconds=15), end=now)
    nobody: Any = None
    assert STEPS[name](nobody, window, Run(origin="replay", replay="x", policy=Policy())) == Step()
    with pytest.raises(AttributeError):
        STEPS[name](nobody, window, Run(policy=Policy()))


def test_a_cycle_stops_for_the_pipeline_a_gate_refuses_and_publishes_the_other(
    airflow_on: Callable[..., dict[str, str]], database: Database
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=4)
    for name in ("good", "bad"):
        store(database, Recording(start=began, seconds=600.0, rush=(60.0, 600.0), name=name))
    database.sql("owner", "update spillway.topic_metric set end_offset = 100000000 - end_offset where topic = 'bad.in'")
    [run] = call(airflow_on(**database.environ()), "test", str(REPO / "dags"), "spillway_qod")
    assert run["tasks"] == {"observe": "failed", "decide": "success", "publish": "success", "verify": "failed"}
    assert run["state"] == "failed", "where a cycle stopped for somebody, its run is red"
    status = dict(database.sql("read", "select pipeline, status from spillway.decision"))
    assert status == {"good": "published", "bad": "refused"}
    assert {p for (p,) in database.sql("read", "select distinct pipeline from spillway.edge_setting")} == {"good"}
    rules = {r for (r,) in database.sql("read", "select rule from spillway.gate_result")}
    assert rules == {"arrival_rate_not_to_be_negative", "input_rate_not_to_be_negative"}
