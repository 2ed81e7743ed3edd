"""Keeps every pipeline as accurate as its nodes allow: observes a closed window, decides, publishes, compares with the outcome.

The first red task is where a cycle stopped for at least one pipeline; its log and `spillway why` say why. The others went on;
`verify` is red at their end, so that the run is. A backfill replays past windows and changes nothing that runs. Cycles shorter
than 10 s run in one task that stays for half an hour; it is red at its end when a cycle failed or was refused, and ends early
when twenty in a row failed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, dag, task
from spillway.policy import Policy

CYCLE_S = Policy.load().qod_cycle_s
RESIDENT = CYCLE_S < 10.0
LIMIT = timedelta(seconds=max(60.0, 2 * CYCLE_S))


@dag(
    dag_id="spillway_qod",
    schedule="@continuous" if RESIDENT else DeltaDataIntervalTimetable(timedelta(seconds=CYCLE_S)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    dagrun_timeout=timedelta(hours=1) if RESIDENT else 4 * LIMIT,
    doc_md=__doc__,
    tags=["spillway"],
)
def spillway_qod() -> None:
    @task(execution_timeout=timedelta(minutes=45))
    def cycles():  # type: ignore[no-untyped-def]
        from spillway.act.tasks import run_cycles

        return run_cycles(minutes=30)

    @task(execution_timeout=LIMIT)
    def observe(dag_run=None, ti=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import qod_step

        return qod_step("observe", dag_run, ti)

    @task(execution_timeout=LIMIT, trigger_rule="all_done")
    def decide(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import qod_step

        return qod_step("decide", dag_run)

    @task(execution_timeout=LIMIT, trigger_rule="all_done")
    def publish(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import qod_step

        return qod_step("publish", dag_run)

    @task(execution_timeout=LIMIT, trigger_rule="all_done")
    def verify(dag_run=None, ti=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import qod_step

        return qod_step("verify", dag_run, ti)

    if RESIDENT:
        cycles()
    else:
        observe() >> decide() >> publish() >> verify()


spillway_qod()
