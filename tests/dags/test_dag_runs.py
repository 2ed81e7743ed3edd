"""Both DAGs for real, against the embedded services: one Airflow process, what it did looked at from several sides."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psycopg2
import pytest

from tests.support.airflow_process import REPO, call

pytestmark = [pytest.mark.dags, pytest.mark.integration]
NOWHERE = "AIRFLOW_CONN_SPILLWAY_CONTROL=postgres://nobody:x@127.0.0.1:1/none"
BLOCKED = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=airflow-db-not-allowed:///"  # as a worker leaves it for its tasks
TODAY = datetime.now(UTC).date()


def ask(dsn, text, *values):
    conn = psycopg2.connect(dsn)
    try:
        with conn, conn.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else []
    finally:
        conn.close()


def partition(day):
    return f"spillway.node_metric_{day:%Y%m%d}"


@pytest.fixture(scope="module")
def ran(stack, airflow, metadata):
    """An old day, an old log and an old entry of Airflow's own are there; then the DAGs run."""
    owner, own = stack.env["SPILLWAY_DSN_OWNER"], metadata.replace("+psycopg2", "")
    old = TODAY - timedelta(days=400)
    ask(owner, "select spillway.ensure_partitions(%s, 1)", old)
    assert ask(owner, "select to_regclass(%s)::text", partition(old)) == [(partition(old),)]
    ask(own, "insert into log (dttm, event, dag_id) values (now() - interval '30 days', 'old', 'x'), (now(), 'young', 'x')")
    logs = Path(airflow["AIRFLOW_HOME"], "logs", "dag_id=x", f"run_id={uuid.uuid4()}")
    logs.mkdir(parents=True)
    (logs / "attempt=1.log").write_text("old")
    for path in (logs / "attempt=1.log", logs):
        os.utime(path, (0, 0))
    steps = ("spillway_streams", BLOCKED, "spillway_housekeeping", NOWHERE, "spillway_streams")
    streams, housekeeping, away = call(airflow, "test", str(REPO / "dags"), *steps)
    return SimpleNamespace(
        streams=streams, housekeeping=housekeeping, away=away, old=old, logs=logs,
        store=lambda text, *values: ask(owner, text, *values), airflow=lambda text: ask(own, text),
    )  # fmt: skip


def test_streams_runs_with_nothing_declared(ran):
    assert ran.streams == {"state": "success", "tasks": {"converge": "success"}}


def test_streams_fails_visibly_when_the_store_is_away(ran):
    assert ran.away == {"state": "failed", "tasks": {"converge": "failed"}}


def test_housekeeping_makes_days_ahead_and_drops_old_ones(ran):
    assert ran.housekeeping == {"state": "success", "tasks": {"metrics": "success", "airflow": "success"}}
    assert ran.store("select to_regclass(%s)::text", partition(ran.old)) == [(None,)]
    ahead = partition(TODAY + timedelta(days=7))
    assert ran.store("select to_regclass(%s)::text", ahead) == [(ahead,)]


def test_housekeeping_tells_what_it_did(ran):
    told = ran.store("select kind, text from spillway.event where actor = 'housekeeping' order by id desc limit 2")
    assert [kind for kind, _ in told] == ["housekeeping"] * 2
    assert any("daily partitions" in text for _, text in told)
    assert any("old task logs and Airflow's runs before" in text for _, text in told)


def test_housekeeping_cleans_airflows_tables_and_logs(ran):
    assert ran.airflow("select event from log where dag_id = 'x'") == [("young",)]
    assert not ran.logs.exists()
