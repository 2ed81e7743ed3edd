"""The life of a driver: take the lease, start the operators' queries, watch them, stop at a batch boundary."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg2
from pyspark.sql import SparkSession
from spillway.model.settings import Effective
from spillway.model.topology import Application, Pipeline
from spillway.policy import Policy

from spark_jobs.runtime.control import Control, Fenced, Identity
from spark_jobs.runtime.database import Connection, connect, run
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.executors import ExecutorReader
from spark_jobs.runtime.keeper import Keeper, LostToAnother
from spark_jobs.runtime.metrics import Buffer, MetricsWriter
from spark_jobs.runtime.operator import OperatorQuery, Prepared
from spark_jobs.runtime.recover import recover
from spark_jobs.runtime.scale import Executors, SparkFleet
from spark_jobs.runtime.shed import encode, property_name
from spark_jobs.runtime.site import Outlets, Site, State
from spark_jobs.runtime.succession import Succession
from spark_jobs.runtime.topics import Topics, needed

log = logging.getLogger("spillway.driver")

STOPPED, FAILED, REFUSED = 0, 1, 2
_POLL_S = 0.25
_INFORMED_S = 10.0
"""A batch that is repeated should be shed as it was: the settings come before the first batch, if Postgres answers at all."""
_DRAIN_S = 30.0
"""For all operators together, less than the `stop_timeout_s` after which a driver is ended from outside."""
_SWEEP_S = 0.3
"""The lease waits this long for dead letters that are being collected; whoever takes over would look for them again."""
_SILENCE_BEATS = 3
"""Heartbeats that the driver before this one must have missed before its last metrics count as written."""


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
    def __init__(self, spark: SparkSession, work: Assignment, policy: Policy, succession: Succession | None = None) -> None:
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
        names = work.application.operators
        edges = tuple(e for name in names for e in work.pipeline.inputs(name))
        self.control = Control(work.identity, edges, policy, self._publish, operators=tuple(names), succession=succession)
        name = f"spillway {work.identity.pipeline}/{work.identity.application} metrics"
        self.writer = MetricsWriter(self.buffer, name, policy.metric_flush_s, log.warning, policy.metric_timeout_s)
        self.outlets = Outlets(buffer=self.buffer, effective=lambda: self.control.effective, event=self.control.event)
        self.operators = [
            OperatorQuery(spark, self.site, work.pipeline.operator(name), work.states[name], self.outlets) for name in names
        ]
        self.keepers = [Keeper(query, self.topics, self.control) for query in self.operators]
        self.executors = Executors(SparkFleet(spark))
        self._remembered: dict[str, int] = {}
        self.signalled, self._ended = threading.Event(), threading.Event()

    def _publish(self, edge: str, effective: Effective) -> None:
        for query in self.operators:
            if any(e.name == edge for e in query.edges):
                query.will_keep(edge, effective.keep)
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.setProperty(property_name(self.work.pipeline.name, edge), encode(effective))

    # -- the course of it

    def run(self) -> int:
        """Until asked to stop. Returns the exit code."""
        self.begin()
        return self.lead()

    def begin(self) -> None:
        """Up to the point where only the queries are missing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._signal())
        self.control.status.spark_app = self.spark.sparkContext.applicationId
        self.control.status.ui = self.spark.sparkContext.uiWebUrl
        self.control.start()
        self.writer.start()
        if not self.control.informed.wait(_INFORMED_S):
            log.warning("Postgres has not told the settings within %.0f s; nothing is shed until it does", _INFORMED_S)

    def _signal(self) -> None:
        self.signalled.set()
        self.control.news.set()

    def lead(self, prepared: Mapping[str, Prepared] | None = None) -> int:
        """From the moment the lease is held until asked to stop. Returns the exit code."""
        me, ready = self.work.identity, prepared or {}
        code, state, detail = FAILED, "failed", ""
        try:
            if prepared is None:
                self.topics.ensure(needed(self.work.pipeline, tuple(q.operator for q in self.operators)))
            # All at once: whoever takes over has everybody waiting.
            with ThreadPoolExecutor(len(self.keepers), "start") as pool:
                list(pool.map(lambda keeper: keeper.start(ready.get(keeper.name)), self.keepers))
            self.control.status.state = "running"
            self.control.event(me.application, "started", f"{me.pipeline}/{me.application} generation {me.generation} runs")
            for target in (self._read_executors, self._recover):
                threading.Thread(target=target, name=target.__name__.strip("_"), daemon=True).start()
            detail = self._watch()
            fenced = detail.startswith("fenced")
            code, state = STOPPED, "fenced" if fenced else "stopped"
            self.control.status.state = "stopping"
        except Exception as error:
            detail = first_line(error)
            log.exception("the driver fails")
        finally:
            self._ended.set()
            self._stop(gently=code == STOPPED)
            self._remember_bounds()
            self.writer.close()
            self.control.event(
                me.application,
                state,
                f"{me.pipeline}/{me.application} generation {me.generation} {state}: {detail.removeprefix('fenced: ')}",
            )
            self.control.close(state, detail)
        return code

    def _stop(self, *, gently: bool) -> None:
        """All queries at a batch boundary, and then the lease at once: whoever takes over has waited for nothing else."""
        self.control.prepare_release()
        until = time.monotonic() + (_DRAIN_S if gently else 0.0)
        for keeper in self.keepers:
            keeper.end(until)
        if gently:
            self._hold(until)
        for keeper in self.keepers:
            try:
                if keeper.query.query is not None:
                    keeper.stopped(keeper.query.rest(drain_s=max(0.0, until - time.monotonic())).batch_id)
            except Exception as error:
                log.warning("%s did not stop cleanly: %s", keeper.name, error)
        self._close(_SWEEP_S)
        if not any(keeper.busy or keeper.query.alive for keeper in self.keepers):
            self.control.release()
        self._close(10.0)

    def _hold(self, until: float) -> None:
        """All operators before any of them is drained: none may go on planning batches until its turn comes. Each is held as soon
        as it has a batch under way, which then is its last."""
        until = min(until, time.monotonic() + self.work.pipeline.trigger_s + 0.1)
        waiting = list(self.keepers)
        for keeper in waiting:
            keeper.stopping()
        while waiting:
            for keeper in list(waiting):
                try:
                    if time.monotonic() >= until or not keeper.query.alive or keeper.query.in_flight:
                        keeper.query.hold()
                        waiting.remove(keeper)
                except Exception as error:
                    log.warning("%s could not be held: %s", keeper.name, error)
                    waiting.remove(keeper)
            time.sleep(0.005)

    def _close(self, patience_s: float) -> None:
        for query in self.operators:
            try:
                query.close(patience_s)
            except Exception as error:
                log.warning("what %s reported last is lost: %s", query.operator.name, error)

    def _watch(self) -> str:
        """Returns why the driver should stop; raises when an operator cannot be kept alive."""
        while True:
            if self.signalled.is_set():
                return "signalled"
            if self.control.stop_reason:
                return self.control.stop_reason
            self.control.apply()
            if not self.control.is_alive() or self.control.overdue():
                raise RuntimeError("the control thread has ended or hangs: without it nothing renews the lease")
            if self.spark.sparkContext._jsc.sc().isStopped():
                raise RuntimeError("Spark has stopped the application")
            orders = self.control.orders
            if orders is not None:
                self.control.status.executors = self.executors.bring_to(orders.executors)
            try:
                for keeper in self.keepers:
                    keeper.look(None if orders is None else orders.operators.get(keeper.name))
            except LostToAnother as error:
                return f"fenced: {error}"
            self.control.status.metrics_dropped = self.buffer.dropped
            self.control.status.detail = "; ".join(
                f"{q.operator.name} batch {q.last.get('batchId', '-')}" + ("" if q.alive else " (down)") for q in self.operators
            )
            self.control.news.wait(_POLL_S)
            self.control.news.clear()

    # -- beside it

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
                self._remember_bounds()

    def _recover(self) -> None:
        """Batches that the driver before this one committed and did not report. It gives its lease back before its last metrics
        are written, so they are not lost before it has fallen silent."""
        me, silence_s = self.work.identity, _SILENCE_BEATS * self.policy.heartbeat_s
        key = {"pipeline": me.pipeline, "application": me.application, "generation": me.generation}
        while not self._ended.is_set():
            try:
                connection = connect("spillway positions")
                [(silent,)] = run(connection, "job_silence", **key)
                quiet = silent is None or float(silent) > silence_s
                if quiet:
                    for query in self.operators:
                        recover(query, connection, self.topics)
                connection.close()
                if quiet:
                    return
            except Exception as error:
                log.warning("what the driver before this one did not report is looked for again: %s", first_line(error))
            self._ended.wait(1.0)

    def _remember_bounds(self) -> None:
        """The learned bounds, so that the next start begins with them."""
        changed = {q.operator.name: q.max_rows for q in self.operators if self._remembered.get(q.operator.name) != q.max_rows}
        if not changed:
            return
        try:
            connection = connect("spillway bounds")
            for operator, max_rows in changed.items():
                run(connection, "job_operator_bound", pipeline=self.site.pipeline.name, operator=operator, max_rows=max_rows)
                self._remembered[operator] = max_rows
            connection.close()
        except psycopg2.Error:
            log.warning("Postgres is away; the bounds are learned again")
