"""Rules between the steps of a plan."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.gates.plans import check_plan

GOOD: dict[str, Any] = {
    "subject": "count", "overtaken": None, "lives": True, "moving": None, "executors": 4, "beyond_bounds": 0, "buckets": 8,
    "buckets_short": -4, "stateful": 1, "batch_id": 41, "beyond_kind": None, "engine": None, "node_seen": True,
}  # fmt: skip


def rules(**tables: Any) -> list[str]:
    return sorted(f.rule for f in check_plan("ads", **tables)[1])


def test_a_plan_that_all_speaks_for_passes():
    assert check_plan("ads", plan=[GOOD]) == (9, ())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"overtaken": "it was stopped"}, "nothing_to_have_changed_meanwhile"),
        ({"lives": False}, "application_to_run"),
        ({"moving": "n2"}, "no_move_under_way"),
        ({"beyond_bounds": 2}, "executors_within_bounds"),
        ({"beyond_bounds": -1}, "executors_within_bounds"),
        ({"buckets_short": 1}, "bucket_for_every_executor"),
        ({"batch_id": None}, "state_to_be_committed"),
        ({"beyond_kind": "executors cannot change its buckets"}, "kind_to_suffice"),
        ({"engine": "Spark 4.1 cannot"}, "engine_to_repartition"),
        ({"node_seen": False}, "target_node_to_be_there"),
    ],
)
def test_each_rule_has_its_say(change, rule):
    assert rules(plan=[{**GOOD, **change}]) == [rule]


def test_without_state_no_batch_is_needed():
    assert rules(plan=[{**GOOD, "batch_id": None, "stateful": 0}]) == []


def test_batches_offsets_and_state():
    joint = {"subject": "in:count[0]", "batch_id": 8, "gap": 0, "overlap": 0}
    assert rules(batches=[{"subject": "count", "batches": 3, "batches_short": 0}], offsets=[joint]) == []
    assert rules(batches=[{"subject": "count", "batches": 1, "batches_short": 2}], offsets=[]) == ["first_batches_to_commit"]
    assert rules(offsets=[{**joint, "gap": 3}, {**joint, "overlap": 1}]) == ["offsets_without_gap", "offsets_without_overlap"]
    state = {"subject": "count", "uncounted": 0, "rows_beside": 0, "same_checksum": True}
    assert rules(state=[state]) == []
    assert rules(state=[{**state, "rows_beside": -1, "same_checksum": False}]) == [
        "state_checksum_to_be_equal",
        "state_rows_to_be_equal",
    ]
    assert rules(state=[{**state, "uncounted": 2}]) == ["every_bucket_to_be_counted"]
