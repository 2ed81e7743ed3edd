"""What has to be written so that the store says what was decided, and whether it came as expected."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from spillway.act.publish import Life, compare, puts, unchanged
from spillway.policy import Policy
from spillway.store.settings import Setting

from tests.support.windows import changed, window

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TTL = 60.0
LIFE = Life(ttl_s=TTL, cycle_s=15.0, now=NOON)


def setting(keep: float, *, age_s: float = 5.0, ttl_s: float | None = TTL) -> Setting:
    return Setting(
        pipeline="taxi", edge="union:heavy", keep=keep, decision_id=1, issued_at=NOON - timedelta(seconds=age_s), ttl_s=ttl_s,
        issued_by="qod", reason="",
    )  # fmt: skip


def due(keep: float, current: Setting | None) -> list[tuple[float, float | None, bool]]:
    edges = [{"name": "union:heavy", "keep": keep, "reason": "why"}]
    return [
        (p.keep, p.ttl_s, p.changes) for p in puts(edges, {"union:heavy": current} if current else {}, LIFE)
    ]  # fmt: skip


def test_what_was_never_set_and_keeps_everything_stays_unset():
    assert due(1.0, None) == []


def test_a_first_keep_and_a_changed_one_are_written_with_a_time_to_live():
    assert due(0.5, None) == [(0.5, TTL, True)]
    assert due(0.4, setting(0.5)) == [(0.4, TTL, True)]


def test_everything_again_needs_no_time_to_live():
    assert due(1.0, setting(0.5)) == [(1.0, None, True)]
    assert due(1.0, setting(1.0, ttl_s=None)) == []
    assert due(1.0, setting(1.0)) == [(1.0, None, False)], "one that would lapse is made to stay"


@pytest.mark.parametrize(
    ("age_s", "written"), [(5.0, False), (14.0, False), (15.0, True), (59.0, True), (90.0, True)], ids=lambda v: str(v)
)  # fmt: skip
def test_a_keep_is_refreshed_while_three_cycles_of_it_are_left(age_s, written):
    assert due(0.5, setting(0.5, age_s=age_s)) == ([(0.5, TTL, False)] if written else [])


def test_a_long_life_is_refreshed_when_half_of_it_is_over():
    long = Life(ttl_s=600.0, cycle_s=15.0, now=NOON)
    assert not long.due(setting(0.5, age_s=299.0, ttl_s=600.0))
    assert long.due(setting(0.5, age_s=300.0, ttl_s=600.0))


@pytest.mark.parametrize(("cycle_s", "ttl_s"), [(5.0, 60.0), (15.0, 60.0), (60.0, 240.0)])
def test_a_keep_outlives_three_cycles_that_decide_nothing(cycle_s, ttl_s):
    assert Life.of(Policy(), cycle_s, NOON).ttl_s == ttl_s
    assert ttl_s >= 4 * cycle_s


@pytest.mark.parametrize(
    ("current", "kept"),
    [
        (setting(0.5, age_s=20.0), [(0.5, TTL)]),
        (setting(0.5, age_s=5.0), []),
        (setting(0.5, age_s=60.0), []),
        (setting(0.5, age_s=20.0, ttl_s=None), []),
        (replace(setting(0.5, age_s=20.0), issued_by="ann"), []),
    ],
    ids=["in force", "young", "lapsed", "without an end", "of a person"],
)
def test_what_is_kept_alive_without_a_decision(current, kept):
    found = unchanged({"union:heavy": current}, LIFE)
    assert [(p.keep, p.ttl_s) for p in found] == kept
    assert not any(p.changes for p in found)


def test_a_keep_without_an_end_gets_one():
    assert due(0.5, setting(0.5, ttl_s=None)) == [(0.5, TTL, False)]


EXPECTED = {
    "keep": {"taxi.yellow:union": 1.0, "taxi.green:union": 1.0, "union:light": 1.0, "union:heavy": 1.0},
    "accuracy": {"union": 1.0, "light": 1.0, "heavy": 1.0},
    "cpu": {"n1": 90.0, "n2": 30.0},
}


def test_a_decision_whose_keeps_and_accuracies_came_is_confirmed():
    found = compare(EXPECTED, window(), "taxi")
    assert (found["verdict"], found["missed"]) == ("confirmed", [])
    assert found["accuracy"]["heavy"] == {"expected": 1.0, "measured": 1.0}
    assert found["cpu"]["n1"] == {"expected": 90.0, "measured": 90.0}


def test_a_keep_that_is_not_in_force_is_missed():
    found = compare(EXPECTED, changed(window(), "edges", 3, keep=0.5), "taxi")
    assert found["missed"] == ["keep of union:heavy is 0.5 instead of 1"]


@pytest.mark.parametrize(("share", "missed"), [(0.96, []), (0.8, ["accuracy of heavy is 0.8 instead of 1"]), (1.7, [])])
def test_an_accuracy_that_falls_short_is_missed(share, missed):
    assert compare(EXPECTED, changed(window(), "edges", 3, share=share), "taxi")["missed"] == missed


def test_what_was_not_measured_is_neither():
    found = compare(EXPECTED, changed(window(), "edges", 3, share=None), "taxi")
    assert found["accuracy"]["heavy"] == {"expected": 1.0, "measured": None}
    assert found["verdict"] == "confirmed"


def quiet(found, *operators):
    """The window as it is where these ran no batch, and what is known of them is from before."""
    old = [replace(o, batches=0) if o.operator in operators else o for o in found.operators]
    edges = [replace(e, keep=0.5, share=0.5) if e.consumer in operators else e for e in found.edges]
    return replace(found, operators=tuple(old), edges=tuple(edges))


def test_an_operator_without_a_batch_in_the_window_is_not_compared():
    found = compare(EXPECTED, quiet(window(), "heavy"), "taxi")
    assert (found["verdict"], found["missed"]) == ("confirmed", [])
    assert found["keep"]["union:heavy"] == {"expected": 1.0, "measured": None}
    assert found["keep"]["union:light"] == {"expected": 1.0, "measured": 1.0}
    assert found["accuracy"]["heavy"] == {"expected": 1.0, "measured": None}
    assert found["accuracy"]["light"] == {"expected": 1.0, "measured": 1.0}


def test_a_window_without_batches_tells_nothing_of_a_decision():
    assert compare(EXPECTED, quiet(window(), "union", "light", "heavy"), "taxi") is None
