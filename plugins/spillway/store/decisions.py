"""What cycles saw and decided. Nothing here commits: a step of a cycle is one transaction of its caller."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store.queries import execute, query, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

LIVE, REPLAY = "live", "replay"
QOD, CAPACITY, RESCALE = "qod", "capacity", "rescale"
"""Kinds of decisions: what edges keep, what a pipeline can carry, whether an operator gets another size."""
REFUSED = "refused/"
"""Begins the name of what is no world, but the rows of one pipeline that a gate did not let through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """In whose name cycles run: the live ones, or a replay with a name; and by which policy."""

    origin: str = LIVE
    replay: str = ""
    policy: Policy
    begins: datetime | None = None
    """Of a replay: its memory is that of the live cycles up to here, and its own from here on. None: its own, as far as there is
    one, whoever decided it."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(canonical(self.policy).encode()).hexdigest()

    @property
    def live(self) -> bool:
        return self.origin == LIVE

    @property
    def key(self) -> dict[str, Any]:
        return {"origin": self.origin, "replay": self.replay, "policy": self.digest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A stored observation."""

    id: int
    world: str
    pipelines: list[str]
    body: dict[str, Any]

    @property
    def refused(self) -> bool:
        return self.world.startswith(REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored decision, for people and programs."""

    id: int
    pipeline: str
    interval_start: datetime
    interval_end: datetime
    origin: str
    replay: str
    mode: str
    version: int
    policy: str
    observation: int | None
    status: str
    reason: str
    output: dict[str, Any] | None
    expected: dict[str, Any] | None
    verified: dict[str, Any] | None
    decided_at: datetime
    published_at: datetime | None
    kind: str = QOD


def canonical(policy: Policy) -> str:
    return json.dumps(asdict(policy), sort_keys=True, separators=(",", ":"))


def save_policy(conn: Connection, run: Run) -> None:
    execute(conn, "qod_policy", digest=run.digest, body=canonical(run.policy))


def save_observation(
    conn: Connection, run: Run, interval: Interval, world: str, pipelines: Sequence[str], body: Mapping[str, Any] | str
) -> int:
    text = body if isinstance(body, str) else json.dumps(_finite(body), default=str)
    saved = row(
        conn, "qod_observation_save", **_times(interval), **run.key, world=world, pipelines=list(pipelines), body=text
    )  # fmt: skip
    assert saved is not None
    return int(saved["id"])


def observations(conn: Connection, run: Run, interval: Interval) -> list[Seen]:
    return [Seen(**found) for found in rows(conn, "qod_observations", **_times(interval), **run.key)]


def save_decision(
    conn: Connection,
    run: Run,
    interval: Interval,
    *,
    pipeline: str,
    mode: str,
    version: int,
    observation: int | None,
    status: str,
    reason: str = "",
    output: Mapping[str, Any] | None = None,
) -> int | None:
    """The id; None when the decision of this cycle was published or refused already and stays as it is.

    What gates found against what was there before goes."""
    expected = None
    if output is not None:
        expected = {**output["expected"], "keep": {e["name"]: e["keep"] for e in output["edges"]}}
    saved = row(
        conn,
        "qod_decision_save",
        **_times(interval),
        **run.key,
        pipeline=pipeline,
        mode=mode,
        version=version,
        observation=observation,
        status=status,
        reason=reason,
        output=_json(output),
        expected=_json(expected),
    )
    if saved is None:
        return None
    execute(conn, "qod_gate_clear", decision=saved["id"])
    return int(saved["id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: str
    decided: bool
    """It was decided, and the decision refused; else what was observed."""


def refused(conn: Connection, run: Run, interval: Interval) -> dict[str, Refusal]:
    """By pipeline, what was refused on a window."""
    found = rows(conn, "qod_refused", **_times(interval), **run.key)
    return {r["pipeline"]: Refusal(reason=r["reason"], decided=r["decided"]) for r in found}


def reopen(conn: Connection, run: Run, interval: Interval, pipelines: Sequence[str]) -> None:
    """A replay that is repeated decides anew what it has just observed; what a live cycle refused stays refused."""
    if not run.live:
        execute(conn, "qod_reopen", **_times(interval), **run.key, pipelines=list(pipelines))


def save_gate(conn: Connection, decision: int, gate: str, failures: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
    """What a gate found against a decision that was just saved, as (suite, rule, evidence)."""
    from psycopg2.extras import execute_values

    values = [(decision, gate, suite, rule, False, json.dumps(evidence, default=str)) for suite, rule, evidence in failures]
    if values:
        with conn.cursor() as cursor:
            execute_values(cursor, query("qod_gate_save"), values)


def remembered(conn: Connection, run: Run, interval: Interval, modes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What damping remembers, by pipeline, as long as the last decision is not older than metrics may be."""
    since = interval.start - timedelta(seconds=interval.seconds * run.policy.qod_stale_cycles)
    wanted = [f"{pipeline} {mode}" for pipeline, mode in modes.items()]
    found = rows(conn, "qod_remembered", start=interval.start, since=since, modes=wanted, begins=run.begins, **run.key)
    return {r["pipeline"]: r["remember"] for r in found if r["remember"]}


def recent(conn: Connection, *, pipeline: str | None = None, limit: int = 20, replay: str = "") -> list[Stored]:
    """The newest decisions on what edges keep, newest first: live ones, or those of one replay."""
    return [Stored(**found) for found in rows(conn, "decisions", pipeline=pipeline, limit=limit, replay=replay)]


def by_id(conn: Connection, decision: int) -> Stored | None:
    """Of whatever kind."""
    found = row(conn, "decision_by_id", id=decision)
    return Stored(**found) if found else None


def seen_by(conn: Connection, observation: int) -> Seen | None:
    """What a decision was made on; of one that was refused for it, the rows of the window."""
    found = row(conn, "observation_by_id", id=observation)
    return Seen(**found) if found else None


def body_of(conn: Connection, observation: int) -> dict[str, Any] | None:
    found = seen_by(conn, observation)
    return found.body if found else None


def oldest_measured(conn: Connection) -> datetime | None:
    """When the oldest metrics were measured that are still there."""
    found = row(conn, "metrics_oldest")
    return found["at"] if found else None


def gate_failures(conn: Connection, decision: int) -> list[dict[str, Any]]:
    return rows(conn, "decision_gates", decision=decision)


def span(conn: Connection, run: Run, start: datetime, end: datetime, pipeline: str | None = None) -> list[Stored]:
    """The decisions of a run on what edges keep, on the windows from `start` to `end`, in order."""
    found = rows(
        conn, "decision_span", start=start, end=end, pipeline=pipeline, origin=run.origin, replay=run.replay,
        policy=None if run.live else run.digest,
    )  # fmt: skip
    return [Stored(**r) for r in found]


def tell(conn: Connection, pipeline: str, kind: str, text: str, about: str | None = None) -> None:
    """An event, unless the last one of this pipeline's cycles was of the same kind and began with `about`."""
    execute(conn, "qod_event_once", pipeline=pipeline, kind=kind, text=text, about=text if about is None else about)


def _times(interval: Interval) -> dict[str, datetime]:
    return {"start": interval.start, "end": interval.end}


def _finite(value: Any) -> Any:
    """JSON has no word for what is not a number."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value, allow_nan=False)
