"""The driver's side of the control plane, all through Postgres: lease, heartbeat, desired state, keep per edge.

One thread, one connection. It listens for changes and polls as well, since a notification can be lost with a connection. With
Postgres away the last known settings stay in force until their time to live ends; then the fallback each edge declares holds.
"""

from __future__ import annotations

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

import psycopg2
from spillway.model.settings import Effective, Setting, in_force
from spillway.model.topology import Edge
from spillway.policy import Policy

from spark_jobs.runtime.database import Connection, connect, run

log = logging.getLogger("spillway.control")


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


def acquire(connection: Connection, me: Identity, policy: Policy, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Waits until the driver before this one is gone, then holds the lease. Raises `Fenced` when a newer generation has it."""
    while True:
        taken, generation, holder, alive = run(connection, "job_lease_acquire", **me.key, fence_s=policy.fence_s)[0]
        if taken:
            return
        if generation > me.generation or (generation == me.generation and holder != me.holder):
            raise Fenced(
                f"generation {generation} of {me.pipeline}/{me.application} is held by {holder}; this is {me.generation}"
            )
        log.info("waiting for generation %s (%s) to let go; alive: %s", generation, holder, alive)
        sleep(0.5)


@dataclass(slots=True)
class Status:
    """What the heartbeat says; the driver writes it, the control thread sends it."""

    state: str = "starting"
    detail: str = ""
    spark_app: str | None = None
    ui: str | None = None
    metrics_dropped: int = 0


class Control(threading.Thread):
    """Runs until `close`. The driver looks at `stop_reason` and `effective`."""

    def __init__(
        self,
        me: Identity,
        edges: tuple[Edge, ...],
        policy: Policy,
        publish: Callable[[str, Effective], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`publish(edge, effective)` puts a changed keep in force."""
        super().__init__(name="control", daemon=True)
        self._me, self._edges, self._policy, self._publish, self._clock = me, edges, policy, publish, clock
        self._settings: dict[str, tuple[Setting, float]] = {}
        self._events: deque[tuple[str, str, str]] = deque(maxlen=200)
        self._closing, self._applying = threading.Event(), threading.Lock()
        self.informed = threading.Event()
        """Set once the settings have been read and are in force."""
        self._renewed = self._clock()
        self.status = Status()
        self.effective: dict[str, Effective] = {e.name: Effective() for e in edges}
        self.stop_reason: str | None = None

    # -- what the driver calls

    def event(self, subject: str, kind: str, text: str) -> None:
        """Queues an event for Postgres; kept (the newest 200) while Postgres is away."""
        self._events.append((subject, kind, text.replace("\0", "")))

    def close(self, state: str, detail: str = "") -> None:
        self.status.state, self.status.detail = state, detail
        self._closing.set()
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
            now = self._clock()
            try:
                if connection is None and now >= next_retry:
                    connection = self._connect()
                    next_beat = 0.0
                if connection is not None:
                    if now >= next_beat:
                        self._beat(connection)
                        next_beat = now + self._policy.heartbeat_s
                    self._read_settings(connection)
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
                self.stop_reason = f"the lease could not be renewed for {self._policy.lease_s:.0f} s"
            self._wait(connection)
        try:
            connection = connection or connect(self._connection_name())
            self._beat(connection)
            self._send_events(connection)
            if self.status.state in ("stopped", "failed", "fenced"):
                run(connection, "job_lease_release", **self._me.key)
        except psycopg2.Error:
            log.warning("Postgres is away; the lease runs out by itself")
        _close(connection)

    def _connection_name(self) -> str:
        return f"spillway {self._me.pipeline}/{self._me.application}"

    def _connect(self) -> Connection:
        connection = connect(self._connection_name())
        with connection.cursor() as cursor:
            cursor.execute("listen spillway_setting; listen spillway_application")
        return connection

    def _beat(self, connection: Connection) -> None:
        held, generation, desired = run(connection, "job_lease_renew", **self._me.key)[0]
        self._renewed = self._clock()
        if generation is None:
            self.stop_reason = "the application is no longer declared"
        elif generation > self._me.generation or not held:
            self.stop_reason = f"fenced: generation {generation} exists, this is {self._me.generation}"
        elif desired == "stopped":
            self.stop_reason = "asked to stop"
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
        )

    def _read_settings(self, connection: Connection) -> None:
        read_at = self._clock()
        fresh: dict[str, tuple[Setting, float]] = {}
        for edge, keep, decision, remaining in run(connection, "job_settings", pipeline=self._me.pipeline):
            left = None if remaining is None else float(remaining)
            fresh[edge] = (Setting(keep=float(keep), decision_id=decision, remaining_s=left), read_at)
        self._settings = fresh

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
                if new.source in ("held", "open") and new.source != old.source:
                    self.event(
                        edge.name,
                        "fallback",
                        f"keep of {edge.name} outlived its time to live; "
                        f"the declared fallback '{edge.when_silent}' holds: keep {new.keep:g}",
                    )

    def _wait(self, connection: Connection | None) -> None:
        if connection is None:
            self._closing.wait(self._policy.setting_poll_s)
            return
        try:
            if select.select([connection], [], [], self._policy.setting_poll_s)[0]:
                connection.poll()
                connection.notifies.clear()
        except (psycopg2.Error, OSError, ValueError):
            self._closing.wait(self._policy.setting_poll_s)


def _close(connection: Connection | None) -> None:
    if connection is not None and not connection.closed:
        connection.close()
