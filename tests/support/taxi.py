"""A taxi pipeline for the store: its file, how it is applied, and what a launcher and a driver write about it."""

from __future__ import annotations

from typing import Any

from spillway.model.topology import Pipeline
from spillway.store import pipelines
from spillway.topology import check_text

from tests.support.database import Database

TAXI = """\
pipeline: taxi
operators:
  union: {function: "jobs:union", buckets: 4}
  bill: {function: "jobs:bill", kind: aggregate, buckets: 4, query: {priority: 2, min_accuracy: 0.5}}
  light: {function: "jobs:light", query: {min_accuracy: 0.2}}
edges:
  - {topic: yellow, to: union}
  - {topic: weather, to: light, shared: true}
  - {from: union, to: bill, when_silent: open}
  - {from: union, to: light}
applications:
  front: {operators: [union, light], node: n1}
  heavy: {operators: [bill], executors: 2}
"""


def parse(text: str = TAXI, *changes: tuple[str, str]) -> Pipeline:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    pipeline, problems = check_text(text)
    assert pipeline is not None, problems
    return pipeline


def apply(conn: Any, *changes: tuple[str, str], text: str = TAXI) -> Any:
    return pipelines.apply(conn, parse(text, *changes), text, "tester")


def launch(database: Database, application: str, state: str = "running", generation: int = 1) -> None:
    """What a launcher and a driver write."""
    database.sql(
        "control",
        "update spillway.application set generation = %s, launched_at = now() where application = %s",
        generation,
        application,
    )
    database.sql(
        "job",
        "insert into spillway.lease (pipeline, application, generation, holder) values ('taxi', %s, %s, 'h') "
        "on conflict (pipeline, application) "
        "do update set generation = excluded.generation, renewed_at = now(), released_at = null",
        application,
        generation,
    )
    database.sql(
        "job",
        "insert into spillway.heartbeat (pipeline, application, generation, holder, state, version) "
        "values ('taxi', %s, %s, 'h', %s, 1) "
        "on conflict (pipeline, application, generation) do update set state = excluded.state, at = now()",
        application,
        generation,
        state,
    )
