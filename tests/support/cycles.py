"""Cycles on recorded metrics in a real Postgres, window by window, with the times that a live one would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from spillway.act.cycle import Step, decide_all, observe
from spillway.act.publish import publish, verify
from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store import settings
from spillway.store.decisions import Run

from tests.support.database import Database
from tests.support.recorded import Recording, noon, store

CALM, RISES, RUSH = 6, 13, 16
"""Windows by number: before the rush, the one in which it begins, and well inside it."""
LIVE = Run(policy=Policy())


class Cycle:
    def __init__(self, database: Database, mode: str = "apply", *names: str) -> None:
        self.database, self.start = database, noon()
        self.recordings = {n: Recording(start=self.start, seconds=360.0, rush=(200.0, 330.0), name=n) for n in names or ("rec",)}
        for recording in self.recordings.values():
            store(database, recording, mode)
        self.conn = database.connect("control")

    def window(self, number: int) -> Interval:
        start = self.start + timedelta(seconds=15 * number)
        return Interval(start=start, end=start + timedelta(seconds=15))

    def run(self, number: int, run: Run = LIVE) -> list[Step]:
        window = self.window(number)
        return [
            observe(self.conn, window, run),
            decide_all(self.conn, window, run),
            publish(self.conn, window, run, now=window.end + timedelta(seconds=3)),
            verify(self.conn, window, run),
        ]

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.sql("owner", text, *values)

    def decision(self, number: int, pipeline: str = "rec") -> tuple[Any, ...]:
        found = self.sql(
            "select id, status, reason, output from spillway.decision where kind = 'qod' and pipeline = %s and interval_end = %s",
            pipeline, self.window(number).end,
        )  # fmt: skip
        assert len(found) == 1
        return found[0]

    def keeps(self) -> dict[str, float]:
        return {e: s.keep for p in self.recordings for e, s in settings.current(self.conn, p).items()}


@pytest.fixture
def begin(database: Database) -> Iterator[Callable[..., Cycle]]:
    made: list[Cycle] = []

    def make(*arguments: Any) -> Cycle:
        made.append(Cycle(database, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.conn.close()
