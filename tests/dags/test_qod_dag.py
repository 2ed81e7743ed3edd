"""The cycle as a DAG: where it stops is a red task, and it goes on for whoever it does not concern."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from spillway.act.cycle import Step
from spillway.act.live import STEPS
from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store.decisions import Run

from tests.support.airflow_process import REPO, call, environment
from tests.support.database import Database, Server, database, migrated, server
from tests.support.recorded import Recording, store

__all__ = ["database", "migrated", "server"]
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


@pytest.fixture
def airflow(server: Server, database: Database, tmp_path: Any) -> Iterator[dict[str, str]]:
    """Airflow on a Postgres without other services: the cycle needs no more."""
    name = f"airflow_{database.name}"
    server.admin(f"create database {name} owner airflow")
    at = f"{server.address}/{name}"
    env = environment(
        tmp_path,
        f"postgresql+psycopg2://airflow:{server.secrets['airflow']}@{at}",
        **database.environ(),
        AIRFLOW_CONN_SPILLWAY_CONTROL=database.dsn("control").replace("postgresql://", "postgres://"),
    )
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True, timeout=120)
    yield env
    server.admin(f"drop database {name} with (force)")


def test_a_cycle_stops_for_the_pipeline_a_gate_refuses_and_publishes_the_other(
    airflow: dict[str, str], database: Database
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=4)
    for name in ("good", "bad"):
        store(database, Recording(start=began, seconds=600.0, rush=(60.0, 600.0), name=name))
    database.sql("owner", "update spillway.topic_metric set end_offset = 100000000 - end_offset where topic = 'bad.in'")
    [run] = call(airflow, "test", str(REPO / "dags"), "spillway_qod")
    assert run["tasks"] == {"observe": "failed", "decide": "success", "publish": "success", "verify": "failed"}
    assert run["state"] == "failed", "where a cycle stopped for somebody, its run is red"
    status = dict(database.sql("read", "select pipeline, status from spillway.decision"))
    assert status == {"good": "published", "bad": "refused"}
    assert {p for (p,) in database.sql("read", "select distinct pipeline from spillway.edge_setting")} == {"good"}
    rules = {r for (r,) in database.sql("read", "select rule from spillway.gate_result")}
    assert rules == {"arrival_rate_not_to_be_negative", "input_rate_not_to_be_negative"}
