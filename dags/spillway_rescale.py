"""Carries out plans to rescale operators, step by recorded step; `spillway plans` shows them, `spillway rescale` asks for one.

`look` finds what is under way, and without any plan the run ends there. `carry_out` takes the steps, pass after pass for up to
two minutes while plans move; a plan that needs longer goes on in the next run. `offline` counts the state of operators before and
after, with Spark jobs of its own, and `conclude` takes the steps that waited for that. A task may be killed at any point: the
next run goes on from what is stored.

A run with the configuration {"job": "repair", "pipeline": …, "operator": …} finishes a repartition that was left half-done, of a
stopped operator; {"job": "repartition", …, "to": …, "buckets": …} makes a copy of a checkpoint with other buckets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DeltaDataIntervalTimetable, dag, task
from spillway.policy import Policy

POLICY = Policy.load()
DIGEST = timedelta(seconds=POLICY.rescale_digest_timeout_s)
MINUTES = 2.0


@dag(
    dag_id="spillway_rescale",
    schedule=DeltaDataIntervalTimetable(timedelta(seconds=POLICY.rescale_interval_s)),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    dagrun_timeout=DIGEST + timedelta(minutes=15),
    doc_md=__doc__,
    tags=["spillway"],
)
def spillway_rescale() -> None:
    @task.short_circuit(execution_timeout=timedelta(minutes=2))
    def look(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import open_plans

        return open_plans(dag_run.run_type, dag_run.conf)

    @task(execution_timeout=timedelta(minutes=5))
    def carry_out():  # type: ignore[no-untyped-def]
        from spillway.act.tasks import carry_out_plans

        return carry_out_plans(MINUTES)

    @task(execution_timeout=timedelta(minutes=2), trigger_rule="all_done")
    def jobs(dag_run=None):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import offline_jobs

        return offline_jobs(dag_run.conf)

    @task(execution_timeout=DIGEST, map_index_template="{{ job }}")
    def offline(job):  # type: ignore[no-untyped-def]
        from spillway.act.tasks import offline_job

        return offline_job(job)

    @task(execution_timeout=timedelta(minutes=5), trigger_rule="none_failed")
    def conclude():  # type: ignore[no-untyped-def]
        from spillway.act.tasks import carry_out_plans

        return carry_out_plans(MINUTES)

    carried, due = carry_out(), jobs()
    look() >> carried >> due
    [carried, offline.expand(job=due)] >> conclude()


spillway_rescale()
