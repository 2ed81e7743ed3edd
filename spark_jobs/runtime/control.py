"""The driver's side of the control plane, all through Postgres: lease, heartbeat, orders, keep per edge, and what is reported.

One thread, one connection. It listens for changes and polls as well, since a notification can be lost with a connection. With
Postgres away the last known settings stay in force until their time to live ends; then the fallback each edge declares holds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg2
from spillway.model.settings import Effective, Setting, in_force
from spillway.model.topology import Edge
from spillway.policy import Policy

from spark_jobs.runtime.database import Connection, connect, run
from spark_jobs.runtime.orders import Actual, Orders
from spark_jobs.runtime.succession import Stage, Succession

log = logging.getLogger("spillway.control")

OVER = ("stopped", "failed", "fenced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    pipeline: str
    application: str
    generation: int
    version: int
    holder: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}")

    @property
    def key(self) -> dict[str, str | int]:
        return {
            "pipeline": self.pipeline,
            "application": self.application,
            "generation": self.generation,
            "holder": self.holder,
        }


class Fenced(Exception):
    """A newer generation of this application exists."""


def acquire(
    connection: Connection,
    me: Identity,
    policy: Policy,
    *,
    sleep: Callable[[float], None] = time.sleep,
    every_s: float = 0.5,
    give_up: Callable[[], bool] = lambda: False,
) -> bool:
    """Waits until the driver before this one is gone, then holds the lease. Raises `Fenced` when a newer generation has it; False
    when `give_up` said so first."""
    told = False
    while not give_up():
        taken, generation, holder, alive = run(connection, "job_lease_acquire", **me.key, fence_s=policy.fence_s)[0]
        if taken:
            return True
        if generation > me.generation or (generation == me.generation and holder != me.holder):
            raise Fenced(
                f"generation {generation} of {me.pipeline}/{me.application} is held by {holder}; this is {me.generation}"
            )
        if not told or every_s >= 0.5:
            log.info("waiting for generation %s (%s) to let go; alive: %s", generation, holder, alive)
            told = True
        sleep(every_s)
    return False


@dataclass(slots=True)
class Status:
    """What the heartbeat says; the driver writes it, the control thread sends it."""

    state: str = "starting"
    detail: str = ""
    spark_app: str | None = None
    ui: str | None = None
    metrics_dropped: int = 0
    executors: int | None = None
    """Registered with the driver."""


class Control(threading.Thread):
    """Runs until `close`. The driver looks at `stop_reason`, `orders` and `effective`; `news` is set when one of the first two
    has changed."""

    def __init__(
        self,
        me: Identity,
        edges: tuple[Edge, ...],
        policy: Policy,
        publish: Callable[[str, Effective], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        operators: tuple[str, ...] = (),
        succession: Succession | None = None,
    ) -> None:
        """`publish(edge, effective)` puts a changed keep in force. With a `succession` the driver holds no lease yet."""
        super().__init__(name="control", daemon=True)
        self._me, self._edges, self._policy, self._publish, self._clock = me, edges, policy, publish, clock
        self._operators, self._succession = operators, succession
        self._led: Succession | None = None
        """Its last word as a successor is still to be said."""
        self._settings: dict[str, tuple[Setting, float]] = {}
        self._events: deque[tuple[str, str, str]] = deque(maxlen=200)
        self._actuals: dict[str, Actual] = {}
        self._unsent: set[str] = set()
        self._closing, self._applying, self._reporting = threading.Event(), threading.Lock(), threading.Lock()
        self._wakes, self._woken = socket.socketpair()
        for end in (self._wakes, self._woken):
            end.setblocking(False)
        self._spare: Connection | None = None
        self.informed = threading.Event()
        """Set once the settings have been read and are in force."""
        self.news = threading.Event()
        self._renewed = self._clock()
        self.status = Status()
        self.effective: dict[str, Effective] = {e.name: Effective() for e in edges}
        self.orders: Orders | None = None
        self.stop_reason: str | None = None

    # -- what the driver calls

    def event(self, subject: str, kind: str, text: str) -> None:
        """Queues an event for Postgres; kept (the newest 200) while Postgres is away."""
        self._events.append((subject, kind, text.replace("\0", "")))

    def report(self, actual: Actual) -> None:
        """Queues what is run of an operator; the newest word counts. Nobody waits for it: a change of what is run is sent at
        once, how far it has got with the next heartbeat."""
        with self._reporting:
            before = self._actuals.get(actual.operator)
            self._actuals[actual.operator] = actual
            changed = before is None or before.run != actual.run
            if changed:
                self._unsent.add(actual.operator)
        if changed:
            self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already
            self._wakes.send(b"!")

    def lead(self) -> None:
        """The driver has taken the lease: from now on it is an ordinary one."""
        self._led, self._succession, self._renewed = self._succession, None, self._clock()
        self.wake()

    def prepare_release(self) -> None:
        """Called when the end is near: the lease is then given back without waiting for a connection."""
        try:
            self._spare = self._spare or connect(f"{self._connection_name()} release")
        except psycopg2.Error:
            log.warning("Postgres is away; the lease runs out by itself")

    def release(self) -> None:
        """The lease, at once. Called when nothing of this driver writes any more; it may have much to do after that."""
        self.prepare_release()
        if self._spare is None:
            return
        try:
            run(self._spare, "job_lease_release", **self._me.key)
        except psycopg2.Error:
            log.warning("Postgres is away; the lease runs out by itself")
        _close(self._spare)
        self._spare = None

    def close(self, state: str, detail: str = "") -> None:
        self.status.state, self.status.detail = state, detail
        self._closing.set()
        self.wake()
        self.join(8.0)

    def apply(self) -> None:
        """Puts in force what the settings and the clock say. The driver calls it too: a time to live ends although the thread
        waits for a Postgres that does not answer."""
        with self._applying:
            self._apply()

    def overdue(self) -> bool:
        return self._clock() - self._renewed > self._policy.lease_s

    # -- the thread

    def run(self) -> None:
        connection: Connection | None = None
        next_beat = next_retry = 0.0
        while not self._closing.is_set():
            now, led = self._clock(), self._succession is None
            try:
                if connection is None and now >= next_retry:
                    connection = self._connect()
                    next_beat = 0.0
                if connection is not None:
                    self._read_orders(connection)
                    if now >= next_beat:
                        self._beat(connection)
                        next_beat = now + self._policy.heartbeat_s
                    self._read_settings(connection)
                    self._send_reports(connection)
                    self._send_events(connection)
            # Whatever it is: a driver whose control thread ends would run on without a lease.
            except Exception as error:
                said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                log.warning(
                    "%s: %s", "Postgres is away" if isinstance(error, psycopg2.Error) else "the control thread stumbled", said
                )
                if self._events and not isinstance(error, psycopg2.OperationalError):
                    self._events.popleft()
                _close(connection)
                connection, next_retry = None, now + 1.0
            self.apply()
            if connection is not None:
                self.informed.set()
            if self.overdue() and not self.stop_reason:
                self._must_stop(f"the lease could not be renewed for {self._policy.lease_s:.0f} s")
            if led == (self._succession is None):
                self._wait(connection)
            else:
                next_beat = 0.0
        self._end(connection)

    def _end(self, connection: Connection | None) -> None:
        try:
            connection = connection or connect(self._connection_name())
            self._beat(connection)
            self._send_reports(connection)
            self._send_events(connection)
            if self.status.state in OVER and self._succession is None:
                run(connection, "job_lease_release", **self._me.key)
        except psycopg2.Error:
            log.warning("Postgres is away; the lease runs out by itself")
        _close(connection)

    def _must_stop(self, reason: str) -> None:
        self.stop_reason = reason
        self.news.set()

    def _connection_name(self) -> str:
        return f"spillway {self._me.pipeline}/{self._me.application}"

    def _connect(self) -> Connection:
        connection = connect(self._connection_name())
        with connection.cursor() as cursor:
            cursor.execute("listen spillway_setting; listen spillway_application")
        return connection

    def _read_orders(self, connection: Connection) -> None:
        """Before anything else: a driver that is to let go has others waiting for it."""
        if (succession := self._succession) is not None:
            if succession.read(connection, self._me.key):
                self._renewed = self._clock()
                self.news.set()
            return
        found = run(
            connection,
            "job_orders",
            pipeline=self._me.pipeline,
            application=self._me.application,
            operators=list(self._operators),
        )
        if not found:
            self._must_stop("the application is no longer declared")
            return
        orders = Orders.from_row(*found[0])
        if (reason := orders.end(self._me.generation)) and reason != self.stop_reason:
            self._must_stop(reason)
        if orders != self.orders:
            self.orders = orders
            self.news.set()

    def _beat(self, connection: Connection) -> None:
        if (succession := self._succession) is not None:
            succession.say(connection, self._me.key, self.status.spark_app)
            self._renewed = self._clock()
            return
        if (led := self._led) is not None:
            led.stage, led.detail = Stage.RUNNING, ""
            led.say(connection, self._me.key, self.status.spark_app)
            self._led = None
        held, generation, _ = run(connection, "job_lease_renew", **self._me.key)[0]
        self._renewed = self._clock()
        if not held and generation is not None and not self.stop_reason:
            self._must_stop(f"fenced: generation {generation} exists, this is {self._me.generation}")
        status = self.status
        run(
            connection,
            "job_heartbeat",
            **self._me.key,
            state="fenced" if (self.stop_reason or "").startswith("fenced") and status.state != "stopped" else status.state,
            host=socket.gethostname(),
            pid=os.getpid(),
            spark_app=status.spark_app,
            ui=status.ui,
            version=self._me.version,
            metrics_dropped=status.metrics_dropped,
            detail=status.detail.replace("\0", "")[:500],
            executors=status.executors,
        )
        with self._reporting:
            self._unsent.update(self._actuals)

    def _read_settings(self, connection: Connection) -> None:
        read_at = self._clock()
        fresh: dict[str, tuple[Setting, float]] = {}
        for edge, keep, decision, remaining in run(connection, "job_settings", pipeline=self._me.pipeline):
            left = None if remaining is None else float(remaining)
            fresh[edge] = (Setting(keep=float(keep), decision_id=decision, remaining_s=left), read_at)
        self._settings = fresh

    def _send_reports(self, connection: Connection) -> None:
        if self._succession is not None:
            return
        with self._reporting:
            unsent = [self._actuals[name] for name in sorted(self._unsent)]
            self._unsent.clear()
        me = {"pipeline": self._me.pipeline, "application": self._me.application, "generation": self._me.generation}
        try:
            while unsent:
                run(connection, "job_operator_actual", **me, **unsent[0].parameters())
                unsent.pop(0)
        finally:
            with self._reporting:
                self._unsent.update(actual.operator for actual in unsent)

    def _send_events(self, connection: Connection) -> None:
        while self._events:
            subject, kind, text = self._events[0]
            run(connection, "job_event", actor="driver", pipeline=self._me.pipeline, subject=subject, kind=kind, text=text)
            self._events.popleft()

    def _apply(self) -> None:
        for edge in self._edges:
            setting, read_at = self._settings.get(edge.name, (None, 0.0))
            new = in_force(setting, edge.when_silent, age_s=self._clock() - read_at)
            old = self.effective[edge.name]
            if new != old:
                self._publish(edge.name, new)
                self.effective = {**self.effective, edge.name: new}
                if new.source in ("held", "open") and new.source != old.source and self._succession is None:
                    self.event(
                        edge.name,
                        "fallback",
                        f"keep of {edge.name} outlived its time to live; "
                        f"the declared fallback '{edge.when_silent}' holds: keep {new.keep:g}",
                    )

    def _wait(self, connection: Connection | None) -> None:
        """Until something is heard from Postgres or from the driver, at most one poll."""
        listening: list[Any] = [self._woken] if connection is None else [connection, self._woken]
        try:
            heard = select.select(listening, [], [], self._policy.setting_poll_s)[0]
            if self._woken in heard:
                self._woken.recv(4096)
            if connection is not None and connection in heard:
                connection.poll()
                connection.notifies.clear()
        except (psycopg2.Error, OSError, ValueError):
            self._closing.wait(self._policy.setting_poll_s)


def _close(connection: Connection | None) -> None:
    if connection is not None and not connection.closed:
        connection.close()
