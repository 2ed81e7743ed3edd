"""Finds what each pipeline can carry and which operator holds it back, and proposes to rescale it: observe, detect, propose.

The first red task is where an evaluation stopped for at least one pipeline; its log and `spillway bottleneck` say why. The others
went on; `propose` is red at their end, so that the run is. A proposal is asked for where the mode is apply; spillway_rescale
carries it out. A backfill replays past windows and asks for nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, dag, task
from spillway.policy import Policy

CYCLE_S = Policy.load().capacity_cycle_s
LIMIT = timedelta(seconds=max(60.0, CYCLE_S))


@dag(
    dag_id="spillway_capacity",
    schedule=DeltaDataIntervalTimetable(timedelta(seconds=CYCLE_S)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    dagrun_timeout=3 * LIMIT,
    doc_md=__doc__,
    tags=["spillway"],
)
def spillway_capacity() -> None:
    @task(execution_timeout=LIMIT)
    def observe(dag_run=None, ti=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import capacity_step

        return capacity_step("observe", dag_run, ti)

    @task(execution_timeout=LIMIT, trigger_rule="all_done")
    def detect(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import capacity_step

        return capacity_step("detect", dag_run)

    @task(execution_timeout=LIMIT, trigger_rule="all_done")
    def propose(dag_run=None, ti=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import capacity_step

        return capacity_step("propose", dag_run, ti)

    observe() >> detect() >> propose()


spillway_capacity()
