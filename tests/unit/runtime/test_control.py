"""What is in force by the clock alone, while the thread that asks Postgres waits for an answer."""

from __future__ import annotations

from dataclasses import replace

from spillway.model.settings import Effective, Setting
from spillway.model.topology import Edge, Silent
from spillway.policy import Policy

from spark_jobs.runtime.control import Control, Identity
from spark_jobs.runtime.orders import Actual, Orders, Phase


def test_a_time_to_live_ends_although_postgres_does_not_answer() -> None:
    edges = tuple(
        Edge(name=f"t:{silent.value}", topic="t", producer=None, consumer=silent.value, partitions=1, when_silent=silent)
        for silent in Silent
    )
    clock, seen = [100.0], dict[str, Effective]()
    me = Identity(pipeline="p", application="a", generation=1, version=1)
    control = Control(me, edges, Policy(), seen.__setitem__, clock=lambda: clock[0])
    control._settings = {e.name: (Setting(keep=0.4, decision_id=7, remaining_s=5.0), 100.0) for e in edges}
    control.apply()
    assert {e.keep for e in seen.values()} == {0.4}
    clock[0] = 106.0
    control.apply()
    assert (seen["t:open"].keep, seen["t:open"].source) == (1.0, "open")
    assert (seen["t:hold"].keep, seen["t:hold"].source) == (0.4, "held")
    assert not control.informed.is_set()


def test_a_change_of_what_runs_is_sent_at_once_and_how_far_it_has_got_later() -> None:
    control = Control(Identity(pipeline="p", application="a", generation=1, version=1), (), Policy(), lambda *_: None)
    first = Actual(operator="op", checkpoint=0, buckets=4, incarnation=0, phase=Phase.RUNNING, batch_id=1)
    control.report(first)
    assert control._unsent == {"op"}
    control._unsent.clear()
    control.report(replace(first, batch_id=2))
    assert control._unsent == set() and control._actuals["op"].batch_id == 2
    control.report(replace(first, batch_id=2, phase=Phase.STOPPING))
    assert control._unsent == {"op"}


def test_a_driver_stops_for_a_newer_generation_and_when_asked() -> None:
    running = Orders(generation=3, desired="running", executors=2)
    assert running.end(3) is None and running.end(4) is None
    assert running.end(2) == "fenced: generation 3 exists, this is 2"
    assert replace(running, desired="stopped").end(3) == "asked to stop"
