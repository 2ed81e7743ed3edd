"""Which applications to start, restart, stop, kill or adopt, so that what runs becomes what is declared.

`plan_streams` is called every few seconds with everything that is known, and mostly answers "nothing". It never asks for
two launches of one application in one pass, and planned again on the state its actions lead to, it asks for nothing new.

A new version is brought in by launching the next generation beside the running one, not by stopping first: a driver that sees a
newer generation finishes its batch and stops, and its successor waits for the lease, so the start-up of the new JVM does not
add to the pause, and a crash of whoever converges, at any point, leaves a state the next pass completes.

A driver that rehearses to take over (`spillway.act.rescale`) carries the generation after the present one and is no stray. If the
one that runs dies before that, it is replaced as ever, under a generation that is newer than both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from spillway.policy import Policy


class DriverStatus(StrEnum):
    """What a launcher says of a driver it started."""

    PENDING = "pending"
    """Accepted, and waits for a place to run."""
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The launcher answers and does not know this handle (a cluster that was set up anew)."""
    UNREACHABLE = "unreachable"

    @property
    def dead(self) -> bool:
        return self in (DriverStatus.FINISHED, DriverStatus.FAILED)


class Kind(StrEnum):
    START = "start"
    RESTART = "restart"
    KILL_THEN_START = "kill_then_start"
    KILL = "kill"
    ADOPT = "adopt"
    SETTLE = "settle"
    """Healthy: the count of attempts goes back to zero."""
    WAIT = "wait"
    NOTHING = "nothing"

    @property
    def launches(self) -> bool:
        return self in (Kind.START, Kind.RESTART, Kind.KILL_THEN_START)


class Reason(StrEnum):
    NEVER_LAUNCHED = "never_launched"
    WAS_STOPPED = "was_stopped"
    DRIVER_DIED = "driver_died"
    DRIVER_LOST = "driver_lost"
    VERSION_CHANGED = "version_changed"
    NODE_CHANGED = "node_changed"
    NO_HEARTBEAT_AFTER_START = "no_heartbeat_after_start"
    HEARTBEAT_STALE = "heartbeat_stale"
    SUBMISSION_LOST = "submission_lost"
    SUBMISSION_FOUND = "submission_found"
    SUBMISSION_UNCERTAIN = "submission_uncertain"
    SUPERSEDED = "superseded"
    UNDECLARED = "undeclared"
    STOP_OVERDUE = "stop_overdue"
    STOPPED_BEFORE_START = "stopped_before_start"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    WAITING_FOR_RESOURCES = "waiting_for_resources"
    BACKING_OFF = "backing_off"
    LAUNCHER_UNREACHABLE = "launcher_unreachable"
    HEALTHY = "healthy"
    HEALTHY_AGAIN = "healthy_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredApplication:
    """One row of `spillway.application`, with when its `desired` last changed."""

    pipeline: str
    application: str
    running: bool
    desired_since: datetime
    version: int
    generation: int = 0
    node: str | None = None
    executors: int = 1
    launcher: str | None = None
    handle: str | None = None
    launched_at: datetime | None = None
    attempts: int = 0
    moved: bool = False
    """Its node is another one than it was launched on."""
    planned: bool = False
    """A plan changes it: whoever carries out the plan decides where it runs."""
    successor: int | None = None
    """The generation that a driver was launched with to take over from it; never given to another one."""
    successor_handle: str | None = None
    rehearses: bool = False
    """The plan of that successor is open, and whether it goes on is the plan's business."""

    @property
    def key(self) -> tuple[str, str]:
        return self.pipeline, self.application

    @property
    def next_generation(self) -> int:
        return max(self.generation, self.successor or 0) + 1

    @property
    def elsewhere(self) -> bool:
        """It has to be launched on another node, and nobody else sees to that."""
        return self.moved and not self.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    generation: int
    state: str
    at: datetime
    started_at: datetime
    version: int | None = None

    @property
    def over(self) -> bool:
        return self.state in ("stopped", "failed", "fenced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A live driver found by its name, whatever the store says about it."""

    pipeline: str
    application: str
    generation: int
    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What is, at one moment: `heartbeats` from the store, the rest from the launcher; `unidentified` counts live submissions
    whose name cannot be told yet."""

    reachable: bool = True
    store_up_since: datetime | None = None
    heartbeats: dict[tuple[str, str, int], Heartbeat] = field(default_factory=dict)
    drivers: dict[tuple[str, str], DriverStatus] = field(default_factory=dict)
    strays: tuple[Stray, ...] = ()
    unidentified: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAction:
    kind: Kind
    pipeline: str
    application: str
    reason: Reason
    words: str
    handle: str | None = None
    """What to kill or adopt."""
    generation: int | None = None
    """The generation to launch or adopt."""
    replaces: int = 0
    """The generation that was the newest when this was planned."""
    attempts: int = 0
    """The count to record with a launch."""
    release: int | None = None
    """This generation is known to be dead: its lease and its heartbeat are to say so."""
    regardless: bool = False
    """Launch even when the kill cannot be confirmed: the older one has been silent so long that fencing has to do."""


def plan_streams(
    desired: Iterable[DesiredApplication], actual: Actual, now: datetime, policy: Policy
) -> tuple[StreamAction, ...]:
    """One action per application, and one per stray driver; kills first.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> taxi = DesiredApplication(pipeline="taxi", application="heavy", running=True, desired_since=noon, version=3)
    >>> [action] = plan_streams([taxi], Actual(), noon, Policy())
    >>> str(action.kind), action.generation, action.words
    ('start', 1, 'taxi/heavy should run and was never launched: starting generation 1.')
    """
    rows = list(desired)
    known = {row.key: row for row in rows}
    kills = [_stray(stray, known.get((stray.pipeline, stray.application)), now, policy) for stray in actual.strays]
    actions = [action for action in kills if action is not None]
    actions += [(_run if row.running else _stop)(row, actual, now, policy) for row in rows]
    return tuple(sorted(actions, key=lambda a: (a.kind is not Kind.KILL, a.pipeline, a.application)))


def _stray(stray: Stray, row: DesiredApplication | None, now: datetime, policy: Policy) -> StreamAction | None:
    name = f"{stray.pipeline}/{stray.application} generation {stray.generation}"
    if row is None:
        reason, words = Reason.UNDECLARED, f"{name} runs and is declared nowhere: killing it."
    elif stray.handle == row.handle:
        return None
    elif row.rehearses and stray.generation == row.successor and row.successor_handle in (None, stray.handle):
        return None  # it takes over when its plan says so
    elif stray.generation == row.generation and row.handle is None:
        if row.running:
            return None  # adopted below
        reason, words = Reason.SUPERSEDED, f"{name} runs unrecorded and should be stopped: killing it."
    elif stray.generation < row.generation and row.launched_at and _age(row.launched_at, now) <= policy.stop_timeout_s:
        return None  # it has been told by the newer generation and may finish its batch
    else:
        reason, words = Reason.SUPERSEDED, f"{name} still runs beside generation {row.generation}: killing it."
    return StreamAction(
        kind=Kind.KILL, pipeline=stray.pipeline, application=stray.application, reason=reason, words=words, handle=stray.handle
    )


def _run(row: DesiredApplication, actual: Actual, now: datetime, policy: Policy) -> StreamAction:
    name = f"{row.pipeline}/{row.application}"
    beat = actual.heartbeats.get((*row.key, row.generation))
    status = _status(row, actual)
    silent = _silence_s(beat, row, actual, now)
    fresh = beat is not None and not beat.over and silent <= policy.silent_s
    healthy = beat is not None and _age(beat.started_at, beat.at) >= policy.healthy_s
    attempts = 0 if healthy else row.attempts

    def launch(kind: Kind, reason: Reason, why: str, *, dead: bool = False, regardless: bool = False) -> StreamAction:
        return _launch(row, kind, reason, why, attempts=attempts, now=now, policy=policy, dead=dead, regardless=regardless)

    if fresh and beat is not None and beat.version in (None, row.version) and not row.elsewhere and not status.dead:
        if row.handle is None and (found := _found(row, actual)):
            return _adopt(row, found)
        if healthy and row.attempts > 0:
            again = row.attempts > 1  # one attempt is the launch itself
            words = f"{name} generation {row.generation} runs and is healthy{' again' if again else ''}."
            return _say(row, Kind.SETTLE, Reason.HEALTHY_AGAIN if again else Reason.HEALTHY, words)
        return _say(row, Kind.NOTHING, Reason.HEALTHY, f"{name} generation {row.generation} runs version {row.version}.")
    if status is DriverStatus.UNREACHABLE:
        return _say(
            row, Kind.WAIT, Reason.LAUNCHER_UNREACHABLE,
            f"{name} needs the cluster, which does not answer: waiting, so that nothing is launched twice.",
        )  # fmt: skip
    if row.generation == 0 or row.launched_at is None:
        return launch(Kind.START, Reason.NEVER_LAUNCHED, "should run and was never launched: starting")
    since_launch = _age(row.launched_at, now)
    if fresh and beat is not None and not status.dead and row.elsewhere:
        return launch(Kind.RESTART, Reason.NODE_CHANGED, f"should run on {row.node or 'any node'}: handing over to")
    if fresh and beat is not None and not status.dead:
        why = f"runs version {beat.version} and version {row.version} is declared: handing over to"
        return launch(Kind.RESTART, Reason.VERSION_CHANGED, why)
    if row.handle is None:
        if found := _found(row, actual):
            return _adopt(row, found)
        if beat is None and (
            since_launch <= policy.backoff_first_s or (actual.unidentified and since_launch <= policy.launch_timeout_s)
        ):
            return _say(
                row, Kind.WAIT, Reason.SUBMISSION_UNCERTAIN,
                f"{name} generation {row.generation} was about to be submitted and is not seen yet: waiting for it to show.",
            )  # fmt: skip
        return launch(Kind.START, Reason.SUBMISSION_LOST, f"generation {row.generation} was never seen to start: starting")
    over = status.dead or (status is DriverStatus.UNKNOWN and silent > policy.silent_s)
    if over and beat is not None and beat.state == "stopped":
        return launch(Kind.START, Reason.WAS_STOPPED, "was stopped: starting", dead=status.dead)
    if status.dead:
        return launch(Kind.RESTART, Reason.DRIVER_DIED, f"generation {row.generation} has ended ({status}): starting", dead=True)
    if row.elsewhere and status in (DriverStatus.PENDING, DriverStatus.RUNNING):
        why = f"generation {row.generation} does not run yet and should run on {row.node or 'any node'}: killing it and starting"
        return launch(Kind.KILL_THEN_START, Reason.NODE_CHANGED, why)
    if status is DriverStatus.PENDING:
        return _say(
            row, Kind.WAIT, Reason.WAITING_FOR_RESOURCES,
            f"{name} generation {row.generation} waits for a free place on {row.node or 'the cluster'}.",
        )  # fmt: skip
    if beat is None and since_launch <= policy.launch_timeout_s:
        return _say(row, Kind.WAIT, Reason.STARTING, f"{name} generation {row.generation} is starting.")
    if beat is not None and silent <= policy.silent_s:  # it said good-bye; the process is about to end
        return _say(row, Kind.WAIT, Reason.STOPPING, f"{name} generation {row.generation} says {beat.state} and is about to end.")
    if status is DriverStatus.UNKNOWN:
        why = f"generation {row.generation} is silent for {silent:.0f} s and unknown to the cluster: starting"
        return launch(Kind.RESTART, Reason.DRIVER_LOST, why)
    if beat is None:
        why = f"generation {row.generation} gave no heartbeat in {since_launch:.0f} s: killing it and starting"
        reason = Reason.NO_HEARTBEAT_AFTER_START
    else:
        why = f"generation {row.generation} is silent for {silent:.0f} s though its process runs: killing it and starting"
        reason = Reason.HEARTBEAT_STALE
    return launch(Kind.KILL_THEN_START, reason, why, regardless=silent > policy.give_up_s)


def _stop(row: DesiredApplication, actual: Actual, now: datetime, policy: Policy) -> StreamAction:
    name = f"{row.pipeline}/{row.application}"
    status = _status(row, actual)
    beat = actual.heartbeats.get((*row.key, row.generation))
    beats = beat is not None and not beat.over and _silence_s(beat, row, actual, now) <= policy.silent_s
    alive = status in (DriverStatus.RUNNING, DriverStatus.PENDING)
    if not alive and not (beats and not status.dead):
        ended = row.generation if status.dead and beat is not None and not beat.over else None
        return _say(row, Kind.NOTHING, Reason.STOPPED, f"{name} is stopped, as declared.", release=ended)
    if status is DriverStatus.PENDING:
        words = f"{name} generation {row.generation} still waits for a place to run and is no longer wanted: withdrawing it."
        return _kill(row, Reason.STOPPED_BEFORE_START, words)
    overdue = _age(row.desired_since, now)
    if alive and overdue > policy.stop_timeout_s:
        words = f"{name} generation {row.generation} was asked to stop {overdue:.0f} s ago and still runs: killing it."
        return _kill(row, Reason.STOP_OVERDUE, words)
    return _say(row, Kind.WAIT, Reason.STOPPING, f"{name} generation {row.generation} finishes its batch and stops.")


def _launch(
    row: DesiredApplication, kind: Kind, reason: Reason, why: str, *, attempts: int, now: datetime,
    policy: Policy, dead: bool = False, regardless: bool = False,
) -> StreamAction:  # fmt: skip
    due_s = policy.backoff_s(attempts) - (_age(row.launched_at, now) if row.launched_at else float("inf"))
    if due_s > 0 and kind is Kind.KILL_THEN_START:
        return _kill(row, reason, f"{row.pipeline}/{row.application} {why} generation {row.next_generation} in {due_s:.0f} s.")
    if due_s > 0 and reason not in (Reason.VERSION_CHANGED, Reason.NODE_CHANGED):
        words = f"{row.pipeline}/{row.application} failed {attempts} launches in a row: next one in {due_s:.0f} s."
        return _say(row, Kind.WAIT, Reason.BACKING_OFF, words, release=row.generation if dead else None)
    generation = row.next_generation
    return StreamAction(
        kind=kind, pipeline=row.pipeline, application=row.application, reason=reason,
        words=f"{row.pipeline}/{row.application} {why} generation {generation}.",
        handle=row.handle if kind is Kind.KILL_THEN_START else None, generation=generation, attempts=attempts + 1,
        replaces=row.generation, release=row.generation if dead else None, regardless=regardless,
    )  # fmt: skip


def _found(row: DesiredApplication, actual: Actual) -> Stray | None:
    return next((s for s in actual.strays if (s.pipeline, s.application, s.generation) == (*row.key, row.generation)), None)


def _adopt(row: DesiredApplication, found: Stray) -> StreamAction:
    words = (
        f"{row.pipeline}/{row.application} generation {row.generation} was submitted but not recorded: adopting {found.handle}."
    )
    return StreamAction(
        kind=Kind.ADOPT, pipeline=row.pipeline, application=row.application, reason=Reason.SUBMISSION_FOUND, words=words,
        handle=found.handle, generation=row.generation,
    )  # fmt: skip


def _kill(row: DesiredApplication, reason: Reason, words: str) -> StreamAction:
    return StreamAction(
        kind=Kind.KILL, pipeline=row.pipeline, application=row.application, reason=reason, words=words, handle=row.handle
    )


def _say(row: DesiredApplication, kind: Kind, reason: Reason, words: str, release: int | None = None) -> StreamAction:
    return StreamAction(
        kind=kind, pipeline=row.pipeline, application=row.application, reason=reason, words=words, release=release
    )


def _status(row: DesiredApplication, actual: Actual) -> DriverStatus:
    if not actual.reachable:
        return DriverStatus.UNREACHABLE
    return actual.drivers.get(row.key, DriverStatus.UNKNOWN) if row.handle else DriverStatus.UNKNOWN


def _silence_s(beat: Heartbeat | None, row: DesiredApplication, actual: Actual, now: datetime) -> float:
    """Seconds without a sign of life, counted only while the store was there to be written to; after a good-bye, always."""
    last = beat.at if beat else row.launched_at or now
    if actual.store_up_since and actual.store_up_since > last and not (beat and beat.over):
        last = actual.store_up_since
    return _age(last, now)


def _age(then: datetime, now: datetime) -> float:
    return max(0.0, (now - then) / timedelta(seconds=1))
