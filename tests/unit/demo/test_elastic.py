"""What became of a rush that stays."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from spillway.demo.course import Rush
from spillway.demo.elastic import Change, Elastic, elastic

RUSH = Rush(begins_s=20.0, ends_s=240.0, peak=600.0)
CHANGE = Change(
    operator="heavy",
    words="heavy: executors 1 → 2, by handover",
    state="done",
    asked_s=70.0,
    told_s=130.0,
    pause_s=2.5,
    steady_s=2.0,
    more=True,
)
NAMED = [(20.0, ("light",)), (40.0, ()), (60.0, ("heavy",)), (80.0, ("heavy", "union"))]
STEPS = [(0.0, {"heavy": 1.0}), (40.0, {"heavy": 0.5}), (150.0, {"heavy": 0.8}), (200.0, {"heavy": 1.0}), (239.0, {"heavy": 1.0})]
BEHIND = {
    "union:heavy": [(t, 9.0 if t in (30.0, 132.0) else 0.5) for t in (21.0, 30.0, 40.0, *(130.0 + 2.0 * n for n in range(55)))]
}


def found(**changed: object) -> Elastic:
    values: dict[str, object] = {
        "operator": "heavy",
        "within": RUSH,
        "found": NAMED,
        "change": CHANGE,
        "behind": BEHIND,
        "steps": STEPS,
        "load": 1.33,
        "cycle_s": 15.0,
    }
    return elastic(**{**values, **changed})  # type: ignore[arg-type]


def test_a_rush_that_was_answered() -> None:
    answered = found()
    assert (answered.named, answered.named_s) == (("heavy",), 40.0)
    assert (answered.whole_s, answered.held_s) == (180.0, 40.0)
    assert answered.lagging_s == 4.0  # from being told, at 130, to the batch at 134; the lag before it is not of the change


def test_every_lag_after_the_change_counts_and_what_edges_share_counts_once() -> None:
    late = [(t, 9.0 if t in (132.0, 180.0, 182.0) else lag) for t, lag in BEHIND["union:heavy"]]
    beside = [(t, 9.0 if t in (182.0, 184.0) else 0.5) for t, _ in late]
    assert found(behind={"union:heavy": late}).lagging_s == 4.0 + 6.0
    assert found(behind={"union:heavy": late, "union:light": beside}).lagging_s == 4.0 + 8.0


def test_a_while_without_any_batch_counts_where_a_lag_follows() -> None:
    quiet = [(t, lag) for t, lag in BEHIND["union:heavy"] if not 130.0 <= t < 144.0]
    assert found(behind={"union:heavy": [(t, 9.0 if t == 144.0 else lag) for t, lag in quiet]}).lagging_s == 16.0


@pytest.mark.parametrize("change", [None, replace(CHANGE, told_s=None)])
def test_without_a_change_the_lag_after_it_has_no_end(change: Change | None) -> None:
    assert found(change=change).lagging_s == inf


def test_a_lag_that_stays_is_for_ever() -> None:
    assert found(behind={"union:heavy": [(t, 9.0) for t, _ in BEHIND["union:heavy"]]}).lagging_s == inf


def test_whoever_sheds_again_before_the_end_is_not_whole() -> None:
    again = found(steps=[*STEPS, (239.5, {"heavy": 0.9})])
    assert (again.whole_s, again.held_s) == (inf, 0.0)


def test_nobody_named_in_the_rush_is_nobody() -> None:
    nobody = found(found=[(20.0, ("heavy",)), (60.0, ())])
    assert (nobody.named, nobody.named_s) == ((), inf)
