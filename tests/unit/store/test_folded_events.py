from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spillway.store.events import Event, Told, fold

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def event(n: int, kind: str, subject: str) -> Event:
    return Event(id=n, at=NOON + timedelta(seconds=n), actor="job", pipeline="p", subject=subject, kind=kind, text=str(n))


def said(told: list[Told]) -> list[tuple[int, int, int]]:
    return [(t.event.id, t.count, int((t.since - NOON).total_seconds())) for t in told]


def test_only_dead_letters_of_one_subject_with_nothing_else_between_are_one() -> None:
    events = [
        event(1, "keep", "a"),
        event(2, "keep", "a"),
        event(3, "dead_letter", "a"),
        event(4, "dead_letter", "b"),
        event(5, "dead_letter", "a"),
        event(6, "started", "x"),
        event(7, "dead_letter", "a"),
    ]
    assert said(fold(events)) == [(1, 1, 1), (2, 1, 2), (4, 1, 4), (5, 2, 3), (6, 1, 6), (7, 1, 7)]
    assert fold([]) == []
