"""Each row of the demo's verdict can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spillway.demo.lineage import Compared
from spillway.demo.verdict import HandKeep, Measured, QueryFlow, verdict

ALL_THERE = Compared(written=1000, lost=0, doubled=0, strange=0)
LIGHT = QueryFlow(floor=0.8, priority=5, arrived=1000, output=ALL_THERE)
HEAVY = QueryFlow(floor=0.3, priority=1, arrived=1000, output=replace(ALL_THERE, written=500))
HAND = HandKeep(edge="a:b", keep=0.4, rows_read=10_000, rows_kept=4_050, batches_until=1)
GOOD = Measured(
    asked=1010,
    delivered=1010,
    garbage=10,
    read=1010,
    dead_letters=10,
    lag={"a:b": 0},
    peak_lag={"a:b": 700},
    queries={"light": LIGHT, "heavy": HEAVY},
    hand=HAND,
    batches=50,
    missing_batches=0,
    metrics_dropped=0,
    memory_mb=4000.0,
    actions=(),
)
LOST = "light: rows lost / doubled / foreign, by lineage"


def light(**change: int) -> dict[str, QueryFlow]:
    return {"light": replace(LIGHT, output=replace(ALL_THERE, **change))}


def test_a_good_run_is_good_and_the_important_query_comes_first() -> None:
    rows = verdict(GOOD)
    assert all(r.good for r in rows)
    names = [r.what for r in rows]
    assert names.index("light: accuracy (priority 5)") < names.index("heavy: accuracy (priority 1)")


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"delivered": 1009}, "events in"),
        ({"asked": 0, "delivered": 0}, "events in"),
        ({"read": 1011}, "events processed"),
        ({"dead_letters": 9}, "garbage to dead letters"),
        ({"queries": light(written=790)}, "light: accuracy (priority 5)"),
        ({"queries": light(lost=1)}, LOST),
        ({"queries": light(lost=-1)}, LOST),
        ({"queries": light(doubled=1)}, LOST),
        ({"queries": light(strange=1)}, LOST),
        ({"hand": replace(HAND, rows_kept=4_150)}, "keep 0.4 set by hand on a:b"),
        ({"hand": replace(HAND, rows_read=0, rows_kept=0)}, "keep 0.4 set by hand on a:b"),
        ({"hand": replace(HAND, batches_until=3)}, "… in force from"),
        ({"hand": replace(HAND, batches_until=None)}, "… in force from"),
        ({"lag": {"a:b": 1}}, "lag at the end"),
        ({"lag": {}}, "lag at the end"),
        ({"missing_batches": 1}, "metrics"),
        ({"metrics_dropped": 1}, "metrics"),
        ({"batches": 0}, "metrics"),
        ({"memory_mb": 9000.0}, "memory of everything"),
        ({"memory_mb": 0.0}, "memory of everything"),
    ],
)
def test_a_broken_promise_shows(change: dict[str, Any], row: str) -> None:
    bad = [r.what for r in verdict(replace(GOOD, **change)) if not r.good]
    assert row in bad
