"""What is in force is kept alive through cycles that decide nothing, not for ever, and nobody publishes past somebody else."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from spillway.act import cycle
from spillway.act.cycle import decide_all, observe
from spillway.act.publish import publish
from spillway.policy import Policy
from spillway.store import pipelines, settings
from spillway.topology import check_text

from tests.support.cycles import CALM, LIVE, RUSH, Cycle
from tests.support.recorded import YAML

pytestmark = pytest.mark.integration
LATER_S = 3.0
"""How long after the end of its window a cycle publishes."""


def moment(cycle_: Cycle, number: int) -> datetime:
    return cycle_.window(number).end + timedelta(seconds=LATER_S)


def play(cycle_: Cycle, number: int) -> None:
    """A cycle, and what it set dated as if it had run then."""
    cycle_.run(number)
    cycle_.sql(
        "update spillway.edge_setting set issued_at = %s where issued_at > now() - interval '1 hour'", moment(cycle_, number)
    )
    cycle_.conn.rollback()


def set_at(cycle_: Cycle) -> tuple[float, datetime, int]:
    [found] = cycle_.sql("select keep, issued_at, decision_id from spillway.edge_setting where edge = 'front:heavy'")
    keep, at, decision = found
    return keep, at, decision


def fail(*_: Any) -> Any:
    raise ArithmeticError("divided by zero")


NOTHING_DECIDED = {
    "refused": "delete from spillway.topic_metric",
    "held": "delete from spillway.heartbeat where application = 'behind'",
    "failed": "select 1",
}


@pytest.mark.parametrize("status", NOTHING_DECIDED)
def test_a_cycle_that_decides_nothing_keeps_alive_what_is_in_force(begin, monkeypatch, status):
    cycle_ = begin()
    play(cycle_, RUSH - 1)
    keep, _, decision = set_at(cycle_)
    assert keep < 1.0
    cycle_.sql(NOTHING_DECIDED[status])
    if status == "failed":
        monkeypatch.setattr(cycle, "decide", fail)
    play(cycle_, RUSH)
    found = cycle_.decision(RUSH)
    assert (found[1], found[3]) == (status, None)
    assert set_at(cycle_) == (keep, moment(cycle_, RUSH), found[0])
    assert found[0] != decision
    [(ttl_s, reason, earlier)] = cycle_.sql(
        "select s.ttl_s, s.reason, h.reason from spillway.edge_setting s join spillway.setting_history h using (pipeline, edge)"
        " where h.decision_id = %s", decision,
    )  # fmt: skip
    assert (ttl_s, reason) == (60.0, earlier), "why it was lowered is still why"


def test_a_pipeline_that_is_refused_for_ever_ends_in_its_declared_fallback(begin):
    cycle_, last = begin(), RUSH - 1
    play(cycle_, last)
    cycle_.sql("delete from spillway.topic_metric")
    stale = int(Policy().qod_stale_cycles)
    for number in range(last + 1, last + 7):
        play(cycle_, number)
        assert cycle_.decision(number)[1] == "refused"
        assert set_at(cycle_)[1] == moment(cycle_, min(number, last + stale))


def test_what_has_lapsed_or_was_set_by_a_person_is_not_kept_alive(begin):
    cycle_ = begin()
    play(cycle_, RUSH - 1)
    settings.set_keep(cycle_.conn, "rec", "front:light", 0.9, ttl_s=30.0, by="ann")
    at = moment(cycle_, RUSH) - timedelta(seconds=20)
    cycle_.sql("update spillway.edge_setting set issued_at = %s where edge = 'front:light'", at)
    cycle_.sql("update spillway.edge_setting set issued_at = issued_at - interval '60 s' where edge = 'front:heavy'")
    cycle_.sql("delete from spillway.topic_metric")
    before = cycle_.sql("select * from spillway.edge_setting order by edge")
    play(cycle_, RUSH)
    assert cycle_.sql("select * from spillway.edge_setting order by edge") == before


def decided(cycle_: Cycle, number: int) -> None:
    observe(cycle_.conn, cycle_.window(number), LIVE)
    decide_all(cycle_.conn, cycle_.window(number), LIVE)


def test_a_decision_on_one_version_is_not_published_onto_the_next(begin):
    cycle_ = begin()
    decided(cycle_, RUSH)
    text = YAML.format(name="rec").replace("min_accuracy: 0.3", "min_accuracy: 0.9")
    spec, _ = check_text(text)
    assert spec is not None
    pipelines.apply(cycle_.conn, spec, text, "test")
    step = publish(cycle_.conn, cycle_.window(RUSH), LIVE, now=moment(cycle_, RUSH))
    assert cycle_.keeps() == {}
    assert "not published" in step.said[0]
    assert cycle_.decision(RUSH)[1] == "decided"


class Slow:
    """A connection that commits when it is told to."""

    def __init__(self, conn: Any) -> None:
        self.conn, self.asked, self.go = conn, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conn, name)

    def commit(self) -> None:
        self.asked.set()
        assert self.go.wait(20.0)
        self.conn.commit()


def test_whoever_publishes_an_older_window_waits_and_then_sees_the_newer_one(begin, database):
    cycle_, said = begin(), []
    for number in (CALM, RUSH):
        decided(cycle_, number)
    newer = next(e["keep"] for e in cycle_.decision(RUSH)[3]["edges"] if e["name"] == "front:heavy")
    older = next(e["keep"] for e in cycle_.decision(CALM)[3]["edges"] if e["name"] == "front:heavy")
    assert newer != older
    slow: Any = Slow(database.connect("control"))
    other = database.connect("control")
    try:
        first = threading.Thread(target=publish, args=(slow, cycle_.window(RUSH), LIVE), kwargs={"now": moment(cycle_, RUSH)})
        second = threading.Thread(target=lambda: said.append(publish(other, cycle_.window(CALM), LIVE, now=moment(cycle_, CALM))))
        first.start()
        assert slow.asked.wait(20.0)
        second.start()
        second.join(0.5)
        assert second.is_alive()
        slow.go.set()
        first.join(20.0)
        second.join(20.0)
    finally:
        slow.go.set()
        slow.close()
        other.close()
    assert cycle_.keeps()["front:heavy"] == newer
    assert "not published" in said[0].said[0]
    assert cycle_.decision(CALM)[1] == "decided"
