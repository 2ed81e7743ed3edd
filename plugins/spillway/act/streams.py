"""Brings the drivers that run to what is declared: observe, plan, carry out; one pass per call.

Every launch is an intent first (a transaction that raises the generation), then a submission, then a record of its handle.
A crash after any of the three leaves what the next pass heals: an intent without a driver is launched anew, a driver without a
record is found by its name.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spillway.act.launch import Launcher, LauncherUnreachable, LaunchRefused, LaunchSpec, Sighting, parse_name
from spillway.act.moves import advance
from spillway.decide.streams import (
    Actual,
    DesiredApplication,
    DriverStatus,
    Heartbeat,
    Kind,
    Reason,
    Stray,
    StreamAction,
    plan_streams,
)
from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.store.errors import Refused
from spillway.store.queries import execute, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

LOCK = "spillway.streams"
CONFIRM_S = 8.0
TOLD_ONCE = (Reason.LAUNCHER_UNREACHABLE, Reason.BACKING_OFF, Reason.WAITING_FOR_RESOURCES, Reason.SUBMISSION_UNCERTAIN)
"""Reasons to wait that a person wants to hear of."""


class StreamsFailed(RuntimeError):
    """What could not be done in this pass; all of it is recorded, and tried again in the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    store: str
    up_since: datetime
    now: datetime


def converge(conn: Connection, launcher: Launcher, policy: Policy, *, now: datetime | None = None) -> tuple[StreamAction, ...]:
    """One pass. Heartbeats are dated by the store, so without `now` its clock counts. StreamsFailed comes last, if at all."""
    if not _lock(conn):
        return ()
    try:
        store = Store(**(row(conn, "streams_store") or {}))
        now = now or store.now
        advance(conn, policy, now)
        desired = [DesiredApplication(**r) for r in rows(conn, "streams_desired")]
        actual = observe(conn, launcher, desired, store)
        conn.commit()
        actions = plan_streams(desired, actual, now, policy)
        _carry_out_all(conn, launcher, actions, store.store, now)
        return actions
    finally:
        _unlock(conn)


def observe(conn: Connection, launcher: Launcher, desired: Sequence[DesiredApplication], store: Store) -> Actual:
    try:
        sighting, reachable = launcher.find(store.store), True
    except LauncherUnreachable:
        sighting, reachable = Sighting(), False
    drivers = {}
    for application in desired:
        if reachable and application.handle is not None and application.launcher == launcher.name:
            drivers[application.key] = launcher.status(application.handle)
    strays = [
        Stray(pipeline=name[0], application=name[1], generation=name[2], handle=found.handle)
        for found in sighting.found
        if (name := parse_name(found.name))
    ]
    return Actual(
        reachable=reachable and DriverStatus.UNREACHABLE not in drivers.values(),
        store_up_since=store.up_since,
        heartbeats={
            (r["pipeline"], r["application"], r["generation"]): Heartbeat(
                **{k: v for k, v in r.items() if k not in ("pipeline", "application")}
            )
            for r in rows(conn, "streams_heartbeats")
        },
        drivers=drivers,
        strays=tuple(strays),
        unidentified=sighting.unidentified,
    )


def _carry_out_all(conn: Connection, launcher: Launcher, actions: Sequence[StreamAction], store: str, now: datetime) -> None:
    failures = []
    for action in actions:
        try:
            carry_out(conn, launcher, action, store, now)
        except (LaunchRefused, LauncherUnreachable, Refused) as error:
            conn.rollback()
            _tell(conn, action, "failed", f"{action.words} That failed: {error}")
            conn.commit()
            failures.append(str(error))
    if failures:
        raise StreamsFailed(" ".join(failures))


def carry_out(conn: Connection, launcher: Launcher, action: StreamAction, store: str, now: datetime) -> None:
    """Does one action and writes down what it did; safe to do again."""
    who = {"pipeline": action.pipeline, "application": action.application}
    if action.release is not None:
        execute(conn, "streams_release", **who, generation=action.release, now=now, why="its process has ended")
    if action.kind is Kind.WAIT and action.reason in TOLD_ONCE:
        execute(conn, "streams_event_once", **who, kind=action.reason, text=action.words)
    elif action.kind is Kind.KILL:
        _kill(conn, launcher, action)
    elif action.kind is Kind.ADOPT:
        execute(conn, "streams_handle", **who, generation=action.generation, handle=action.handle, launcher=launcher.name)
        _tell(conn, action, "adopted", action.words)
    elif action.kind is Kind.SETTLE:
        execute(conn, "streams_settle", **who)
        _tell(conn, action, "healthy", action.words)
    elif action.kind.launches:
        _launch(conn, launcher, action, store, now)
    conn.commit()


def _kill(conn: Connection, launcher: Launcher, action: StreamAction) -> bool:
    """True when the driver is known to be gone."""
    if action.handle is None:
        return False
    launcher.kill(action.handle)
    gone = _confirm(launcher, action.handle)
    _tell(
        conn,
        action,
        "killed" if gone else "kill_pending",
        action.words if gone else f"{action.words} Its end is not confirmed yet.",
    )
    return gone


def _confirm(launcher: Launcher, handle: str) -> bool:
    give_up = time.monotonic() + CONFIRM_S
    while True:
        status = launcher.status(handle)
        if status.dead or status is DriverStatus.UNKNOWN:
            return True
        if status is DriverStatus.UNREACHABLE or time.monotonic() >= give_up:
            return False
        time.sleep(0.25)


def _launch(conn: Connection, launcher: Launcher, action: StreamAction, store: str, now: datetime) -> None:
    who = {"pipeline": action.pipeline, "application": action.application}
    if action.kind is Kind.KILL_THEN_START:
        if _kill(conn, launcher, action):
            execute(conn, "streams_release", **who, generation=action.replaces, now=now, why="it was silent, and was killed")
        elif not action.regardless:
            return
    spec = launch_spec(conn, action.pipeline, action.application, action.generation or 1, store)
    intended = execute(
        conn, "streams_intend", **who, generation=action.generation, replaces=action.replaces, launcher=launcher.name, now=now,
        attempts=action.attempts,
    )  # fmt: skip
    conn.commit()
    if not intended:
        return
    handle = launcher.submit(spec)
    execute(conn, "streams_handle", **who, generation=action.generation, handle=handle, launcher=launcher.name)
    _tell(conn, action, "started" if action.kind is Kind.START else "restarted", action.words)


def launch_spec(conn: Connection, pipeline: str, application: str, generation: int, store: str) -> LaunchSpec:
    """As it should run now, by its row and its topology."""
    found = row(conn, "streams_spec", pipeline=pipeline, application=application)
    if found is None:
        raise Refused(f"{pipeline}/{application} is no longer declared: nothing to launch.")
    spec = Pipeline.from_json(found["spec"])
    declared = next((a for a in spec.applications if a.name == application), None)
    if declared is None:
        raise Refused(f"{pipeline} has no application {application} in its version in force: apply the topology again.")
    return LaunchSpec(
        pipeline=pipeline,
        application=application,
        generation=generation,
        store=store,
        node=found["node"],
        executors=found["executors"],
        max_executors=max([found["executors"], *(spec.operator(name).parallelism.max for name in declared.operators)]),
        slots=declared.slots,
        driver_memory_mb=declared.driver_memory_mb,
        executor_memory_mb=declared.executor_memory_mb,
        conf=declared.conf,
    )


def _tell(conn: Connection, action: StreamAction, kind: str, text: str) -> None:
    execute(conn, "streams_event", pipeline=action.pipeline, application=action.application, kind=kind, text=text)


def _lock(conn: Connection) -> bool:
    with conn.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(hashtext(%s))", (LOCK,))
        held = cursor.fetchone()
    conn.commit()
    return bool(held and held[0])


def _unlock(conn: Connection) -> None:
    if conn.closed:  # then the lock went with the session
        return
    conn.rollback()
    with conn.cursor() as cursor:
        cursor.execute("select pg_advisory_unlock(hashtext(%s))", (LOCK,))
    conn.commit()
