"""Jobs on the state of an operator beside its driver, submitted through the Airflow Spark provider: what is due, and how it runs.

`digest` is due when a plan has come to that step. `repair` and `repartition` are asked for by a person, by the configuration of
a run of spillway_rescale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spillway.act.launch import program
from spillway.act.launch.conf import LOCAL_FILES, OWNED, QUICK_JVM, cluster_from, with_class_path
from spillway.act.rescale.digest import DIGEST, TRIES, members
from spillway.policy import Policy
from spillway.store import rescale
from spillway.store.errors import Refused
from spillway.store.pipelines import alive_applications, load
from spillway.store.queries import rows
from spillway.store.rescale import Plan, Step

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

CONNECTION = "spillway_spark"
REPAIR, REPARTITION = "repair", "repartition"
CORES, EXECUTOR_MB, DRIVER_MB = 1, 640, 640
"""Small: what counts state must not starve what makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One submission of `spark_jobs/offline.py`."""

    job: str
    pipeline: str
    operator: str
    checkpoint: int
    plan: int | None = None
    checkpoint_to: int | None = None
    batch: int | None = None
    to: str | None = None
    buckets: int | None = None

    @property
    def arguments(self) -> list[str]:
        """
        >>> Job(job="digest", pipeline="ads", operator="count", checkpoint=0, plan=7, batch=41).arguments
        ['digest', '--pipeline', 'ads', '--operator', 'count', '--checkpoint', '0', '--plan', '7', '--batch', '41']
        """
        given = [self.job, "--pipeline", self.pipeline, "--operator", self.operator, "--checkpoint", str(self.checkpoint)]
        for name in ("plan", "checkpoint_to", "batch", "to", "buckets"):
            if (value := getattr(self, name)) is not None:
                given += [f"--{name.replace('_', '-')}", str(value)]
        return given

    @property
    def name(self) -> str:
        return f"spillway-{self.job}:{self.pipeline}:{self.operator}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def due(conn: Connection, policy: Policy) -> list[Job]:
    """Digests of the plans that have come to that step, and were not counted yet."""
    jobs = []
    for plan in rescale.open_plans(conn):
        step = plan.at
        if plan.state != "running" or step is None or step.step != DIGEST or step.evidence.get("tries", 0) >= TRIES:
            continue
        counted = {r["operator"] for r in rows(conn, "rescale_digests", plan=plan.id) if r["both"]}
        states = {s["operator"]: s["checkpoint"] for s in rows(conn, "operator_states", pipeline=plan.pipeline)}
        wanted = members(load(conn, plan.pipeline), plan, policy)
        jobs += [_digest(plan, name, states[name]) for name in wanted if name not in counted]
    return jobs


def _digest(plan: Plan, operator: str, checkpoint: int) -> Job:
    """The last batch before the change matters where the state was rewritten in place; else the newest one is as good."""
    own = operator == plan.operator
    in_place = own and plan.buckets_from != plan.buckets_to and plan.checkpoint_from == plan.checkpoint_to
    stop = next((s.evidence.get("stopped_batch") for s in plan.steps if s.step == "stopped"), None)
    return Job(
        job=DIGEST,
        plan=plan.id,
        pipeline=plan.pipeline,
        operator=operator,
        checkpoint=plan.checkpoint_from if own else checkpoint,
        checkpoint_to=plan.checkpoint_to if own and plan.checkpoint_to != plan.checkpoint_from else None,
        batch=stop if own and plan.buckets_from != plan.buckets_to else None,
        buckets=plan.buckets_to if in_place else None,
    )


def asked(conn: Connection, conf: Mapping[str, Any], policy: Policy, checkpoints: str) -> list[Job]:
    """The job that the configuration of a run asks for: {"job": "repair", "pipeline": "ads", "operator": "count"}."""
    if not conf.get("job"):
        return []
    kind, pipeline, operator = conf["job"], str(conf.get("pipeline", "")), str(conf.get("operator", ""))
    if kind not in (REPAIR, REPARTITION):
        raise Refused(f"{kind} is no job to ask for: give {REPAIR} or {REPARTITION}.")
    spec = load(conn, pipeline)
    states = {s["operator"]: s for s in rows(conn, "operator_states", pipeline=pipeline)}
    if operator not in states:
        raise Refused(f"pipeline {pipeline} has no operator {operator}: its operators are {', '.join(states)}.")
    application = next((a.name for a in spec.applications if operator in a.operators), None)
    if kind == REPAIR and application in alive_applications(conn, pipeline, policy):
        raise Refused(
            f"operator {operator} of pipeline {pipeline} still runs, and repairs itself: stop it first with "
            f"`spillway stop {pipeline} --wait`."
        )
    if kind == REPARTITION and not (conf.get("to") and conf.get("buckets")):
        raise Refused(f"a copy of {operator} needs a place and a number: give `to` and `buckets`.")
    if kind == REPARTITION and (lies := _within(str(conf["to"]), checkpoints)):
        raise Refused(f"{conf['to']} is among the checkpoints of pipelines, which lie below {lies}: give another place.")
    job = Job(job=kind, pipeline=pipeline, operator=operator, checkpoint=states[operator]["checkpoint"])
    return [replace(job, to=str(conf["to"]), buckets=int(conf["buckets"])) if kind == REPARTITION else job]


def _within(place: str, checkpoints: str) -> str | None:
    """Where checkpoints lie, if a place is there.

    >>> _within("file:/c/../c/ads/count/0", "file:///c/"), _within("/c/ads", "file:/c"), _within("file:/copies/ads", "file:/c")
    ('file:///c/', 'file:/c', None)
    """

    def plain(location: str) -> tuple[str, ...]:
        found = urlsplit(location)
        scheme = "" if found.scheme == "file" else f"{found.scheme}{found.netloc}"
        return scheme, *PurePosixPath(normpath(f"/{found.path.lstrip('/')}")).parts

    below = plain(checkpoints)
    return checkpoints if checkpoints and plain(place)[: len(below)] == below else None


def begin(conn: Connection, job: Job) -> None:
    """Counts the try before it is made: a job that takes its submitter with it must not be tried for ever."""
    if (found := _step(conn, job)) is not None:
        plan, step = found
        rescale.note(conn, plan, step, f"{job.name} was submitted", {"tries": step.evidence.get("tries", 0) + 1})
    conn.commit()


def failed(conn: Connection, job: Job, error: Exception) -> str:
    """One sentence, for the plan and for the task."""
    words = f"{job.name} failed: {' '.join(str(error).split())[:500]}"
    if (found := _step(conn, job)) is not None:
        rescale.note(conn, *found, words, {"error": words})
    conn.commit()
    return words


def _step(conn: Connection, job: Job) -> tuple[Plan, Step] | None:
    plan = rescale.lock(conn, job.plan) if job.plan is not None else None
    step = plan.at if plan is not None and plan.state == "running" else None
    return (plan, step) if plan is not None and step is not None and step.step == DIGEST else None


def hook(job: Job, environment: Mapping[str, str], dsn: str) -> Any:
    """The provider's hook for a job. The driver runs beside the task that submits it, in client mode: a standalone cluster takes
    Python in no other way. It is given the address of the store by its environment, never by its command line, where the provider
    would put it for other clusters: those are refused."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    cluster = cluster_from(environment, master="")
    conf = {
        **OWNED,
        "spark.app.name": job.name,
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    if cluster.local_ip:
        conf |= {"spark.driver.host": cluster.local_ip, "spark.driver.bindAddress": cluster.local_ip}
    if cluster.jars:
        conf = with_class_path({**conf, **LOCAL_FILES}, cluster)
    made = SparkSubmitHook(
        conf=conf,
        conn_id=environment.get("SPILLWAY_SPARK_CONNECTION", CONNECTION),
        name=job.name,
        application_args=job.arguments,
        total_executor_cores=CORES,
        executor_cores=CORES,
        executor_memory=f"{EXECUTOR_MB}m",
        driver_memory=f"{DRIVER_MB}m",
        env_vars={"SPILLWAY_DSN_CONTROL": dsn, "SPILLWAY_CHECKPOINTS": environment.get("SPILLWAY_CHECKPOINTS", "")},
        verbose=False,
    )
    if not (master := str(made._connection["master"])).startswith(("spark://", "local")):
        raise Refused(
            f"jobs on state are submitted to a standalone cluster only, and the connection {made._conn_id} leads to {master}, "
            "where the address of the store would be on a command line: set rescale_digest to never, or give another connection."
        )
    return made


def application(environment: Mapping[str, str]) -> str:
    """The program, beside the driver program of this installation."""
    return environment.get("SPILLWAY_OFFLINE") or str(Path(program()).with_name("offline.py"))
