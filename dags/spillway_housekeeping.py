"""Keeps small what grows: metric partitions and events, and Airflow's own old runs and logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, dag, task
from spillway.policy import Policy


@dag(
    schedule=DeltaDataIntervalTimetable(timedelta(seconds=Policy.load().housekeeping_interval_s)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    dagrun_timeout=timedelta(minutes=15),
    doc_md=__doc__,
    tags=["spillway"],
)
def spillway_housekeeping() -> None:
    @task(retries=1, retry_delay=timedelta(minutes=1), execution_timeout=timedelta(minutes=5))
    def metrics(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import keep_house

        return keep_house(dag_run.run_type)

    @task(retries=1, retry_delay=timedelta(minutes=1), execution_timeout=timedelta(minutes=10))
    def airflow(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import keep_airflow_house

        return keep_airflow_house(dag_run.run_type)

    metrics()
    airflow()


spillway_housekeeping()
