"""The bodies of Airflow tasks: connections and settings of this installation, handed to functions that do not know Airflow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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


class OfflineFailed(RuntimeError):
    """A job on the state of an operator did not end well; it is recorded with its plan."""


@contextmanager
def control(actor: str) -> Iterator[Connection]:
    """The store, by Airflow's connection `spillway_control`."""
    conn = _connect(actor)
    try:
        yield conn
    finally:
        conn.close()


def _connect(actor: str) -> Connection:
    return connect("control", dsn=_dsn(), application_name=f"spillway-{actor}")


def _dsn() -> str:
    from airflow.sdk import BaseHook
    from psycopg2.extensions import make_dsn

    given = BaseHook.get_connection(CONTROL)
    dsn: str = make_dsn(host=given.host, port=given.port or 5432, user=given.login, password=given.password, dbname=given.schema)
    return dsn


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


def capacity_step(name: str, dag_run: Any, ti: Any = None) -> list[str]:
    """One step of the evaluation that a run of spillway_capacity stands for. A backfill replays it and asks for nothing."""
    from spillway.act.capacity_live import STEPS, decided, step
    from spillway.act.live import all_went_well, in_order, run_of, window_of

    policy = Policy.load()
    run = run_of(dag_run, policy)
    interval = window_of(dag_run, policy.capacity_cycle_s)
    with control("capacity") as conn:
        if name == "observe" and not run.live:
            in_order(conn, dag_run, ti.get_previous_dagrun(), policy, cycle_s=policy.capacity_cycle_s, decided=decided)
        said = step(conn, name, interval, run)
    if name == "propose":
        before = [task for task in STEPS if task != name]
        states = ti.get_task_states(dag_id=dag_run.dag_id, task_ids=before, run_ids=[dag_run.run_id])
        all_went_well(states.get(dag_run.run_id, {}), before, see="bottleneck")
    return said


def run_cycles(minutes: float) -> int:
    """Cycles that are too short for a run each, until it is time for another task."""
    from spillway.act.live import resident

    return resident(lambda: _connect("qod"), Policy.load(), datetime.now(UTC) + timedelta(minutes=minutes))


def open_plans(run_type: str, conf: Mapping[str, Any] | None) -> list[str]:
    """The plans to rescale that are under way, and the job that a person asks for, in words; nothing: there is nothing to do."""
    if run_type == REPLAY:
        return []
    from spillway.act.rescale.offline import asked
    from spillway.store import rescale

    with control("rescale") as conn:
        return [str(plan) for plan in rescale.open_plans(conn)] + [
            j.name for j in asked(conn, conf or {}, Policy.load(), _checkpoints())
        ]


def carry_out_plans(minutes: float) -> list[str]:
    """What was done, in words."""
    from spillway.act.launch import launcher_from
    from spillway.act.rescale.resident import carry_out

    with control("rescale") as conn:
        return carry_out(conn, launcher_from({**os.environ, **environment()}), Policy.load(), most_s=60.0 * minutes)


def offline_jobs(conf: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Jobs on the state of operators that are due."""
    from spillway.act.rescale.offline import asked, due

    policy = Policy.load()
    with control("rescale") as conn:
        return [job.as_dict() for job in (*due(conn, policy), *asked(conn, conf or {}, policy, _checkpoints()))]


def _checkpoints() -> str:
    return {**os.environ, **environment()}.get("SPILLWAY_CHECKPOINTS", "")


def offline_job(given: Mapping[str, Any]) -> str:
    """Submits one job through the Spark provider, and stays for its end."""
    from airflow.sdk import get_current_context

    from spillway.act.rescale import offline

    job = offline.Job(**given)
    context: Any = get_current_context()
    context["job"] = job.name  # names the task in Airflow's pages
    known = {**os.environ, **environment()}
    with control("rescale") as conn:
        offline.begin(conn, job)
        try:
            offline.hook(job, known, _dsn()).submit(offline.application(known))
        except Exception as error:  # the hook raises AirflowException, RuntimeError and ValueError alike
            raise OfflineFailed(offline.failed(conn, job, error)) from error
    return f"{job.name} has ended"


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
