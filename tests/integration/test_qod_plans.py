"""A store with a week in it is read by its indexes: what a cycle asks does not take longer every day."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from spillway.store.queries import query

from tests.support.database import Database

pytestmark = pytest.mark.integration
CYCLE_S, DAYS = 15, 7

REFERENCES = """
select c.conrelid::regclass::text || ' (' || a.attname || ')',
       exists (select from pg_index i where i.indrelid = c.conrelid and i.indkey[0] = a.attnum)
from pg_constraint c
join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
where c.contype = 'f' and c.confrelid in ('spillway.decision'::regclass, 'spillway.observation'::regclass)"""


def test_what_refers_to_decisions_and_observations_is_found_by_an_index(migrated: Database) -> None:
    """Each row that retention deletes looks for whoever refers to it."""
    found = dict(migrated.sql("read", REFERENCES))
    assert found == {
        "spillway.decision (observation)": True,
        "spillway.gate_result (decision)": True,
        "spillway.reschedule (decision)": True,
    }


FILL = """
insert into spillway.policy_version (digest, body) values ('p', '{}');
insert into spillway.observation (interval_start, interval_end, origin, policy, world, pipelines, body)
select t - interval '15 s', t, 'live', 'p', 'apply', '{a,b}', '{}'
from generate_series(%(first)s::timestamptz, %(last)s, interval '15 s') t;
insert into spillway.decision (pipeline, interval_start, interval_end, origin, mode, version, policy, observation, status, output,
    expected, decided_at, published_at)
select p, o.interval_start, o.interval_end, 'live', 'apply', 1, 'p', o.id, 'published',
    '{"remember": {}, "edges": [{"name": "x", "keep": 0.5}, {"name": "y", "keep": 0.5}]}', '{}',
    o.interval_end + interval '3 s', o.interval_end + interval '3 s'
from spillway.observation o, unnest(array['a', 'b']) p;
insert into spillway.setting_history (pipeline, edge, keep, decision_id, issued_at, ttl_s, issued_by)
select d.pipeline, e, 0.5, d.id, d.published_at, 60, 'qod' from spillway.decision d, unnest(array['x', 'y']) e;
update spillway.decision set verified = '{}' where published_at < %(last)s - interval '1 minute';
analyze spillway.observation, spillway.decision, spillway.setting_history"""


@pytest.fixture
def week(database: Database) -> datetime:
    """Decisions of two pipelines that were refreshed in every cycle; the end of the last window."""
    now = datetime.now(UTC).timestamp() // CYCLE_S * CYCLE_S
    last = datetime.fromtimestamp(now, UTC)
    connection = database.connect("owner")
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(FILL, {"first": last - timedelta(days=DAYS), "last": last})
    finally:
        connection.close()
    return last


def test_retention_drops_a_day_of_decisions_in_seconds(database: Database, week: datetime) -> None:
    count = "select count(*) from spillway.decision"
    [(before,)] = database.sql("read", count)
    oldest: Any = (week - timedelta(days=DAYS - 1)).date()
    begun = time.monotonic()
    database.sql("control", "set statement_timeout = '20 s'; select spillway.drop_partitions(%s)", oldest)
    assert time.monotonic() - begun < 20.0
    assert database.sql("read", count)[0][0] < before


BIG = ("decision", "observation", "setting_history")
FEW = 100
"""Rows: two pipelines have some 160 000 settings and 80 000 decisions in a week."""


def read(database: Database, name: str, **parameters: Any) -> list[str]:
    """Where the named query reads a table that grows from end to end, or more than a few rows of it."""
    connection = database.connect("control")
    try:
        with connection.cursor() as cursor:
            cursor.execute("explain (analyze, format json) " + query(name), parameters)
            [[[plan]]] = cursor.fetchall()
    finally:
        connection.close()
    found, waiting = [], [plan["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        touched = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        if node.get("Relation Name") in BIG and (node["Node Type"] == "Seq Scan" or touched > FEW):
            found.append(f"{node['Node Type']} of {node['Relation Name']}: {touched} rows")
    return found


def test_what_a_cycle_asks_of_a_week_of_decisions_is_found_by_indexes(database: Database, week: datetime) -> None:
    end, start = week, week - timedelta(seconds=CYCLE_S)
    times = {"start": start, "end": end}
    since = start - timedelta(seconds=3 * CYCLE_S)
    run = {"origin": "live", "replay": "", "policy": "p"}
    asked: dict[str, dict[str, Any]] = {
        "qod_settings": {"pipelines": ["a", "b"], "edges": ["x", "y"], "end": end},
        "qod_unverified": {**times, "since": since, "oldest": since - timedelta(seconds=3 * CYCLE_S)},
        "qod_decided": {**times, "policy": "p"},
        "qod_decided_lately": {"pipeline": "a", "since": since, "end": end},
        "qod_decision_lock": {"id": 7, "status": "decided"},
        "qod_observations": {**times, **run},
        "qod_remembered": {"start": start, "since": since, "modes": ["a apply", "b apply"], "begins": None, **run},
    }
    assert {name: found for name, values in asked.items() if (found := read(database, name, **values))} == {}


def test_the_last_setting_of_every_edge_is_that_of_its_time(database: Database, week: datetime) -> None:
    ago = week - timedelta(hours=30) + timedelta(seconds=7)
    connection = database.connect("control")
    try:
        with connection.cursor() as cursor:
            asked = {"pipelines": ["a", "a", "b", "b"], "edges": ["x", "nobody", "y", "x"], "end": ago}
            cursor.execute(query("qod_settings"), asked)
            found = {(pipeline, edge): at for pipeline, edge, _, _, at, _ in cursor.fetchall()}
    finally:
        connection.close()
    last = week - timedelta(hours=30) + timedelta(seconds=3)
    assert found == {("a", "x"): last, ("b", "x"): last, ("b", "y"): last}
