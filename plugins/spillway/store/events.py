"""What happened, in words, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event, or the last of several alike."""

    event: Event
    count: int = 1
    since: datetime


def fold(events: Iterable[Event], kind: str = "dead_letter") -> list[Told]:
    """Events of one kind about one subject, with nothing else between them, as one; in the order of the last of each."""
    told: list[Told] = []
    run: dict[tuple[str | None, str | None], Told] = {}
    for event in events:
        if event.kind != kind:
            told += [*run.values(), Told(event=event, since=event.at)]
            run = {}
            continue
        about = (event.pipeline, event.subject)
        before = run.pop(about, None)
        run[about] = replace(before, event=event, count=before.count + 1) if before else Told(event=event, since=event.at)
    return [*told, *run.values()]


def record(
    conn: Connection, *, actor: str, kind: str, text: str, pipeline: str | None = None, subject: str | None = None
) -> None:
    """Adds an event within the caller's transaction."""
    execute(conn, "event_insert", actor=actor, kind=kind, text=text, pipeline=pipeline, subject=subject)


def recent(conn: Connection, *, limit: int = 50, after: int = 0, pipeline: str | None = None) -> list[Event]:
    """The newest events, oldest first; only those after the id `after`."""
    return [Event(**row) for row in rows(conn, "events", limit=limit, after=after, pipeline=pipeline)]
