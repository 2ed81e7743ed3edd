"""The bodies of Airflow tasks: connections and settings of this installation, handed to functions that do not know Airflow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.policy import Policy
from spillway.store.connection import connect
from spillway.store.environment import environment

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

CONTROL = "spillway_control"
METADATA = "airflow_metadata"
REPLAY = "backfill"


@contextmanager
def control(actor: str) -> Iterator[Connection]:
    """The store, by Airflow's connection `spillway_control`."""
    conn = _connect(actor)
    try:
        yield conn
    finally:
        conn.close()


def _connect(actor: str) -> Connection:
    from airflow.sdk import BaseHook
    from psycopg2.extensions import make_dsn

    given = BaseHook.get_connection(CONTROL)
    dsn = make_dsn(host=given.host, port=given.port or 5432, user=given.login, password=given.password, dbname=given.schema)
    return connect("control", dsn=dsn, application_name=f"spillway-{actor}")


def converge_streams(run_type: str) -> list[str]:
    """What was done and what is waited for, in words. A replay of the past must not touch what runs now."""
    if run_type == REPLAY:
        return []
    from spillway.act.launch import launcher_from
    from spillway.act.streams import converge
    from spillway.decide.streams import Kind

    with control("streams") as conn:
        actions = converge(conn, launcher_from({**os.environ, **environment()}), Policy.load())
    return [action.words for action in actions if action.kind is not Kind.NOTHING]


def qod_step(name: str, dag_run: Any, ti: Any = None) -> list[str]:
    """One step of the cycle that a run of spillway_qod stands for. A backfill replays it and touches nothing in force."""
    from spillway.act.live import STEPS, all_went_well, in_order, run_of, step, window_of

    policy = Policy.load()
    run = run_of(dag_run, policy)
    interval = window_of(dag_run, policy.qod_cycle_s)
    with control("qod") as conn:
        if name == "observe" and not run.live:
            in_order(conn, dag_run, ti.get_previous_dagrun(), policy)
        said = step(conn, name, interval, run)
    if name == "verify":
        before = [task for task in STEPS if task != name]
        states = ti.get_task_states(dag_id=dag_run.dag_id, task_ids=before, run_ids=[dag_run.run_id])
        all_went_well(states.get(dag_run.run_id, {}))
    return said


def run_cycles(minutes: float) -> int:
    """Cycles that are too short for a run each, until it is time for another task."""
    from spillway.act.live import resident

    return resident(lambda: _connect("qod"), Policy.load(), datetime.now(UTC) + timedelta(minutes=minutes))


def keep_house(run_type: str) -> str:
    if run_type == REPLAY:
        return ""
    from spillway.act.housekeeping import housekeep

    with control("housekeeping") as conn:
        return housekeep(conn, Policy.load())


def keep_airflow_house(run_type: str) -> str:
    if run_type == REPLAY:
        return ""
    from airflow.configuration import conf

    from spillway.act.housekeeping import clean_airflow

    with control("housekeeping") as conn:
        logs = Path(conf.get("logging", "base_log_folder"))
        return clean_airflow(conn, Policy.load(), metadata=_metadata(), logs=logs)


def _metadata() -> str | None:
    """Airflow keeps its database away from tasks; whoever runs it may hand this one task the address, as a connection."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        given = BaseHook.get_connection(METADATA)
    except AirflowNotFoundException:
        return None
    return given.get_uri().replace("postgres://", "postgresql+psycopg2://", 1)
