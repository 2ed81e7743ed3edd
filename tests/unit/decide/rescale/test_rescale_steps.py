"""Plans as steps, with what going back means, and plans that take a plan back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.decide.rescale import STEPS, inverse, plan_request, steps
from spillway.decide.rescale.examples import ads, operator
from spillway.decide.rescale.steps import Back, returns
from spillway.model.rescale import Kind, Request, Room
from spillway.model.rescale_plan import Reason, RescalePlan
from spillway.policy import Policy

POLICY = Policy()
NAMES = {
    Kind.RESTART: ["validate", "order", "stopped", "started", "verify", "digest", "done"],
    Kind.EXECUTORS: ["validate", "order", "scaled", "verify", "digest", "done"],
    Kind.HANDOVER: ["validate", "launch", "rehearsed", "cutover", "taken_over", "verify", "digest", "done"],
    Kind.SHADOW: ["validate", "launch", "repartitioned", "caught_up", "cutover", "taken_over", "verify", "digest", "done"],
}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_its_steps_with_a_time_limit(kind: Kind) -> None:
    assert [step.name for step in STEPS[kind]] == NAMES[kind]
    assert all(step.timeout_s(POLICY) > 0.0 and step.waits_for for step in STEPS[kind])


@pytest.mark.parametrize("kind", Kind)
def test_what_can_be_abandoned_comes_before_what_cannot(kind: Kind) -> None:
    can = [returns(kind, step.name) for step in STEPS[kind]]
    assert can == sorted(can, reverse=True) and can[0] and not can[-1]
    made = [step.back for step in STEPS[kind] if step.name in ("verify", "digest")]
    assert made == [Back.INVERSE, Back.INVERSE], "a change that is made and not good is taken back"


def test_a_plan_carries_the_names_of_its_steps() -> None:
    for kind in Kind:
        plan = plan_request(ads(), Request(operator="count", to=2, kind=kind), POLICY)
        assert plan.steps == tuple(step.name for step in steps(plan)) == tuple(NAMES[kind])
    assert steps(RescalePlan.no_change(operator(), Reason.WITHIN_BAND)) == ()


def test_the_inverse_of_the_inverse_is_where_it_began() -> None:
    seen = replace(ads(), nodes=(Room(name="n1"), Room(name="n2")))
    plan = plan_request(seen, Request(operator="count", to=4, buckets=16, node="n2"), POLICY)
    back = inverse(plan)
    assert (back.executors_from, back.executors_to, back.buckets_from, back.buckets_to) == (4, 1, 16, 8)
    assert (back.node_from, back.node_to, back.kind, back.reason) == ("n2", None, Kind.SHADOW, Reason.ROLL_BACK)
    assert (back.rate_before, back.expected_rate) == (plan.expected_rate, plan.rate_before)
    again = inverse(back)
    assert replace(again, words=plan.words, reason=plan.reason) == plan


def test_nothing_cannot_be_taken_back() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        inverse(RescalePlan.no_change(operator(), Reason.WITHIN_BAND))
