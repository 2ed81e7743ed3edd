"""The life of a driver: take the lease, start the operators' queries, watch them, stop at a batch boundary."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import psycopg2
from pyspark.sql import SparkSession
from spillway.model.settings import Effective
from spillway.model.topology import Application, Pipeline
from spillway.policy import Policy

from spark_jobs.runtime.control import Control, Fenced, Identity
from spark_jobs.runtime.database import Connection, connect, run
from spark_jobs.runtime.executors import ExecutorReader
from spark_jobs.runtime.metrics import Buffer, MetricsWriter
from spark_jobs.runtime.operator import OperatorQuery, Site, State
from spark_jobs.runtime.shed import encode, property_name
from spark_jobs.runtime.topics import Topics, needed

log = logging.getLogger("spillway.driver")

STOPPED, FAILED, REFUSED = 0, 1, 2
_POLL_S = 0.25
CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")
"""How Spark says that somebody else has planned or committed the same batch."""
_INFORMED_S = 10.0
"""A batch that is repeated should be shed as it was: the settings come before the first batch, if Postgres answers at all."""
_DRAIN_S = 30.0
"""For all operators together, less than the `stop_timeout_s` after which a driver is ended from outside."""
_RESTARTS = 5
"""Restarts of a query inside the driver, without a batch in between, before the driver gives up and is started anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What Postgres says this driver should run."""

    identity: Identity
    pipeline: Pipeline
    application: Application
    states: dict[str, State]


def assignment(connection: Connection, pipeline: str, application: str, generation: int) -> Assignment:
    rows = run(connection, "job_application", pipeline=pipeline, application=application)
    if not rows:
        raise LookupError(
            f"application {pipeline}/{application} is not declared; apply its topology first (spillway topology apply)"
        )
    version, _, newest, _, _, spec, states = rows[0]
    if newest > generation:
        raise Fenced(f"generation {newest} of {pipeline}/{application} exists; this is {generation}")
    topology = Pipeline.from_json(spec)
    declared = topology.application(application)
    known = {name: State(**state) for name, state in states.items()}
    for name in declared.operators:
        known.setdefault(name, State(checkpoint=0, buckets=topology.operator(name).buckets, max_rows=None))
    identity = Identity(pipeline=pipeline, application=application, generation=generation, version=version)
    return Assignment(identity=identity, pipeline=topology, application=declared, states=known)


def connect_patiently(name: str, patience_s: float) -> Connection:
    """A driver that starts while Postgres restarts waits for it."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return connect(name)
        except psycopg2.OperationalError as error:
            if time.monotonic() > deadline:
                reason = str(error).strip().splitlines()[0]
                raise RuntimeError(
                    f"Postgres did not answer for {patience_s:.0f} s ({reason}); check SPILLWAY_DSN_JOB and the server"
                ) from error
            time.sleep(1.0)


class Driver:
    def __init__(self, spark: SparkSession, work: Assignment, policy: Policy) -> None:
        self.spark, self.work, self.policy = spark, work, policy
        bootstrap = os.environ.get("SPILLWAY_KAFKA")
        checkpoints = os.environ.get("SPILLWAY_CHECKPOINTS")
        if not bootstrap or not checkpoints:
            raise RuntimeError(
                "SPILLWAY_KAFKA and SPILLWAY_CHECKPOINTS must be set for the driver: the brokers, and where checkpoints lie"
            )
        self.site = Site(
            pipeline=work.pipeline,
            application=work.application.name,
            generation=work.identity.generation,
            bootstrap=bootstrap,
            checkpoints=checkpoints,
            client_conf={},
            policy=policy,
        )
        self.topics = Topics(bootstrap)
        self.buffer = Buffer(policy.metric_buffer_rows)
        edges = tuple(e for name in work.application.operators for e in work.pipeline.inputs(name))
        self.control = Control(work.identity, edges, policy, self._publish)
        name = f"spillway {work.identity.pipeline}/{work.identity.application} metrics"
        self.writer = MetricsWriter(self.buffer, name, policy.metric_flush_s, log.warning, policy.metric_timeout_s)
        self.operators = [
            OperatorQuery(
                spark,
                self.site,
                work.pipeline.operator(name),
                work.states[name],
                self.buffer,
                lambda: self.control.effective,
                self.control.event,
            )
            for name in work.application.operators
        ]
        self._signalled, self._ended = threading.Event(), threading.Event()

    def _publish(self, edge: str, effective: Effective) -> None:
        for query in self.operators:
            if any(e.name == edge for e in query.edges):
                query.will_keep(edge, effective.keep)
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.setProperty(property_name(self.work.pipeline.name, edge), encode(effective))

    def run(self) -> int:
        """Until asked to stop. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._signalled.set())
        me = self.work.identity
        self.control.status.spark_app = self.spark.sparkContext.applicationId
        self.control.status.ui = self.spark.sparkContext.uiWebUrl
        self.control.start()
        self.writer.start()
        threading.Thread(target=self._read_executors, name="executors", daemon=True).start()
        code, state, detail = FAILED, "failed", ""
        try:
            if not self.control.informed.wait(_INFORMED_S):
                log.warning("Postgres has not told the settings within %.0f s; nothing is shed until it does", _INFORMED_S)
            operators = tuple(q.operator for q in self.operators)
            self.topics.ensure(needed(self.work.pipeline, operators))
            for operator in self.operators:
                operator.start(self.topics)
            self.control.status.state = "running"
            self.control.event(me.application, "started", f"{me.pipeline}/{me.application} generation {me.generation} runs")
            detail = self._watch()
            fenced = detail.startswith("fenced")
            code, state = STOPPED, "fenced" if fenced else "stopped"
            self.control.status.state = "stopping"
        except Exception as error:
            detail = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            log.exception("the driver fails")
        finally:
            self._ended.set()
            until = time.monotonic()
            if code == STOPPED:
                until += _DRAIN_S
                self._hold()
            for operator in self.operators:
                try:
                    operator.stop(drain_s=max(0.0, until - time.monotonic()))
                except Exception as error:
                    log.warning("%s did not stop cleanly: %s", operator.operator.name, error)
            self._remember_bounds()
            self.writer.close()
            self.control.event(
                me.application, state, f"{me.pipeline}/{me.application} generation {me.generation} {state}: {detail}"
            )
            self.control.close(state, detail)
        return code

    def _hold(self) -> None:
        """All operators first: one that is drained later must not go on planning batches until then."""
        for operator in self.operators:
            try:
                operator.hold()
            except Exception as error:
                log.warning("%s could not be held: %s", operator.operator.name, error)

    def _watch(self) -> str:
        """Returns why the driver should stop; raises when an operator cannot be kept alive."""
        failures = {q.operator.name: 0 for q in self.operators}
        retry_at = {q.operator.name: 0.0 for q in self.operators}
        while True:
            if self._signalled.is_set():
                return "signalled"
            if self.control.stop_reason:
                return self.control.stop_reason
            self.control.apply()
            if not self.control.is_alive() or self.control.overdue():
                raise RuntimeError("the control thread has ended or hangs: without it nothing renews the lease")
            if self.spark.sparkContext._jsc.sc().isStopped():
                raise RuntimeError("Spark has stopped the application")
            for operator in self.operators:
                name = operator.operator.name
                if operator.collect():
                    failures[name] = 0
                if operator.alive:
                    continue
                if retry_at[name] == 0.0:
                    failures[name] += 1
                    reason = operator.failure()
                    if any(sign in reason for sign in CONCURRENT):
                        return f"fenced: another driver writes the checkpoint of {name}"
                    if failures[name] > _RESTARTS:
                        raise RuntimeError(f"{name} failed {failures[name]} times in a row: {reason}")
                    self.control.event(name, "query_failed", f"{name} stopped ({reason}); it starts again from its checkpoint")
                    log.warning("%s stopped: %s", name, reason)
                    retry_at[name] = time.monotonic() + _patience_s(failures[name])
                elif time.monotonic() >= retry_at[name]:
                    try:
                        operator.start(self.topics)
                        retry_at[name] = 0.0
                    # Kafka may be away: that is one more failure of this operator, and none of the others.
                    except Exception as error:
                        failures[name] += 1
                        if failures[name] > _RESTARTS:
                            raise
                        log.warning("%s did not start again: %s", name, error)
                        retry_at[name] = time.monotonic() + _patience_s(failures[name])
            self.control.status.metrics_dropped = self.buffer.dropped
            self.control.status.detail = "; ".join(
                f"{q.operator.name} batch {q.last.get('batchId', '-')}" + ("" if q.alive else " (down)") for q in self.operators
            )
            time.sleep(_POLL_S)

    def _read_executors(self) -> None:
        """Rows and CPU per executor, once a cycle; on a thread of its own, because the REST API may take its time."""
        context, me = self.spark.sparkContext, self.work.identity
        key = (me.pipeline, me.application)
        reader = ExecutorReader(context.uiWebUrl, context.applicationId, key, self.policy.executor_rows_s)
        counted = {q.operator.name: 0 for q in self.operators}
        while not self._ended.wait(1.0):
            for q in self.operators:
                reader.read(q.operator.name, q.rows - counted[q.operator.name])
                counted[q.operator.name] = q.rows
            if reader.due():
                self.buffer.put(
                    reader.collect({q.operator.name: str(q.query.runId) for q in self.operators if q.query is not None})
                )

    def _remember_bounds(self) -> None:
        """The learned bounds, so that the next start begins with them."""
        try:
            connection = connect("spillway bounds")
            for q in self.operators:
                run(
                    connection,
                    "job_operator_bound",
                    pipeline=self.site.pipeline.name,
                    operator=q.operator.name,
                    max_rows=q.max_rows,
                )
            connection.close()
        except psycopg2.Error:
            log.warning("Postgres is away; the bounds are learned again")


def _patience_s(failures: int) -> float:
    """How long a failed query waits before it is started again."""
    return min(30.0, 2.0**failures / 2)
