"""Keeps the query of one operator alive, restarts it when told, and says what it really runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_jobs.runtime.control import Control
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.operator import OperatorQuery, Prepared
from spark_jobs.runtime.orders import Actual, OperatorOrder, Phase
from spark_jobs.runtime.settle import Unsupported, refuses, settle
from spark_jobs.runtime.topics import Topics

log = logging.getLogger("spillway.keeper")

CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")
"""How Spark says that somebody else has planned or committed the same batch."""
_RESTARTS = 5
"""Restarts of a query inside the driver, without a batch in between, before the driver gives up and is started anew."""
_ANEW_IDLE_S = 5.0
"""A query that followed another one ends no window while nothing arrives. Where that matters it is started anew once nothing has
arrived for so long: then nobody feels it."""
_DRAIN_S = 60.0
"""A batch in flight may take this long to commit before the query is stopped inside it."""


class LostToAnother(RuntimeError):
    """Another driver writes the checkpoint."""


@dataclass(slots=True)
class _Word:
    """What is reported of the operator, beside what its query says itself."""

    phase: Phase = Phase.STARTING
    stopped_batch: int | None = None
    stopped_at: datetime | None = None
    detail: str = ""


class Keeper:
    def __init__(
        self, query: OperatorQuery, topics: Topics, control: Control, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.query, self._topics, self._control, self._clock = query, topics, control, clock
        self._failures, self._retry_at = 0, 0.0
        self._word = _Word()
        self._refused = -1
        """The newest incarnation that could not be carried out."""
        self._put_offs, self._not_before = 0, 0.0
        """How often a restart could not be prepared, and when it is tried again."""
        self._anew, self._idle_since = False, 0.0
        """Whether the query is started anew as it is when it has nothing to do, and since when it has not."""
        self._shift: threading.Thread | None = None
        self._trouble: str | None = None
        """Why the last restart did not come to its end."""
        self._ending = threading.Event()

    @property
    def name(self) -> str:
        return self.query.operator.name

    @property
    def busy(self) -> bool:
        """A restart is under way; until it ends nobody else touches the query."""
        return self._shift is not None and self._shift.is_alive()

    # -- what the driver calls

    def prepare(self) -> Prepared:
        return self.query.prepare(self._topics)

    def start(self, prepared: Prepared | None = None) -> None:
        """From whatever was left in the checkpoint."""
        self._say(Phase.STARTING)
        try:
            settle(self.query, self._topics, self._say)
        except Unsupported as error:
            self._go_on_as_it_is(error)
            prepared = None
        self.query.start(self._topics, prepared)
        if prepared is not None and prepared.running is not None and prepared.watermarked:
            self._anew, self._idle_since = True, self._clock()
        found = self.query.found.committed
        if found >= 0:
            self._word.stopped_batch, self._word.stopped_at = found, self.query.checkpoint.committed_at(found)
        self._say(Phase.STARTING)

    def look(self, order: OperatorOrder | None) -> None:
        """One look at the query. Raises when it cannot be kept alive."""
        if self.busy:
            return
        if self.query.collect():
            self._failures, self._idle_since = 0, self._clock()
        if (trouble := self._trouble) is not None:
            self._trouble = None
            self._failed(trouble)
        elif self.query.alive:
            if self._clock() < self._not_before:
                self._say(self._word.phase, self._word.detail)
            elif order is not None and self._is_new(order):
                self._begin_restart(order)
            elif self._anew and self._idle:
                state = self.query.state
                as_it_is = OperatorOrder(checkpoint=state.checkpoint, buckets=state.buckets, incarnation=state.incarnation)
                self._begin_restart(as_it_is)
            elif self._word.phase is Phase.STARTING and self.query.working:
                self._say(Phase.RUNNING)
            else:
                self._say(self._word.phase, self._word.detail)
        elif self._retry_at == 0.0:
            self._failed(self.query.failure())
        elif self._clock() >= self._retry_at:
            self._try_again(order)

    @property
    def _idle(self) -> bool:
        return not self.query.in_flight and self._clock() - self._idle_since > _ANEW_IDLE_S

    def _is_new(self, order: OperatorOrder) -> bool:
        state = self.query.state
        return order.checkpoint == state.checkpoint and order.incarnation > max(state.incarnation, self._refused)

    def end(self, until: float) -> None:
        """No restart is begun any more; one that is under way comes to a point where it can be left."""
        self._ending.set()
        if self._shift is not None and self._shift.is_alive():
            self.query.spark.sparkContext.cancelJobGroup(self._group)
            self._shift.join(max(0.1, until - self._clock()))

    def stopping(self) -> None:
        self._say(Phase.STOPPING)

    def stopped(self, batch: int) -> None:
        self._word.stopped_batch, self._word.stopped_at = batch, datetime.now(UTC)
        self._say(Phase.STOPPED)

    # -- restarts

    @property
    def _group(self) -> str:
        return f"spillway-restart-{self.name}"

    def _begin_restart(self, order: OperatorOrder) -> None:
        self._anew = False
        self._shift = threading.Thread(target=self._restart, args=(order,), name=f"restart-{self.name}", daemon=True)
        self._shift.start()

    def _restart(self, order: OperatorOrder) -> None:
        """Everything that can be done while the old query runs is done before it is stopped: what lies between is the pause."""
        query = self.query
        state = replace(query.state, buckets=order.buckets, incarnation=order.incarnation)
        try:
            query.spark.sparkContext.setJobGroup(self._group, f"restart of {self.name}", interruptOnCancel=True)
            if reason := refuses(query, order.buckets):
                raise Unsupported(reason)
            prepared = query.prepare(self._topics, state)
        except Unsupported as error:
            # The old query is untouched and goes on.
            self._refused = order.incarnation
            self._say(Phase.FAILED, f"incarnation {order.incarnation} was refused: {first_line(error)}")
            self._control.event(self.name, "restart_refused", f"{self.name} goes on as it was: {first_line(error)}")
            return
        except Exception as error:
            self._put_off(order, error)
            return
        self._put_offs = 0
        if self._ending.is_set():
            return
        try:
            self._say(Phase.STOPPING)
            rest = query.rest(_DRAIN_S)
            self.stopped(rest.batch_id)
            query.state = state
            settle(query, self._topics, self._say)
            if self._ending.is_set():
                return
            query.start(self._topics, prepared)
            self._say(Phase.STARTING)
            text = f"{self.name} was started again from batch {rest.batch_id}, with {order.buckets} buckets"
            self._control.event(self.name, "query_restarted", text)
        except Exception as error:
            log.exception("%s did not start again", self.name)
            self._trouble = first_line(error)

    def _put_off(self, order: OperatorOrder, error: Exception) -> None:
        """Something is away that a start needs, as Kafka: the old query is untouched and goes on, and the order stands."""
        self._put_offs += 1
        self._not_before = self._clock() + patience_s(self._put_offs)
        if order.incarnation == self.query.state.incarnation:
            self._anew, self._idle_since = True, self._clock()
        log.warning("%s is not started again yet: %s", self.name, first_line(error))
        self._say(self._word.phase, f"incarnation {order.incarnation} waits: {first_line(error)}")

    def _go_on_as_it_is(self, error: Unsupported) -> None:
        """A stream whose state cannot be changed is better than none."""
        query, checkpoint = self.query, self.query.checkpoint
        lies_in = checkpoint.buckets(checkpoint.last_commit())
        log.error("%s keeps its %s buckets: %s", self.name, lies_in, error)
        self._control.event(self.name, "restart_refused", f"{self.name} keeps its {lies_in} buckets: {error}")
        self._refused = query.state.incarnation
        query.state = replace(query.state, buckets=lies_in or query.state.buckets)

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if any(sign in reason for sign in CONCURRENT):
            raise LostToAnother(f"another driver writes the checkpoint of {self.name}")
        self._say(Phase.FAILED, reason)
        if self._failures > _RESTARTS:
            raise RuntimeError(f"{self.name} failed {self._failures} times in a row: {reason}")
        self._control.event(self.name, "query_failed", f"{self.name} stopped ({reason}); it starts again from its checkpoint")
        log.warning("%s stopped: %s", self.name, reason)
        self._retry_at = self._clock() + patience_s(self._failures)

    def _try_again(self, order: OperatorOrder | None) -> None:
        if order is not None and order.incarnation > self.query.state.incarnation:
            self.query.state = replace(self.query.state, buckets=order.buckets, incarnation=order.incarnation)
        try:
            self.start()
            self._retry_at = 0.0
        # Kafka may be away: that is one more failure of this operator, and none of the others.
        except Exception as error:
            self._failures += 1
            if self._failures > _RESTARTS:
                raise
            log.warning("%s did not start again: %s", self.name, error)
            self._say(Phase.FAILED, first_line(error))
            self._retry_at = self._clock() + patience_s(self._failures)

    # -- reports

    def _say(self, phase: Phase, detail: str = "") -> None:
        self._word.phase, self._word.detail = phase, detail
        query, word = self.query, self._word
        batch, offsets = query.position
        self._control.report(
            Actual(
                operator=self.name,
                checkpoint=query.state.checkpoint,
                buckets=query.state.buckets,
                incarnation=query.state.incarnation,
                phase=phase,
                batch_id=batch if batch >= 0 else None,
                offsets=offsets,
                stopped_batch=word.stopped_batch,
                stopped_at=word.stopped_at,
                started_at=query.started_at,
                detail=detail,
            )
        )


def patience_s(failures: int) -> float:
    """How long a failed query waits before it is started again.

    >>> [patience_s(n) for n in (1, 2, 9)]
    [1.0, 2.0, 30.0]
    """
    return min(30.0, 2.0**failures / 2)
