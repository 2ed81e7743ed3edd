"""What happened, in words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spillway.store.queries import execute, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: int
    at: datetime
    actor: str
    pipeline: str | None
    subject: str | None
    kind: str
    text: str


def record(
    conn: Connection, *, actor: str, kind: str, text: str, pipeline: str | None = None, subject: str | None = None
) -> None:
    """Adds an event within the caller's transaction."""
    execute(conn, "event_insert", actor=actor, kind=kind, text=text, pipeline=pipeline, subject=subject)


def recent(conn: Connection, *, limit: int = 50, after: int = 0, pipeline: str | None = None) -> list[Event]:
    """The newest events, oldest first; only those after the id `after`."""
    return [Event(**row) for row in rows(conn, "events", limit=limit, after=after, pipeline=pipeline)]
