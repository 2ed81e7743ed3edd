"""Keep per edge. Each function that writes is one transaction; drivers hear of it by notification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spillway.model.topology import Pipeline, Silent
from spillway.store import events
from spillway.store.connection import translate
from spillway.store.errors import Refused
from spillway.store.pipelines import load
from spillway.store.promises import broken_floors
from spillway.store.queries import execute, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    pipeline: str
    edge: str
    keep: float
    decision_id: int
    issued_at: datetime
    ttl_s: float | None
    issued_by: str
    reason: str
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    setting: Setting
    warning: str | None
    """Says which query falls below its floor; a person may do that, a controller may not."""

    @property
    def decision_id(self) -> int:
        return self.setting.decision_id


def current(conn: Connection, pipeline: str) -> dict[str, Setting]:
    """The last setting of every edge that ever had one."""
    with translate():
        return {found["edge"]: Setting(**found) for found in rows(conn, "settings", pipeline=pipeline)}


def effective(pipeline: Pipeline, settings: dict[str, Setting]) -> dict[str, float]:
    """Keep of every edge as a driver applies it now: 1 without a setting, the declared fallback after its time to live."""
    keeps = {}
    for edge in pipeline.edges:
        setting = settings.get(edge.name)
        opened = setting is not None and setting.expired and edge.when_silent is Silent.OPEN
        keeps[edge.name] = 1.0 if setting is None or opened else setting.keep
    return keeps


def set_keep(
    conn: Connection, pipeline: str, edge: str, keep: float, ttl_s: float | None = None, by: str = "", reason: str = ""
) -> Published:
    """Sets the keep of one edge by hand, under a new decision id."""
    if not 0.0 <= keep <= 1.0:
        raise Refused(f"keep {keep:g} is outside [0, 1]: give the share of events to keep.")
    if ttl_s is not None and not 0.0 < ttl_s < float("inf"):
        raise Refused(f"a time to live of {ttl_s:g} s is not possible: give more than 0 s, or none for a keep that stays.")
    with translate(), conn:
        spec = load(conn, pipeline)
        if edge not in [e.name for e in spec.edges]:
            raise Refused(f"pipeline {pipeline} has no edge {edge}: its edges are {', '.join(e.name for e in spec.edges)}.")
        keeps = effective(spec, current(conn, pipeline)) | {edge: keep}
        broken = broken_floors(spec, keeps)
        warning = "; ".join(f"query {q} falls to accuracy {a:.3g}, below its floor {f:g}" for q, a, f in broken) or None
        told = "; ".join(part for part in (reason, warning) if part)
        setting = _publish(conn, pipeline, edge, keep, ttl_s, by, told)
    return Published(setting=setting, warning=warning)


def clear(conn: Connection, pipeline: str, by: str, edge: str | None = None) -> list[str]:
    """Back to keeping everything on one edge, or on all that keep less; returns those edges."""
    with translate(), conn:
        spec = load(conn, pipeline)
        known = [e.name for e in spec.edges]
        if edge is not None and edge not in known:
            raise Refused(f"pipeline {pipeline} has no edge {edge}: its edges are {', '.join(known)}.")
        settings = current(conn, pipeline)
        shedding = [n for n in known if n in settings and (settings[n].keep < 1.0 or settings[n].ttl_s) and edge in (None, n)]
        for name in shedding:
            _publish(conn, pipeline, name, 1.0, None, by, "cleared")
    return shedding


def put(
    conn: Connection, pipeline: str, edge: str, keep: float, *, ttl_s: float | None, decision: int, by: str, reason: str
) -> None:
    """Sets the keep of one edge under a stored decision, within the caller's transaction and without an event."""
    execute(
        conn, "setting_publish", pipeline=pipeline, edge=edge, keep=keep, ttl_s=ttl_s, decision_id=decision, by=by, reason=reason
    )


def _publish(conn: Connection, pipeline: str, edge: str, keep: float, ttl_s: float | None, by: str, reason: str) -> Setting:
    written = row(conn, "setting_upsert", pipeline=pipeline, edge=edge, keep=keep, ttl_s=ttl_s, by=by, reason=reason)
    assert written is not None
    until = f" for {ttl_s:g} s" if ttl_s else ""
    text = f"keep of {edge} is {keep:g}{until}" + (f": {reason}" if reason else "")
    events.record(conn, actor=by, kind="keep", pipeline=pipeline, subject=edge, text=text)
    return Setting(pipeline=pipeline, edge=edge, keep=keep, ttl_s=ttl_s, issued_by=by, reason=reason, **written)
