"""When operators grow and shrink, by how much, and what every pass says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from spillway.decide.rescale import plan_rescale
from spillway.decide.rescale.examples import NOW, ads, operator, world
from spillway.model.rescale import Change, Flow, Frozen, Kind, Outcome, RescaleWorld, Room, Sample
from spillway.model.rescale_plan import Reason, RescalePlan, Stage
from spillway.policy import Policy

POLICY = Policy()
IDLE: dict[str, Any] = {"rate": 50.0, "needed": 50.0, "peak": 90.0, "bottleneck_for": 0, "capacity": 800.0, "parallelism": 8}
DAY_S = 86_400.0


def change(hours: float = 2.0, **changed: Any) -> Change:
    values: dict[str, Any] = {
        "at": NOW - timedelta(hours=hours), "operator": "count", "application": "count", "kind": Kind.RESTART,
        "executors_from": 1, "executors_to": 2,
    }  # fmt: skip
    return Change(**{**values, **changed})


def only(seen: RescaleWorld, policy: Policy = POLICY) -> RescalePlan:
    (plan,) = plan_rescale(seen, policy).plans
    return plan


# ---- when ----


def test_a_bottleneck_that_persists_is_sized_for_what_is_needed() -> None:
    plan = only(world())
    assert (plan.changes, plan.executors_from, plan.executors_to) == (True, 2, 6)
    assert (plan.reason, plan.needed_rate, plan.rate_before) == (Reason.BOTTLENECK_PERSISTS, 600.0, 300.0)
    assert plan.expected_rate is not None and plan.expected_rate >= 600.0 / 0.75
    assert [p.stage for p in plan.passes] == [Stage.TARGET]


@pytest.mark.parametrize("times", [0, 1, 2])
def test_one_that_does_not_persist_waits(times: int) -> None:
    plan = only(world(operator(bottleneck_for=times)))
    assert not plan.changes
    assert plan.reason is (Reason.NOT_PERSISTENT if times else Reason.WITHIN_BAND)


def test_infeasible_floors_do_not_wait() -> None:
    short = operator(bottleneck_for=1)
    assert only(world(short, floors_infeasible=True)).reason is Reason.FLOORS_INFEASIBLE
    missed = operator(bottleneck_for=0, needed=100.0, instances_short=3)
    plan = only(world(missed, floors_infeasible=True))
    assert (plan.executors_to, plan.passes[0].reason) == (5, Reason.FLOOR_INSTANCES)
    assert not only(world(missed)).changes


def test_a_bottleneck_that_could_carry_what_is_needed_stays() -> None:
    assert only(world(operator(needed=200.0))).reason is Reason.WITHIN_BAND
    drains = world(
        operator(needed=None), edges=(Flow(producer=None, topic="t", consumer="count", arrival=200.0, backlog=36_000.0),)
    )
    assert only(drains).reason is Reason.WITHIN_BAND, "60 rows/s on top, for ten minutes, are what it has room for"
    assert only(drains, Policy(rescale_drain_horizon_s=60.0)).changes


def test_a_bottleneck_of_unknown_need_gets_a_cautious_step() -> None:
    plan = only(world(operator(needed=None)))
    assert (plan.executors_to, plan.needed_rate) == (3, 300.0)


@pytest.mark.parametrize(
    ("lost", "reason", "missing"),
    [
        ({"capacity": None, "rate": None}, Reason.CAPACITY_UNKNOWN, ("operators.count.capacity",)),
        ({"needed": None}, Reason.NEEDED_UNKNOWN, ("operators.count.needed",)),
    ],
)
def test_what_is_missing_is_said_and_changes_nothing(lost: dict[str, Any], reason: Reason, missing: tuple[str, ...]) -> None:
    decision = plan_rescale(world(operator(**{"bottleneck_for": 0, **lost})), POLICY)
    assert (decision.plans[0].reason, decision.missing, decision.changes) == (reason, missing, ())


def test_whoever_would_be_next_is_sized_in_the_same_decision() -> None:
    chain = replace(ads(), edges=(replace(ads().edges[0], arrival=6000.0), ads().edges[1]))
    decision = plan_rescale(chain, POLICY)
    assert [(p.operator, p.reason) for p in decision.changes] == [
        ("parse", Reason.NEXT_BOTTLENECK),
        ("count", Reason.BOTTLENECK_PERSISTS),
    ]
    rates = decision.needed
    assert all(p.expected_rate is not None and p.expected_rate >= rates[p.operator] for p in decision.changes)


def test_nobody_follows_one_that_cannot_grow() -> None:
    parse, count = ads().operators
    chain = replace(
        ads(), operators=(parse, replace(count, max=1)), edges=(replace(ads().edges[0], arrival=6000.0), ads().edges[1])
    )
    decision = plan_rescale(chain, POLICY)
    assert decision.changes == ()
    assert decision.plan("count").reason is Reason.CLAMPED_TO_MAX
    assert decision.plan("count").words.endswith("max of count is 1")
    assert decision.plan("parse").reason is Reason.WITHIN_BAND


def test_those_that_follow_are_sized_for_what_gets_through() -> None:
    parse, count = ads().operators
    seen = replace(ads(), edges=(replace(ads().edges[0], arrival=30_000.0), ads().edges[1]))
    whole = plan_rescale(replace(seen, operators=(replace(parse, max=None), replace(count, max=None))), POLICY)
    capped = plan_rescale(replace(seen, operators=(replace(parse, max=None), replace(count, max=8))), POLICY)
    assert capped.plan("count").executors_to == 8
    assert capped.plan("parse").executors_to < whole.plan("parse").executors_to


# ---- down ----


def test_down_only_after_a_window_that_would_have_fitted() -> None:
    idle = operator(**IDLE)
    assert only(world(idle, window_s=DAY_S - 1.0)).reason is Reason.WITHIN_BAND
    plan = only(world(idle, window_s=DAY_S))
    assert (plan.reason, plan.executors_to) == (Reason.UNDERUSED, 4)
    assert [(p.stage, p.before, p.after) for p in plan.passes] == [(Stage.TARGET, 8, 2), (Stage.STEP_LIMIT, 2, 4)]
    assert not only(world(operator(**{**IDLE, "peak": 600.0}), window_s=DAY_S)).changes
    assert not only(world(operator(**{**IDLE, "peak": None}), window_s=DAY_S)).changes


@pytest.mark.parametrize("trouble", [{"bottleneck_for": 1}, {"needed": 790.0}])
def test_no_down_while_there_is_trouble(trouble: dict[str, Any]) -> None:
    assert not only(world(operator(**{**IDLE, **trouble}), window_s=DAY_S)).changes
    assert not plan_rescale(world(operator(**IDLE), floors_infeasible=True, window_s=DAY_S), POLICY).changes
    other = operator("other", bottleneck_for=1, needed=10.0)
    assert not plan_rescale(world(operator(**IDLE), other, window_s=DAY_S), POLICY).changes


def test_up_and_down_never_meet_in_one_decision() -> None:
    decision = plan_rescale(world(operator("big", **IDLE), operator("short"), window_s=DAY_S), POLICY)
    assert [p.operator for p in decision.changes] == ["short"]


def test_freeing_next_to_nothing_is_not_worth_a_pause() -> None:
    busy = {"rate": 700.0, "needed": 700.0, "peak": 750.0, "bottleneck_for": 0, "capacity": 1000.0, "parallelism": 40, "max": 50}
    decision = plan_rescale(world(operator("a", **IDLE), operator("b", **busy), window_s=DAY_S), POLICY)
    assert decision.plan("a").reason is Reason.SAVES_LITTLE and decision.changes == ()
    assert decision.plan("a").words == "all that can be smaller would free 4 of 48 executors, which is not worth a pause"
    assert plan_rescale(
        world(operator("a", **IDLE), operator("b", **busy), window_s=DAY_S), Policy(rescale_down_saves=0.05)
    ).changes


def test_operators_of_one_application_shrink_together_or_not_at_all() -> None:
    idle, half = operator("a", application="app", **IDLE), operator("b", application="app", **{**IDLE, "peak": 190.0})
    plan = only(world(idle, half, window_s=DAY_S), Policy(rescale_down_factor=8.0))
    assert (plan.operator, plan.executors_to) == ("b", 4)
    assert not only(world(idle, replace(half, peak=700.0), window_s=DAY_S)).changes


# ---- how far ----


def test_operators_of_one_application_grow_together() -> None:
    small, large = operator("a", application="app"), operator("b", application="app", needed=900.0)
    plan = only(world(small, large))
    assert (plan.operator, plan.application, plan.executors_to) == ("b", "app", 10)


def test_an_operator_that_scales_badly_is_sized_by_its_own_past() -> None:
    bad = operator(seen=(Sample(parallelism=1, capacity=170.0),))
    learned, assumed = only(world(bad)), only(world())
    assert learned.passes[0].reason is Reason.SIZED_BY_OWN_CURVE and assumed.passes[0].reason is Reason.SIZED_BY_PRIOR
    assert learned.executors_to > assumed.executors_to
    again = only(
        world(history=(change(rate_before=170.0, observed_rate=300.0, effective=True),)), Policy(rescale_cooldown_up_s=0.0)
    )
    assert again.passes[0].reason is Reason.SIZED_BY_OWN_CURVE


def test_more_is_not_asked_of_one_that_more_does_not_help() -> None:
    stuck = operator(
        parallelism=4, needed=3000.0, seen=(Sample(parallelism=2, capacity=295.0), Sample(parallelism=3, capacity=299.0))
    )
    plan = only(world(stuck))
    assert plan.reason is Reason.CURVE_SATURATES and not plan.changes
    assert "next to nothing" in plan.words


def test_every_further_step_up_leaves_more_room() -> None:
    ups = (change(5.0, decision="1"), change(2.0, decision="2"))
    first, third = only(world()), only(world(history=ups))
    assert third.executors_to > 1.3 * first.executors_to
    since_a_down = (*ups, change(1.0, executors_from=3, executors_to=2, decision="3"))
    assert only(world(history=since_a_down)).executors_to == first.executors_to
    old = (change(30.0, decision="1"), change(20.0, decision="2"))
    assert only(world(history=old)).executors_to == first.executors_to


def test_what_was_taken_away_within_a_week_comes_back_at_once() -> None:
    down = change(30.0, executors_from=16, executors_to=2, decision="1")
    plan = only(world(operator(needed=310.0), history=(down,)))
    assert (plan.executors_to, plan.passes[0].reason) == (6, Reason.BACK_TO_BEFORE), "but no more than twice what is needed"
    beside = operator("beside", capacity=1000.0, needed=650.0, rate=650.0, bottleneck_for=0)
    both = world(operator(), beside, history=(replace(down, operator="beside", application="beside", executors_from=3),))
    assert [(p.operator, p.reason) for p in plan_rescale(both, POLICY).changes] == [
        ("count", Reason.BOTTLENECK_PERSISTS),
        ("beside", Reason.BACK_TO_BEFORE),
    ]
    assert len(plan_rescale(replace(both, now=NOW + timedelta(days=8)), POLICY).changes) == 1


def test_a_bottleneck_gets_a_step_that_is_worth_it() -> None:
    plan = only(
        world(operator(parallelism=40, max=100, needed=301.0)),
        Policy(rescale_target_utilisation=0.99, rescale_up_utilisation=1.0),
    )
    assert plan.executors_to == 45


# ---- the passes ----


@pytest.mark.parametrize(
    ("seen", "policy", "stage", "reason", "to"),
    [
        (world(operator(max=None, needed=30_000.0)), {"rescale_step_factor": 4.0}, Stage.STEP_LIMIT, Reason.STEP_LIMITED, 8),
        (world(operator(max=4)), {}, Stage.BOUNDS, Reason.CLAMPED_TO_MAX, 4),
        (world(operator(node="n1"), nodes=(Room(name="n1", free=1),)), {}, Stage.BOUNDS, Reason.CLAMPED_TO_NODE, 3),
        (world(operator(**{**IDLE, "min": 6}), window_s=DAY_S), {}, Stage.BOUNDS, Reason.CLAMPED_TO_MIN, 6),
        (world(operator(stateful=True, buckets=4), repartition=False), {}, Stage.BUCKETS, Reason.CLAMPED_TO_BUCKETS, 4),
        (world(operator(stateful=True, buckets=4)), {}, Stage.BUCKETS, Reason.BUCKETS_RAISED, 6),
    ],
)
def test_passes_that_limit(seen: RescaleWorld, policy: dict[str, Any], stage: Stage, reason: Reason, to: int) -> None:
    plan = only(seen, Policy(**policy))
    assert plan.changes and plan.executors_to == to
    assert (plan.passes[-1].stage, plan.passes[-1].reason) == (stage, reason)
    assert plan.passes[-1].words


@pytest.mark.parametrize(
    ("seen", "policy", "reason"),
    [
        (world(operator(max=2)), {}, Reason.CLAMPED_TO_MAX),
        (world(operator(node="n1"), nodes=(Room(name="n1", free=0),)), {}, Reason.CLAMPED_TO_NODE),
        (world(operator(node="n1"), nodes=(Room(name="n1", idle=0.1), Room(name="n2", idle=0.05))), {}, Reason.NO_IDLE_CPU),
        (world(nodes=(Room(name="n1", idle=0.1), Room(name="n2", idle=0.05))), {}, Reason.NO_IDLE_CPU),
        (world(operator(stateful=True, buckets=2), repartition=False), {}, Reason.CLAMPED_TO_BUCKETS),
        (world(operator(stateful=True, buckets=1), repartition=False), {}, Reason.CLAMPED_TO_BUCKETS),
        (world(operator(**{**IDLE, "parallelism": 40, "peak": 460.0, "max": 50}), window_s=DAY_S), {}, Reason.WITHIN_TOLERANCE),
        (world(), {"rescale_quota_per_day": 0}, Reason.QUOTA),
        (world(history=tuple(change(20.0 - n) for n in range(4))), {}, Reason.QUOTA),
        (world(operator(**IDLE), window_s=DAY_S, history=tuple(change(20.0 - n) for n in range(2))), {}, Reason.QUOTA_KEPT),
        (world(history=(change(0.01),)), {}, Reason.COOL_DOWN),
        (world(history=(change(2.0, ended_at=NOW - timedelta(seconds=20)),)), {}, Reason.COOL_DOWN),  # it took two hours
        (world(operator(**IDLE), window_s=DAY_S, history=(change(0.5),)), {}, Reason.COOL_DOWN),
        (world(), {"rescale_frozen": "sun 09:00-11:00"}, Reason.FROZEN_PERIOD),
        (world(frozen=(Frozen(start=NOW, end=NOW + timedelta(hours=1), why="release"),)), {}, Reason.FROZEN_PERIOD),
        (world(history=(change(effective=False),)), {}, Reason.INEFFECTIVE_BEFORE),
        (
            world(history=(change(0.2, executors_from=2, executors_to=6, outcome=Outcome.ROLLED_BACK),)),
            {},
            Reason.ROLLED_BACK_BEFORE,
        ),
        (
            world(
                history=(
                    change(2.0, executors_from=2, executors_to=6, outcome=Outcome.FAILED, ended_at=NOW - timedelta(seconds=600)),
                )
            ),
            {},
            Reason.ROLLED_BACK_BEFORE,
        ),
        (world(operator(committed=False)), {}, Reason.STATE_NOT_COMMITTED),
        (world(running=("count",)), {}, Reason.PLAN_RUNNING),
    ],
)
def test_passes_that_forbid(seen: RescaleWorld, policy: dict[str, Any], reason: Reason) -> None:
    plan = only(seen, Policy(**policy))
    assert (plan.changes, plan.reason) == (False, reason)
    assert plan.executors_to == plan.executors_from and plan.words and plan.kind is None and plan.steps == ()


@pytest.mark.parametrize(
    ("history", "free"),
    [
        (tuple(change(20.0 - n, decision="one") for n in range(6)), True),
        (tuple(change(20.0 - n, decision=str(n)) for n in range(4)), False),
        (tuple(change(30.0 - n, decision=str(n)) for n in range(4)), True),
    ],
    ids=["changes of one decision count once", "used up", "a day is over"],
)
def test_the_quota_counts_decisions_of_a_day(history: tuple[Change, ...], free: bool) -> None:
    assert only(world(history=history)).changes is free


@pytest.mark.parametrize(
    ("past", "free"),
    [
        (change(23.0, effective=False), False),
        (change(25.0, effective=False), True),
        (change(effective=True), True),
        (change(effective=None), True),
        (change(effective=False, executors_from=4, executors_to=2), True),
        (change(effective=False, application="other", operator="other"), True),
        (change(0.2, executors_from=2, executors_to=6, outcome=Outcome.FAILED), False),
        (change(0.6, executors_from=2, executors_to=6, outcome=Outcome.FAILED), True),
        (change(0.2, executors_from=2, executors_to=9, outcome=Outcome.FAILED), True),
    ],
)
def test_only_what_did_not_work_is_not_repeated(past: Change, free: bool) -> None:
    assert only(world(history=(past,)), Policy(rescale_quota_per_day=9)).changes is free


def test_a_later_change_that_worked_lifts_the_block() -> None:
    assert not only(world(history=(change(5.0, effective=False),))).changes
    assert only(world(history=(change(5.0, effective=False), change(3.0, effective=True)))).changes


def test_a_scaling_down_that_had_to_be_taken_back_is_not_tried_again_for_a_week() -> None:
    idle, policy = operator(**IDLE), Policy(rescale_quota_per_day=9)
    down, up = change(60.0, executors_from=8, executors_to=4), change(50.0, executors_from=4, executors_to=8)
    plan = only(world(idle, window_s=DAY_S, history=(down, up)), policy)
    assert (plan.changes, plan.reason) == (False, Reason.INEFFECTIVE_BEFORE)
    assert plan.words.endswith("it had to grow again after it was scaled down to 4 executors within the last week")
    week = timedelta(days=7)
    old = (replace(down, at=down.at - week), replace(up, at=up.at - week))
    for history in (old, (up, replace(down, at=NOW - timedelta(hours=5))), (down,)):
        assert only(world(idle, window_s=DAY_S, history=history), policy).changes


def test_while_a_plan_runs_the_whole_pipeline_waits() -> None:
    decision = plan_rescale(world(operator("a"), operator("b"), running=("b",)), POLICY)
    assert [p.reason for p in decision.plans] == [Reason.PLAN_RUNNING] * 2


def test_what_is_decided_is_json_with_every_pass() -> None:
    found = json.loads(plan_rescale(world(operator(max=4, stateful=True, buckets=3)), POLICY).to_json())
    (plan,) = found["plans"]
    assert (plan["target"], plan["kind"], plan["executors"]) == (4, "shadow", {"from": 2, "to": 4})
    assert [(p["pass"], p["from"], p["to"], p["reason"]) for p in plan["passes"]] == [
        ("target", 2, 6, "sized_by_prior"),
        ("bounds", 6, 4, "clamped_to_max"),
        ("buckets", 3, 6, "buckets_raised"),
    ]
    assert plan["expected_rate"] > plan["rate_before"] and plan["expected_pause_s"] > 0
    assert found["needed"] == {"count": 600.0}


def test_edges_may_be_all_there_is() -> None:
    seen = world(operator(needed=None), edges=(Flow(producer=None, topic="t", consumer="count", arrival=600.0),))
    assert only(seen).executors_to == only(world()).executors_to


# ---- where ----

BUSY = (Room(name="n1", idle=0.6), Room(name="n2", idle=0.05))


def test_where_the_node_has_no_cpu_left_executors_may_be_on_any() -> None:
    """Another one there would only share what those it has use up."""
    plan = only(world(operator(node="n2", parallelism=1), nodes=BUSY))
    assert (plan.changes, plan.kind, plan.node_from, plan.node_to) == (True, Kind.HANDOVER, "n2", None)
    assert plan.passes[-1].reason is Reason.SPREAD_OVER_NODES
    assert "from n2 to any node" in plan.words


@pytest.mark.parametrize(
    ("node", "nodes"),
    [
        ("n1", BUSY),  # there is CPU
        (None, BUSY),  # it is on any already
        ("n2", (Room(name="n1"), Room(name="n2"))),  # nobody knows
    ],
)
def test_otherwise_they_stay_where_they_are(node: str | None, nodes: tuple[Room, ...]) -> None:
    plan = only(world(operator(node=node, parallelism=1), nodes=nodes))
    assert plan.changes and plan.node_to == plan.node_from == node


@pytest.mark.parametrize("others", [(Room(name="n1", idle=0.1),), ()])
def test_while_no_node_has_cpu_nothing_is_scaled_up(others: tuple[Room, ...]) -> None:
    plan = only(world(operator(node="n2", parallelism=1), nodes=(*others, Room(name="n2", idle=0.05))))
    assert (plan.changes, plan.reason) == (False, Reason.NO_IDLE_CPU)
    assert "no node has CPU for another executor" in plan.words


def test_what_a_shed_query_leaves_idle_is_no_room_for_what_it_sheds() -> None:
    """One executor is busy for four fifths of its time because the rest is shed; two would need more than its node has."""
    idle = Room(name="n1", idle=0.5), Room(name="n2", idle=0.25)
    shed = operator(node="n2", parallelism=1, utilisation=0.8, needed=420.0)
    assert only(world(shed, nodes=idle)).node_to is None
    roomy = Room(name="n1", idle=3.0), Room(name="n2", idle=1.5)
    assert only(world(shed, nodes=roomy)).node_to == "n2"


def test_a_node_without_cpu_does_not_matter_on_the_way_down() -> None:
    plan = only(world(operator(**IDLE, node="n2"), nodes=BUSY, window_s=DAY_S))
    assert (plan.executors_to < plan.executors_from, plan.node_to) == (True, "n2")


def test_what_is_left_of_a_node_survives_the_interchange() -> None:
    seen = world(operator(node="n2"), nodes=BUSY)
    assert RescaleWorld.from_json(seen.to_json()).nodes == BUSY
