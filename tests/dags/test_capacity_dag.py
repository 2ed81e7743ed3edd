"""The evaluation of capacity as a DAG: where it stops is a red task, and it goes on for whoever it does not concern."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.airflow_process import REPO, call, environment
from tests.support.database import Database
from tests.support.evaluations import WIDER
from tests.support.recorded import Recording, store

pytestmark = [pytest.mark.dags, pytest.mark.integration]


def test_the_schedule_is_that_of_the_policy(tmp_path: Any) -> None:
    env = environment(tmp_path, f"sqlite:///{tmp_path}/none.db", SPILLWAY_POLICY_CAPACITY_CYCLE_S="30")
    found = call(env, "parse", str(REPO / "dags"))
    assert found["errors"] == {}
    assert found["dags"]["spillway_capacity"]["every_s"] == 30


def test_an_evaluation_stops_for_the_pipeline_a_gate_refuses_and_goes_on_for_the_other(
    airflow_on: Callable[..., dict[str, str]], database: Database
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=6)
    for name in ("good", "bad"):
        store(database, Recording(start=began, seconds=900.0, rush=(60.0, 900.0), name=name))
    database.sql("owner", WIDER)
    database.sql("owner", "update spillway.topic_metric set end_offset = -end_offset where topic = 'bad.in'")
    [run] = call(airflow_on(**database.environ()), "test", str(REPO / "dags"), "spillway_capacity")
    assert run["tasks"] == {"observe": "failed", "detect": "success", "propose": "failed"}
    assert run["state"] == "failed", "where an evaluation stopped for somebody, its run is red"
    status = database.sql("read", "select kind, pipeline, status from spillway.decision order by 1, 2")
    assert status == [("capacity", "bad", "refused"), ("capacity", "good", "decided"), ("rescale", "good", "decided")]
    rules = {r for (r,) in database.sql("read", "select rule from spillway.gate_result")}
    assert rules == {"arrival_rate_not_to_be_negative"}
    [(named,)] = database.sql(
        "read", "select output -> 'bottlenecks' from spillway.decision where kind = 'capacity' and status = 'decided'"
    )
    assert named == ["heavy"]
    assert database.sql("read", "select count(*) from spillway.rescale_plan") == [(0,)], "it takes three in a row"
