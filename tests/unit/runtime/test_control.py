"""What is in force by the clock alone, while the thread that asks Postgres waits for an answer."""

from __future__ import annotations

from spillway.model.settings import Effective, Setting
from spillway.model.topology import Edge, Silent
from spillway.policy import Policy

from spark_jobs.runtime.control import Control, Identity


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
