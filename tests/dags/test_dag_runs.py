"""Both DAGs for real, against the embedded services."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime, timedelta

import psycopg2
import pytest

pytestmark = [pytest.mark.dags, pytest.mark.integration]


@pytest.fixture
def store(stack):
    conn = psycopg2.connect(stack.env["SPILLWAY_DSN_OWNER"])
    conn.autocommit = True
    with conn.cursor() as cursor:
        yield cursor
    conn.close()


def test_streams_runs_with_nothing_declared(dag_test):
    assert dag_test("spillway_streams") == {"state": "success", "tasks": {"converge": "success"}}


def test_streams_fails_visibly_when_the_store_is_away(dag_test):
    answer = dag_test("spillway_streams", AIRFLOW_CONN_SPILLWAY_CONTROL="postgres://nobody:x@127.0.0.1:1/none")
    assert answer["state"] == "failed"


def test_housekeeping_makes_and_drops_days_and_cleans_airflow(dag_test, airflow, store, metadata):
    today = datetime.now(UTC).date()
    old = today - timedelta(days=400)
    store.execute("select spillway.ensure_partitions(%s, 1)", (old,))
    day = f"spillway.node_metric_{old:%Y%m%d}"
    store.execute("select to_regclass(%s)", (day,))
    assert store.fetchone()[0] is not None

    with psycopg2.connect(metadata.replace("+psycopg2", "")) as conn, conn.cursor() as cursor:
        cursor.execute(
            "insert into log (dttm, event, dag_id) values (now() - interval '30 days', 'old', 'x'), (now(), 'young', 'x')"
        )
    logs = airflow["AIRFLOW_HOME"] + f"/logs/dag_id=x/run_id={uuid.uuid4()}"
    os.makedirs(logs)
    with open(logs + "/attempt=1.log", "w") as file:
        file.write("old")
    for path in (logs + "/attempt=1.log", logs):
        os.utime(path, (0, 0))

    assert dag_test("spillway_housekeeping") == {"state": "success", "tasks": {"metrics": "success", "airflow": "success"}}

    store.execute("select to_regclass(%s)", (day,))
    assert store.fetchone()[0] is None
    store.execute("select to_regclass(%s)", (f"spillway.node_metric_{today + timedelta(days=7):%Y%m%d}",))
    assert store.fetchone()[0] is not None
    store.execute("select kind, text from spillway.event where actor = 'housekeeping' order by id desc limit 2")
    told = store.fetchall()
    assert [kind for kind, _ in told] == ["housekeeping"] * 2
    assert any("daily partitions" in text for _, text in told)
    assert any("old task logs and Airflow's runs before" in text for _, text in told)
    assert not os.path.exists(logs)
    with psycopg2.connect(metadata.replace("+psycopg2", "")) as conn, conn.cursor() as cursor:
        cursor.execute("select event from log where dag_id = 'x'")
        assert cursor.fetchall() == [("young",)]
