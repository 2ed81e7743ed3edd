"""What a person asks for: planned, or refused with a sentence that says what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from spillway.decide.rescale import plan_request
from spillway.decide.rescale.examples import NOW, ads, operator, world
from spillway.model.rescale import Change, Frozen, Kind, Request, RescaleWorld, Room
from spillway.model.rescale_plan import Answer, Reason
from spillway.policy import Policy

POLICY = Policy()
COUNT = ads().operators[1]
NODES = (Room(name="n1", free=3), Room(name="n2", free=8))


def with_count(**changed: Any) -> RescaleWorld:
    return replace(ads(), operators=(ads().operators[0], replace(COUNT, **changed)))


def ask(**wanted: Any) -> Request:
    return Request(**{"operator": "count", **wanted})


def past(number: int) -> Change:
    at = NOW - timedelta(hours=20 - number)
    return Change(at=at, operator="count", application="count", kind=Kind.RESTART, executors_from=1, executors_to=2)


@pytest.mark.parametrize(
    ("seen", "wanted", "policy", "reason", "words"),
    [
        (ads(), ask(operator="counts", to=2), {}, Reason.UNKNOWN_OPERATOR, "there is no operator counts; did you mean count?"),
        (ads(), ask(operator="x", to=2), {}, Reason.UNKNOWN_OPERATOR, "there is no operator x; known are count, parse"),
        (ads(), ask(to=9), {}, Reason.OUT_OF_BOUNDS, "count cannot have 9 executors: its bounds are 1 to 8; ask for a number"),
        (ads(), ask(to=0), {}, Reason.OUT_OF_BOUNDS, "count cannot have 0 executors: its bounds are 1 to 8; ask for a number"),
        (with_count(max=None, min=2), ask(to=0), {}, Reason.OUT_OF_BOUNDS,
         "count cannot have 0 executors: its bounds are 2 and more; ask"),
        (with_count(application="parse", parallelism=2, max=20, buckets=32), ask(to=9), {}, Reason.OUT_OF_BOUNDS,
         "count cannot have 9 executors: the bounds of parse in the same application are 1 to 8; ask"),
        (replace(ads(), running=("count",)), ask(to=2), {}, Reason.PLAN_RUNNING,
         "a plan for count is under way; wait until it has ended"),
        (with_count(committed=False), ask(to=2), {}, Reason.STATE_NOT_COMMITTED,
         "count has no committed batch to go on from yet; wait"),
        (replace(ads(), repartition=False), ask(buckets=16), {}, Reason.NO_REPARTITION,
         "the buckets of count cannot be changed: the engine cannot repartition a checkpoint"),
        (replace(ads(), repartition=False, repartition_why="Spark 4.1.1 cannot repartition a checkpoint, 4.2 or newer is needed"),
         ask(buckets=16), {}, Reason.NO_REPARTITION, "the buckets of count cannot be changed: Spark 4.1.1 cannot repartition"),
        (ads(), ask(to=2), {"rescale_quota_per_day": 0}, Reason.QUOTA,
         "0 of 0 changes within 24 hours are used up; wait, or raise"),
        (replace(ads(), history=tuple(past(n) for n in range(4))), ask(to=2), {}, Reason.QUOTA,
         "4 of 4 changes within 24 hours are used"),
        (ads(), ask(to=2), {"rescale_frozen": "09:00-11:00"}, Reason.FROZEN_PERIOD,
         "nothing is changed in 09:00-11:00 UTC; wait until it is over"),
        (replace(ads(), frozen=(Frozen(start=NOW, end=NOW + timedelta(hours=2), why="the sale"),)), ask(to=2), {},
         Reason.FROZEN_PERIOD, "nothing is changed until 2031-05-04 12:00 UTC: the sale; wait until it is over"),
        (ads(), ask(to=4, buckets=3), {}, Reason.BUCKETS_BELOW_PARALLELISM,
         "count would have 3 buckets for 4 executors, some of them idle; ask for 4 buckets at least"),
        (with_count(buckets=2), ask(to=4), {}, Reason.BUCKETS_BELOW_PARALLELISM, "count would have 2 buckets for 4 executors"),
        (ads(), ask(operator="parse", buckets=16), {}, Reason.NO_BUCKETS, "parse keeps no state, so it has no buckets to change"),
        (replace(ads(), nodes=NODES), ask(node="n3"), {}, Reason.UNKNOWN_NODE, "there is no node n3; known are n1, n2"),
        (replace(with_count(node="n1"), nodes=NODES), ask(to=5), {}, Reason.NODE_FULL,
         "n1 has room for 3 executors more, and this takes 4; ask for fewer, or another node"),
        (replace(with_count(node="n2", parallelism=4), nodes=NODES), ask(node="n1"), {}, Reason.NODE_FULL,
         "n1 has room for 3 executors more, and this takes 4; ask"),
        (ads(), ask(to=2, buckets=16, kind=Kind.EXECUTORS), {}, Reason.KIND_CANNOT,
         "executors cannot change its buckets; restart or shadow can, or leave the kind to the planner"),
        (replace(ads(), nodes=NODES), ask(node="n2", kind=Kind.RESTART), {}, Reason.KIND_CANNOT,
         "restart cannot move it to another node; handover or shadow can"),
        (replace(ads(), nodes=NODES), ask(node="n2", buckets=16, kind=Kind.HANDOVER), {}, Reason.KIND_CANNOT,
         "handover cannot change its buckets; shadow can"),
        (ads(), ask(operator="parse", to=3, kind=Kind.SHADOW), {}, Reason.KIND_CANNOT,
         "shadow is for state, and parse keeps none"),
    ],
)  # fmt: skip
def test_refused_with_a_sentence(seen: RescaleWorld, wanted: Request, policy: dict[str, Any], reason: Reason, words: str) -> None:
    plan = plan_request(seen, wanted, Policy(**policy))
    assert (plan.answer, plan.reason) == (Answer.REFUSED, reason)
    assert plan.words.startswith(words) and "\n" not in plan.words
    assert not plan.changes and plan.executors_to == plan.executors_from and plan.steps == ()


@pytest.mark.parametrize(
    ("wanted", "kind", "words"),
    [
        (ask(to=2), Kind.HANDOVER, "count from 1 to 2 executors by handover, with a pause of about 1.9 s"),
        (ask(to=2, kind=Kind.RESTART), Kind.RESTART, "count from 1 to 2 executors by restart, with a pause of about 11.5 s"),
        (ask(to=2, kind=Kind.EXECUTORS), Kind.EXECUTORS, "count from 1 to 2 executors by executors, with a pause of about 4.1 s"),
        (ask(buckets=16), Kind.SHADOW, "count from 8 to 16 buckets by shadow, with a pause of about 4.5 s"),
        (ask(buckets=16, kind=Kind.RESTART), Kind.RESTART, "count from 8 to 16 buckets by restart, with a pause of about 4.9 s"),
        (ask(node="n2"), Kind.HANDOVER, "count from any node to n2 by handover, with a pause of about 1.9 s"),
        (
            ask(node="n2", to=4, buckets=4),
            Kind.SHADOW,
            "count from 1 to 4 executors, from 8 to 4 buckets, from any node to n2 by shadow",
        ),
        (ask(kind=Kind.RESTART), Kind.RESTART, "count anew by restart, with a pause of about 1.5 s"),
        (ask(kind=Kind.HANDOVER), Kind.HANDOVER, "count anew by handover"),
    ],
)
def test_planned_as_asked(wanted: Request, kind: Kind, words: str) -> None:
    plan = plan_request(replace(ads(), nodes=NODES), wanted, POLICY)
    assert (plan.answer, plan.kind, plan.reason) == (Answer.CHANGE, kind, Reason.REQUESTED)
    assert plan.words.startswith(words)
    assert plan.steps and plan.expected_pause_s and plan.needed_rate == pytest.approx(520.0)
    assert plan.expected_rate is not None and plan.expected_rate >= 299.0


@pytest.mark.parametrize(
    "wanted", [ask(), ask(to=1), ask(to=1, buckets=8), ask(kind=Kind.SHADOW), ask(to=1, kind=Kind.EXECUTORS)]
)
def test_what_is_so_already_is_nothing_to_do(wanted: Request) -> None:
    plan = plan_request(ads(), wanted, Policy(rescale_quota_per_day=0))
    assert (plan.answer, plan.reason, plan.words) == (Answer.NO_CHANGE, Reason.NOTHING_ASKED, "count has all that already")


def test_what_keeps_an_automaton_from_flapping_does_not_bind_a_person() -> None:
    ineffective = replace(past(19), at=NOW - timedelta(seconds=30), effective=False)
    seen = world(operator(parallelism=20, max=40), history=(ineffective,))
    assert plan_request(seen, Request(operator="count", to=21), POLICY).changes
    assert plan_request(seen, Request(operator="count", to=1), POLICY).changes


def test_the_room_a_plan_leaves_is_not_taken_by_what_is_there() -> None:
    seen = replace(with_count(node="n1"), nodes=NODES)
    assert plan_request(seen, ask(to=4), POLICY).changes
    assert plan_request(seen, ask(to=1, kind=Kind.RESTART), POLICY).changes
    assert plan_request(replace(seen, nodes=()), ask(to=8, node="n9"), POLICY).changes, "without nodes none is checked"


def test_any_node_may_be_asked_for() -> None:
    plan = plan_request(replace(with_count(node="n2"), nodes=NODES), ask(to=2, node="any"), Policy())
    assert (plan.answer, plan.kind, plan.node_from, plan.node_to) == (Answer.CHANGE, Kind.HANDOVER, "n2", None)
    anywhere = plan_request(replace(with_count(node=None), nodes=NODES), ask(node="any"), Policy())
    assert anywhere.reason is Reason.NOTHING_ASKED
