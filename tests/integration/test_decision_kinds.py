"""Decisions of other kinds on the same pipelines and windows are nothing to who asks for what edges keep."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from spillway.policy import Policy
from spillway.store import decisions
from spillway.store.decisions import Run
from spillway.store.queries import row, rows

from tests.support.cycles import LIVE, RUSH, Cycle

pytestmark = pytest.mark.integration
REPLAYED = Run(origin="replay", replay="x", policy=Policy())

OTHERS = """
insert into spillway.decision (kind, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation,
    status, reason, output, expected, verified, decided_at, published_at)
select k, pipeline, interval_start + later, interval_end + later, origin, replay, mode, version, policy, observation, s, 'other',
    case s when 'refused' then output else '{"remember": {"keeps": {}}, "moves": [{"operator": "heavy"}], "edges": [],
    "queries": {}, "infeasible": null}' end, '{}', null, decided_at, published_at
from spillway.decision
cross join (values ('capacity', 'published'), ('rescale', 'refused')) others (k, s)
cross join (values (interval '0 s'), (interval '5 s')) afterwards (later)
where kind = 'qod'"""
WORLDS = """
insert into spillway.observation (interval_start, interval_end, origin, replay, policy, world, pipelines, body)
select interval_start, interval_end, origin, replay, policy, prefix || 'capacity/rec', '{rec}', '{}'
from spillway.observation, unnest(array['', 'refused/']) prefix where world = 'apply'"""


def asked(cycle_: Cycle) -> dict[str, Any]:
    """What every query that looks for decisions or worlds says."""
    conn, last = cycle_.conn, cycle_.window(RUSH + 1)
    window = {"start": last.start, "end": last.end}
    after = cycle_.window(RUSH + 3)
    ids = [i for (i,) in cycle_.sql("select id from spillway.decision where kind = 'qod' order by id")]
    found: dict[str, Any] = {
        "recent": decisions.recent(conn, pipeline="rec"),
        "decided": rows(conn, "qod_decided", **window, policy=LIVE.digest),
        "lately": row(conn, "qod_decided_lately", pipeline="rec", since=last.end + timedelta(seconds=1), end=after.end),
        "lock": [row(conn, "qod_decision_lock", id=i, status="published") for i in ids],
        "unmoved": rows(
            conn, "qod_unmoved", end=after.end, patience=last.start - timedelta(hours=1), waited=last.start - timedelta(hours=1)
        ),
        "unverified": rows(
            conn, "qod_unverified", start=after.start, end=after.end, since=last.start, oldest=last.start - timedelta(hours=1)
        ),
        "demo": rows(conn, "demo_decisions", pipeline="rec", since=cycle_.start),
        "seen": rows(conn, "demo_observations", pipeline="rec", since=cycle_.start),
    }
    for run in (LIVE, REPLAYED):
        found[run.origin] = (
            decisions.span(conn, run, cycle_.start, after.end),
            decisions.remembered(conn, run, after, {"rec": "apply"}),
            decisions.refused(conn, run, last),
            decisions.observations(conn, run, last),
        )
    conn.rollback()
    return found


def test_nothing_on_keeps_is_answered_with_a_decision_of_another_kind(begin: Any) -> None:
    cycle_ = begin()
    for number in (RUSH, RUSH + 1):
        cycle_.run(number)
        cycle_.run(number, REPLAYED)
    published = "update spillway.decision set published_at = interval_end + interval '3 s' where origin = 'live'"
    cycle_.sql(published)
    before = asked(cycle_)
    assert all(before[name] for name in ("recent", "unverified", "demo", "seen"))
    assert [bool(part) for part in before["live"]] == [True, True, False, True]
    assert before["lock"][-1] is None, "of a replay"
    cycle_.sql(OTHERS)
    cycle_.sql(WORLDS)
    assert asked(cycle_) == before


def test_a_repeated_replay_reopens_no_refusal_of_another_kind(begin: Any) -> None:
    cycle_ = begin()
    cycle_.run(RUSH, REPLAYED)
    cycle_.sql(OTHERS)
    cycle_.run(RUSH, REPLAYED)
    assert cycle_.sql("select distinct status from spillway.decision where kind = 'rescale'") == [("refused",)]
