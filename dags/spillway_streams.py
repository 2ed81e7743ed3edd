"""Brings the Spark applications that run to what is declared: start, restart from the checkpoint, stop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, dag, task
from spillway.policy import Policy


@dag(
    schedule=DeltaDataIntervalTimetable(timedelta(seconds=Policy.load().streams_interval_s)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    dagrun_timeout=timedelta(minutes=5),
    doc_md=__doc__,
    tags=["spillway"],
)
def spillway_streams() -> None:
    @task(execution_timeout=timedelta(minutes=4))
    def converge(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import converge_streams

        return converge_streams(dag_run.run_type)

    converge()


spillway_streams()
