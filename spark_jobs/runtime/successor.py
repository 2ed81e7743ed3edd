"""A driver that is started beside the running one, rehearses, and takes over from it when told.

It holds no lease until then and writes nothing that anybody reads, except to its own row of `successor` and to copies of
checkpoints, which it removes. From the moment it holds the lease it is an ordinary driver.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace

import psycopg2
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from spillway.policy import Policy

from spark_jobs.runtime.checkpoint import Checkpoint
from spark_jobs.runtime.clone import CloneFailed
from spark_jobs.runtime.control import Fenced, acquire
from spark_jobs.runtime.database import Connection, connect, run
from spark_jobs.runtime.driver import FAILED, STOPPED, Assignment, Driver, connect_patiently
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.follow import Follower, FollowFailed
from spark_jobs.runtime.operator import OperatorQuery, Prepared
from spark_jobs.runtime.rehearsal import STRAGGLERS_S, keep_warm, rehearse, scratch_of, sweep_scratch, sweep_stragglers
from spark_jobs.runtime.shadow import align, follower_of, make_shadow, practise, sweep_late
from spark_jobs.runtime.succession import Stage, Succession, Told
from spark_jobs.runtime.topics import needed

log = logging.getLogger("spillway.successor")

_LEASE_S = 0.02
"""How often the lease is asked for while everybody waits for it."""
_WARM_S = 20.0
_LEVEL_S = 180.0
"""Who follows in order to load no state, and is not level by then, loads it."""
_LOOK_S, _FOLLOW_S = 0.1, 0.02
"""How often it looks what it is told, and what there is to follow."""


class Withdrawn(Exception):
    """It is no longer wanted."""


class Successor:
    def __init__(self, spark: SparkSession, work: Assignment, policy: Policy, plan: int) -> None:
        me = work.identity
        connection = connect_patiently(f"spillway {me.pipeline}/{me.application} successor", patience_s=60.0)
        found = run(connection, "job_successor_work", **me.key, plan=plan)
        connection.close()
        if not found:
            raise LookupError(f"{me.pipeline}/{me.application} has no successor for plan {plan}; nothing to do")
        self.executors, operator, checkpoint, buckets = found[0]
        self._running = work.states[operator]
        states, self._shadowed = dict(work.states), None
        if checkpoint != self._running.checkpoint:
            self._shadowed = operator
            states[operator] = replace(self._running, checkpoint=checkpoint, buckets=buckets, reported=None)
        self.succession = Succession(plan=plan)
        self.driver = Driver(spark, replace(work, states=states), policy, self.succession)
        self.spark, self.policy = spark, policy
        self._stays: Prepared | None = None
        """The start of what was followed, should it be told to go on from the checkpoint that runs now."""
        self._left: Checkpoint | None = None
        self._followed_since = 0.0
        self._slots = int(spark.conf.get("spark.executor.cores", "1") or 1)
        self._follower: Follower | None = None
        self._warmed = time.monotonic()

    @property
    def _shadow(self) -> OperatorQuery | None:
        """The query whose checkpoint is to be a shadow of the running one."""
        return next((q for q in self.driver.operators if q.operator.name == self._shadowed), None)

    def run(self) -> int:
        """Until withdrawn, or as the driver of the application until asked to stop. Returns the exit code."""
        self.driver.begin()
        try:
            prepared = self._rehearse()
            self._stand_by()
            connection = self._take_lease()
        except (Withdrawn, Fenced) as reason:
            log.warning("%s; nothing more to do", reason or "it was withdrawn")
            self._leave(Stage.GONE, str(reason))
            return STOPPED
        except Exception as error:
            log.exception("the successor fails")
            self._leave(Stage.FAILED, first_line(error))
            return FAILED
        connection.close()
        log.info("it holds the lease")
        later = threading.Timer(STRAGGLERS_S, self._clear)
        later.daemon = True
        later.start()
        try:
            return self.driver.lead(self._align(prepared))
        finally:
            later.cancel()

    # -- beside the running driver

    def _at(self, stage: Stage, detail: str = "") -> None:
        """Says where it is, and ends it where it is no longer wanted."""
        changed = self.succession.stage is not stage
        self.succession.stage, self.succession.detail = stage, detail
        if changed:
            log.info("%s", stage)
            self.driver.control.wake()
        if self.driver.signalled.is_set():
            raise Withdrawn("signalled")
        if self.driver.control.stop_reason:
            raise Withdrawn(self.driver.control.stop_reason)
        if self.succession.told is Told.WITHDRAW:
            raise Withdrawn("it was withdrawn")

    def _rehearse(self) -> dict[str, Prepared]:
        driver, shadow = self.driver, self._shadow
        driver.topics.ensure(needed(driver.work.pipeline, tuple(q.operator for q in driver.operators)))
        self._await_executors()
        sweep_scratch(driver.operators)
        others = [q for q in driver.operators if q is not shadow]
        self._play(others)
        if shadow is not None:
            try:
                self._follow(shadow)
            except (CloneFailed, FollowFailed) as error:
                if self._rebuckets:
                    raise
                log.warning("%s cannot be followed, it is rehearsed: %s", shadow.operator.name, first_line(error))
                if self._follower is not None:
                    self._follower.stop()
                shadow.checkpoint.remove()
                shadow.state, self._shadowed, self._follower = self._running, None, None
                self._play([shadow])
        return {keeper.name: keeper.prepare() for keeper in driver.keepers}

    def _play(self, queries: list[OperatorQuery]) -> None:
        if queries:
            rehearse(queries, self.driver.topics, lambda where: self._at(Stage(where)), self._played)

    def _follow(self, shadow: OperatorQuery) -> None:
        as_it_runs = shadow.prepare(self.driver.topics, self._running)
        if as_it_runs.unrepeatable:
            raise FollowFailed(f"its state cannot be repeated: {as_it_runs.unrepeatable}")
        if not self._rebuckets:
            self._stays = as_it_runs
        self._at(Stage.CLONING)
        make_shadow(shadow, self.driver.topics, self._running, self.succession.plan, lambda: self._at(Stage.REPARTITIONING))
        self._at(Stage.CATCHING_UP)
        self._follower = follower_of(shadow, self.driver.topics, self._running.checkpoint)
        self._follower.start()
        self._followed_since = time.monotonic()
        practise(shadow, Checkpoint(self.spark, scratch_of(shadow, str(shadow.site.generation), "practice")))

    @property
    def _rebuckets(self) -> bool:
        """Only a checkpoint of its own has the buckets that are wanted."""
        return self._shadow is not None and self._shadow.state.buckets != self._running.buckets

    def _await_executors(self) -> None:
        while (there := self.driver.executors.bring_to(self.executors)) < self.executors:
            self._at(Stage.STARTING, f"{there} of {self.executors} executors are registered")
            time.sleep(0.1)
        keep_warm(self.spark, self._tasks)

    @property
    def _tasks(self) -> int:
        """So many that each slot gets one."""
        return 2 * self.executors * self._slots

    def _played(self, batches: int) -> None:
        self.succession.batches = batches

    def _stand_by(self) -> None:
        """Ready until told to take over."""
        control = self.driver.control
        while self.succession.told is not Told.TAKE_OVER:
            stage = Stage.READY
            if self._follower is not None:
                stage = self._followed(self._follower)
            self._at(stage)
            self.driver.executors.bring_to(self.executors)
            if time.monotonic() - self._warmed > _WARM_S:
                keep_warm(self.spark, self._tasks)
                self._warmed = time.monotonic()
            control.news.wait(_LOOK_S if self._follower is None else _FOLLOW_S)
            control.news.clear()

    def _followed(self, follower: Follower) -> Stage:
        try:
            self.succession.behind_rows = follower.advance(may_rest=True)
            if self._stays is not None and follower.shed:
                raise FollowFailed("rows are shed, which cannot be repeated")
            if self._stays is not None and not follower.level and time.monotonic() - self._followed_since > _LEVEL_S:
                raise FollowFailed(f"it is not level after {_LEVEL_S:.0f} s")
        except (FollowFailed, Py4JJavaError) as error:
            if self._stays is None:
                raise
            log.warning("it goes on without following: %s", first_line(error))
            follower.stop()
            self._follower, self.succession.behind_rows = None, None
            self.driver.control.wake()  # or it would be told to go on from what has not followed
            return Stage.READY
        self.succession.batches = max(self.succession.batches, follower.actor.batches)
        return Stage.READY if follower.level else Stage.CATCHING_UP

    def _take_lease(self) -> Connection:
        """The running driver was fenced in the moment this one was told; it gives the lease back at its next commit."""
        self._at(Stage.TAKING_OVER)
        me = self.driver.work.identity
        while True:
            try:
                connection = connect(f"spillway {me.pipeline}/{me.application}")
                if acquire(connection, me, self.policy, every_s=_LEASE_S, give_up=self._follow_on):
                    return connection
                raise Withdrawn("it was overtaken before it held the lease")
            except psycopg2.OperationalError as error:
                log.warning("Postgres is away: %s", first_line(error))
                self._at(Stage.TAKING_OVER)
                self._follow_on()  # the one that runs may not have heard yet, and goes on
                time.sleep(0.5)

    def _follow_on(self) -> bool:
        """Called again and again while the lease is not there yet: what follows goes on following. Returns whether this one is no
        longer wanted."""
        if self._follower is not None and self._follower.actor.alive:
            with contextlib.suppress(FollowFailed, Py4JJavaError):
                self._follower.advance()
        gone = self.driver.signalled.is_set() or bool(self.driver.control.stop_reason)
        return gone or self.succession.told is Told.WITHDRAW

    def _align(self, prepared: dict[str, Prepared]) -> dict[str, Prepared]:
        """What is prepared, once the shadow is the checkpoint it was made to be. Where that fails, an ordinary start tries it
        again, and says why it cannot."""
        shadow = self._shadow
        self.driver.control.lead()
        if shadow is None:
            return prepared
        if self._stays is not None and self.succession.checkpoint == self._running.checkpoint:
            return {**prepared, shadow.operator.name: self._leave_shadow(shadow, self._stays)}
        try:
            aligned = align(shadow, self.driver.topics, self._follower)
        except Exception:
            log.exception("the shadow is aligned again")
            return {name: ready for name, ready in prepared.items() if name != self._shadowed}
        name = shadow.operator.name
        if not shadow.checkpoint.head().settled:  # a batch is left that has to be muted: that is part of the plan
            return {**prepared, name: shadow.prepare(self.driver.topics)}
        return {**prepared, name: replace(prepared[name], muted=aligned.repeated, running=aligned.running)}

    def _leave_shadow(self, shadow: OperatorQuery, stays: Prepared) -> Prepared:
        """What followed is not gone on from, because it could not repeat all that was done."""
        log.info("%s goes on from its checkpoint %d", shadow.operator.name, self._running.checkpoint)
        if self._follower is not None:
            self._follower.stop()
        self._left, shadow.state = shadow.checkpoint, self._running
        return stays

    def _clear(self) -> None:
        """Some time after it has taken over."""
        sweep_stragglers(self.driver.operators)
        if self._shadow is not None:
            sweep_late(self._shadow.checkpoint)
        if self._left is not None:
            self._left.remove()

    def _leave(self, stage: Stage, detail: str) -> None:
        """Removes what nobody will use."""
        self.succession.stage, self.succession.detail = stage, detail
        try:
            if self._follower is not None:
                self._follower.stop()
            sweep_scratch(self.driver.operators)
            # Where it may have been told to take over, the next driver goes on from what was made here.
            if self._shadow is not None and self.succession.given_up:
                self._shadow.checkpoint.remove()
        except Exception as error:
            log.warning("a copy of a checkpoint is left behind: %s", first_line(error))
        self.driver.writer.close()
        self.driver.control.close("stopped", detail)
