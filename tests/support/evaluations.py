"""Evaluations of capacity on recorded metrics in a real Postgres, minute by minute, with the times that a live one would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from spillway.act.capacity import detect_all, observe
from spillway.act.capacity_propose import propose
from spillway.act.cycle import Step
from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store.decisions import Run

from tests.support.database import Database
from tests.support.recorded import Recording, noon, store

CALM, RUSH = 3, 6
"""Windows by number: before the rush, and well inside it, with three more behind it."""
LIVE = Run(policy=Policy())
WIDER = """
update spillway.pipeline_version set spec = replace(spec::text, '"max": 1', '"max": 4')::jsonb;
update spillway.application set generation = 1, launched_at = now();"""


class Evaluations:
    def __init__(self, database: Database, mode: str = "apply", *names: str) -> None:
        self.database, self.start = database, noon()
        self.recordings = {n: Recording(start=self.start, seconds=840.0, rush=(300.0, 780.0), name=n) for n in names or ("rec",)}
        for recording in self.recordings.values():
            store(database, recording, mode)
        self.sql(WIDER)
        self.conn = database.connect("control")

    def window(self, number: int) -> Interval:
        start = self.start + timedelta(seconds=60 * number)
        return Interval(start=start, end=start + timedelta(seconds=60))

    def run(self, number: int, run: Run = LIVE) -> list[Step]:
        window = self.window(number)
        return [
            observe(self.conn, window, run),
            detect_all(self.conn, window, run),
            propose(self.conn, window, run, now=window.end + timedelta(seconds=3)),
        ]

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.sql("owner", text, *values)

    def decision(self, number: int, kind: str = "capacity", pipeline: str = "rec") -> tuple[Any, ...]:
        """Id, status, reason and output."""
        found = self.sql(
            "select id, status, reason, output from spillway.decision"
            " where kind = %s and pipeline = %s and interval_end = %s and origin = 'live'",
            kind, pipeline, self.window(number).end,
        )  # fmt: skip
        assert len(found) == 1
        return found[0]

    def plans(self) -> list[tuple[Any, ...]]:
        columns = "id, decision, application, operator, state, executors_from, executors_to, requested_by"
        return self.sql(f"select {columns} from spillway.rescale_plan order by id")

    def carried_out(self, requested: datetime, ended: datetime) -> None:
        """All plans, as if what they say had been done by then: drivers tell of the executors, and so does the agent."""
        self.sql(
            "update spillway.rescale_plan set state = 'done', requested_at = %s, changed_at = %s, ended_at = %s"
            " where state = 'planned'",
            requested, ended, ended,
        )  # fmt: skip
        self.sql(
            "update spillway.rescale_step set state = 'done', began_at = %s, ended_at = %s where state = 'waiting'",
            requested, ended,
        )  # fmt: skip
        for application, many in self.sql("select application, executors_to from spillway.rescale_plan"):
            self.sql("update spillway.application set executors = %s where application = %s", many, application)
            self.sql(
                "insert into spillway.executor_cpu (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes,"
                " window_s, written_at) select node, spark_app, n::text, pipeline, application, at, cpu_pct, rss_bytes, window_s,"
                " written_at from spillway.executor_cpu, generate_series(1, %s) n"
                " where application = %s and executor = '0' and at > %s",
                many - 1, application, ended,
            )  # fmt: skip


@pytest.fixture
def evaluate(database: Database) -> Iterator[Callable[..., Evaluations]]:
    made: list[Evaluations] = []

    def make(*arguments: Any) -> Evaluations:
        made.append(Evaluations(database, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.conn.close()
