"""A store with a week in it is read by its indexes: what a cycle asks does not take longer every day."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from spillway.store.queries import query

from tests.support.database import Database

pytestmark = pytest.mark.integration
CYCLE_S, DAYS, HOURS = 15, 7, 8

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
        "spillway.capacity (decision)": True,
        "spillway.decision (observation)": True,
        "spillway.gate_result (decision)": True,
        "spillway.rescale_plan (decision)": True,
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
insert into spillway.event (actor, pipeline, kind, text, at)
select case when t < %(first)s + interval '1 minute' then 'qod' else 'streams' end, p, 'refused', 'x', t
from generate_series(%(first)s::timestamptz, %(last)s, interval '15 s') t, unnest(array['a', 'b']) p;
analyze spillway.observation, spillway.decision, spillway.setting_history, spillway.event"""
METRICS = """
insert into spillway.batch_metric (pipeline, application, operator, checkpoint, batch_id, generation, started_at, ended_at,
    input_rows, output_rows, batch_ms, add_batch_ms, written_at)
select p, 'all', o, 0, extract(epoch from t), 1, t - interval '2 s', t, 100, 100, 2000, 1900, t
from generate_series(%(first)s::timestamptz, %(last)s, interval '5 s') t, unnest(array['a', 'b']) p, unnest(array['x', 'y']) o;
insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read, rows_kept, keep,
    keep_source, written_at)
select pipeline, operator, operator, 0, batch_id, ended_at, 100, 50, 0.5, 'setting', ended_at from spillway.batch_metric;
insert into spillway.executor_cpu (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)
select 'n', p, '0', p, 'all', t, 50, 1, 5, t
from generate_series(%(first)s::timestamptz, %(last)s, interval '5 s') t, unnest(array['a', 'b']) p;
insert into spillway.executor_rows (pipeline, application, operator, executor, at, rows, cpu_ms, window_s, written_at)
select p, 'all', o, '0', t, 1, 1, 15, t
from generate_series(%(first)s::timestamptz, %(last)s, interval '15 s') t, unnest(array['a', 'b']) p, unnest(array['x', 'y']) o;
analyze spillway.batch_metric, spillway.edge_metric, spillway.executor_cpu, spillway.executor_rows"""


@pytest.fixture
def week(database: Database) -> datetime:
    """Decisions of two pipelines that were refreshed in every cycle, and metrics of some hours; the end of the last window."""
    now = datetime.now(UTC).timestamp() // CYCLE_S * CYCLE_S
    last = datetime.fromtimestamp(now, UTC)
    connection = database.connect("owner")
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(FILL, {"first": last - timedelta(days=DAYS), "last": last})
            cursor.execute(METRICS, {"first": last - timedelta(hours=HOURS), "last": last})
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


BIG = ("decision", "observation", "setting_history", "event")
FEW = 100
"""Rows: two pipelines have some 160 000 settings and 80 000 decisions in a week."""
METRIC = ("batch_metric", "edge_metric", "executor_cpu", "executor_rows")
SOME = 3000
"""Rows of metrics that were measured in the ten minutes which are learned from; in all there are ten times as many."""


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
        name = node.get("Relation Name", "")
        whole = name in BIG and (node["Node Type"] == "Seq Scan" or touched > FEW)
        if whole or (name.startswith(METRIC) and touched > SOME):
            found.append(f"{node['Node Type']} of {name}: {touched} rows")
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
        "qod_event_once": {"pipeline": "a", "kind": "refused", "text": "x", "about": "x"},
        "qod_unmoved": {"end": end, "patience": end - timedelta(minutes=10), "waited": end - timedelta(minutes=3)},
        "qod_samples": {
            **times, "since": start - timedelta(minutes=11), "closed": end + timedelta(seconds=2), "width_s": 15.0, "slices": 40,
            "pipelines": ["a", "b"],
        },
    }  # fmt: skip
    assert {name: found for name, values in asked.items() if (found := read(database, name, **values))} == {}


def test_what_an_evaluation_asks_of_a_week_of_decisions_is_found_by_indexes(database: Database, week: datetime) -> None:
    end, start = week, week - timedelta(seconds=60)
    times = {"start": start, "end": end}
    run = {"origin": "live", "replay": "", "policy": "p"}
    metrics = {**times, "since": start - timedelta(minutes=9), "closed": end + timedelta(seconds=2), "pipelines": ["a", "b"]}
    asked: dict[str, dict[str, Any]] = {
        "capacity_decided": {**times, **run, "kind": "capacity"},
        "capacity_observations": {**times, **run},
        "capacity_findings": {
            "pipeline": "a", "version": 1, "since": start - timedelta(hours=6), "end": end, "begins": None, "limit": 16, **run,
        },
        "capacity_floors": {**times, "pipeline": "a"},
        "capacity_last": {"kind": "capacity", "pipeline": "a", "end": None},
        "capacity_event_once": {"pipeline": "a", "subject": None, "kind": "refused", "text": "x", "about": "x"},
        "capacity_batches": metrics,
        "capacity_partitions": metrics,
        "capacity_instances": {k: v for k, v in metrics.items() if k != "since"},
    }  # fmt: skip
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
