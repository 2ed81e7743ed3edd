"""The evaluation of capacity as a DAG: where it stops is a red task, and it goes on for whoever it does not concern."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.airflow_process import REPO, call, environment
from tests.support.database import Database, Server, database, migrated, server
from tests.support.evaluations import WIDER
from tests.support.recorded import Recording, store

__all__ = ["database", "migrated", "server"]
pytestmark = [pytest.mark.dags, pytest.mark.integration]


def test_the_schedule_is_that_of_the_policy(tmp_path: Any) -> None:
    env = environment(tmp_path, f"sqlite:///{tmp_path}/none.db", SPILLWAY_POLICY_CAPACITY_CYCLE_S="30")
    found = call(env, "parse", str(REPO / "dags"))
    assert found["errors"] == {}
    assert found["dags"]["spillway_capacity"]["every_s"] == 30


@pytest.fixture
def airflow(server: Server, database: Database, tmp_path: Any) -> Iterator[dict[str, str]]:
    """Airflow on a Postgres without other services: an evaluation needs no more."""
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


def test_an_evaluation_stops_for_the_pipeline_a_gate_refuses_and_goes_on_for_the_other(
    airflow: dict[str, str], database: Database
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=6)
    for name in ("good", "bad"):
        store(database, Recording(start=began, seconds=900.0, rush=(60.0, 900.0), name=name))
    database.sql("owner", WIDER)
    database.sql("owner", "update spillway.topic_metric set end_offset = -end_offset where topic = 'bad.in'")
    [run] = call(airflow, "test", str(REPO / "dags"), "spillway_capacity")
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
