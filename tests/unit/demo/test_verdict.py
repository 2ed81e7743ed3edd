"""Each row of the demo's verdict can fail."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from spillway.demo.control import Controlled
from spillway.demo.elastic import Change, Elastic
from spillway.demo.lineage import Compared
from spillway.demo.verdict import HandKeep, Measured, QueryFlow, verdict

ALL_THERE = Compared(written=1000, lost=0, doubled=0, strange=0)
LIGHT = QueryFlow(floor=0.8, priority=5, arrived=1000, output=ALL_THERE)
HEAVY = QueryFlow(floor=0.3, priority=1, arrived=1000, output=replace(ALL_THERE, written=500))
CONTROL = Controlled(
    cycle_s=15.0,
    lagging_s=40.0,
    lag_peak_s=9.0,
    lag_after_s=0.5,
    waiting_after_s=4.0,
    floors={"light": 0.8, "heavy": 0.3},
    priorities={"light": 5, "heavy": 1},
    least={"light": 1.0, "heavy": 0.31},
    first_shed_s={"heavy": 20.0},
    in_order=True,
    whole_again_s=70.0,
    shed_read=100_000,
    shed_kept=40_500,
    shed_expected=40_000.0,
    batches_until=1,
)
CHANGE = Change(
    operator="heavy",
    words="executors 1 → 2, by handover",
    state="done",
    asked_s=60.0,
    told_s=130.0,
    pause_s=2.5,
    steady_s=2.0,
    more=True,
)
ELASTIC = Elastic(
    operator="heavy",
    named_s=40.0,
    named=("heavy",),
    change=CHANGE,
    lagging_s=45.0,
    whole_s=180.0,
    shed_before=True,
    held_s=30.0,
    load=1.33,
    prepared_lag_s=9.0,
)
HAND = HandKeep(edge="a:b", keep=0.4, rows_read=10_000, rows_kept=4_050, batches_until=1)
GOOD = Measured(
    asked=1010,
    delivered=1010,
    garbage=10,
    read=1010,
    found_bad=10,
    shed_at_sources=False,
    dead_letters=10,
    lag={"a:b": 0},
    peak_lag={"a:b": 700},
    queries={"light": LIGHT, "heavy": HEAVY},
    hand=HAND,
    control=CONTROL,
    elastic=ELASTIC,
    windows=11,
    decided=11,
    refused=0,
    batches=50,
    missing_batches=0,
    metrics_dropped=0,
    memory_mb=4000.0,
    actions=(),
)
LAGGING = "lag above 2 s of traffic at the height of the rush"
LAGGING_AFTER = "lag above 2 s of traffic after that"
NAMED, RESCALED = "who holds the pipeline back, by spillway_capacity", "rescaled by spillway_rescale, while it ran"
WHOLE = "accuracy 1 again while the rush stays"
LOST = "light: rows lost / doubled / foreign, by lineage"


def light(**change: int) -> dict[str, QueryFlow]:
    return {"light": replace(LIGHT, output=replace(ALL_THERE, **change))}


def test_a_good_run_is_good_and_the_important_query_comes_first() -> None:
    rows = verdict(GOOD)
    assert all(r.good for r in rows)
    names = [r.what for r in rows]
    assert names.index("light: accuracy (priority 5)") < names.index("heavy: accuracy (priority 1)")


def test_both_measures_of_what_is_behind_are_shown() -> None:
    (row,) = (r.measured for r in verdict(GOOD) if r.what == LAGGING)
    assert row == "for 40 s, 3 cycles, peak 9.0 s; then at most 0.5 s (4.0 s with the batch that runs)"
    for_ever = replace(GOOD, control=replace(CONTROL, lagging_s=inf, lag_after_s=inf, waiting_after_s=inf))
    assert [r.measured for r in verdict(for_ever) if r.what == LAGGING] == ["peak 9.0 s, to the end of the rush"]
    later = replace(GOOD, control=replace(CONTROL, lag_after_s=inf, waiting_after_s=inf))
    assert [r.measured for r in verdict(later) if r.what == LAGGING] == ["for 40 s, 3 cycles, peak 9.0 s; over after the height"]


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"delivered": 1009}, "events in"),
        ({"asked": 0, "delivered": 0}, "events in"),
        ({"read": 1011}, "events processed"),
        ({"dead_letters": 9}, "garbage to dead letters"),
        ({"found_bad": 9, "dead_letters": 9}, "garbage to dead letters"),
        ({"found_bad": 9, "shed_at_sources": True}, "garbage to dead letters"),
        ({"found_bad": 11, "dead_letters": 11, "shed_at_sources": True}, "garbage to dead letters"),
        ({"queries": light(written=790)}, "light: accuracy (priority 5)"),
        ({"queries": light(lost=1)}, LOST),
        ({"queries": light(lost=-1)}, LOST),
        ({"queries": light(doubled=1)}, LOST),
        ({"queries": light(strange=1)}, LOST),
        ({"decided": 10}, "decisions of spillway_qod"),
        ({"windows": 0, "decided": 0}, "decisions of spillway_qod"),
        ({"refused": 1}, "decisions of spillway_qod"),
        ({"control": replace(CONTROL, lagging_s=46.0)}, LAGGING),
        ({"control": replace(CONTROL, lagging_s=inf)}, LAGGING),
        ({"control": replace(CONTROL, least={"light": 1.0, "heavy": 0.29})}, "least accuracy of any batch"),
        ({"control": replace(CONTROL, in_order=False)}, "who gave way"),
        ({"elastic": replace(ELASTIC, named=("heavy", "union"))}, NAMED),
        ({"elastic": replace(ELASTIC, named=(), named_s=inf)}, NAMED),
        ({"elastic": replace(ELASTIC, change=None)}, RESCALED),
        ({"elastic": replace(ELASTIC, change=replace(CHANGE, state="rolled_back", pause_s=None))}, RESCALED),
        ({"elastic": replace(ELASTIC, change=replace(CHANGE, more=False))}, RESCALED),
        ({"elastic": replace(ELASTIC, lagging_s=46.0)}, LAGGING_AFTER),
        ({"elastic": replace(ELASTIC, lagging_s=inf)}, LAGGING_AFTER),
        ({"elastic": replace(ELASTIC, held_s=29.0)}, WHOLE),
        ({"elastic": replace(ELASTIC, whole_s=inf, held_s=0.0)}, WHOLE),
        ({"elastic": replace(ELASTIC, load=0.98)}, WHOLE),
        ({"elastic": replace(ELASTIC, load=None)}, WHOLE),
        ({"elastic": replace(ELASTIC, shed_before=False)}, WHOLE),
        ({"control": replace(CONTROL, shed_kept=41_500)}, "rows kept where rows were shed"),
        ({"control": replace(CONTROL, shed_read=0, shed_kept=0, shed_expected=0.0)}, "rows kept where rows were shed"),
        ({"control": replace(CONTROL, batches_until=3)}, "a new keep is in force from"),
        ({"control": replace(CONTROL, batches_until=None)}, "a new keep is in force from"),
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


def test_garbage_may_be_shed_like_anything_else() -> None:
    assert all(r.good for r in verdict(replace(GOOD, found_bad=8, dead_letters=8, shed_at_sources=True)))


def test_what_few_rows_do_by_chance_is_not_held_against_the_shedder() -> None:
    few = replace(CONTROL, shed_read=432, shed_kept=179, shed_expected=172.8)
    assert all(r.good for r in verdict(replace(GOOD, control=few)))
