"""What every decision keeps, whatever the world: bounds, whole chains of passes, one direction, and that it settles."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from spillway.decide.rescale import plan_request, plan_rescale
from spillway.decide.rescale.examples import NOW
from spillway.decide.rescale.kind import Wanted, lacks
from spillway.model.rescale import Change, Flow, Kind, OperatorLoad, Outcome, Request, RescaleWorld, Room, Sample
from spillway.model.rescale_plan import Answer, RescalePlan, Stage
from spillway.policy import Policy

POLICY = Policy()


def random_world(seed: int) -> RescaleWorld:
    """A DAG of up to 12 operators in up to 8 applications, with gaps, a past and all sorts of limits."""
    rng = random.Random(seed)
    names = [f"o{n}" for n in range(rng.randint(1, 12))]
    applications = {n: f"a{rng.randint(0, 7)}" for n in names}
    executors = {a: rng.choice([1, 2, 3, 8, 40]) for a in applications.values()}
    nodes = {a: rng.choice([None, "n1", "n2"]) for a in applications.values()}
    operators = tuple(_operator(rng, n, applications[n], executors[applications[n]], nodes[applications[n]]) for n in names)
    source = Flow(
        producer=None, topic="t", consumer=names[0], arrival=rng.choice([None, 10.0, 900.0]),
        peak=rng.choice([None, 20.0]), backlog=rng.choice([None, 0.0, 50_000.0]),
    )  # fmt: skip
    edges = [source]
    edges += [
        Flow(producer=names[rng.randrange(k)], topic=None, consumer=names[k], selectivity=rng.uniform(0.0, 2.0))
        for k in range(1, len(names))
        if rng.random() < 0.8
    ]
    return RescaleWorld(
        now=NOW,
        operators=operators,
        edges=tuple(edges),
        nodes=rng.choice([(), (Room(name="n1", free=rng.choice([None, 0, 2, 90])), Room(name="n2"))]),
        history=tuple(sorted((_change(rng, operators) for _ in range(rng.choice([0, 0, 1, 3]))), key=lambda c: c.at)),
        window_s=rng.choice([0.0, 86_400.0, 90_000.0]),
        floors_infeasible=rng.random() < 0.2,
        repartition=rng.random() < 0.7,
    )


def _operator(rng: random.Random, name: str, application: str, executors: int, node: str | None) -> OperatorLoad:
    least = rng.choice([1, 1, 2])
    return OperatorLoad(
        name=name, application=application, parallelism=executors, node=node,
        min=least, max=rng.choice([None, least + rng.randint(0, 60)]),
        stateful=rng.random() < 0.5, buckets=rng.choice([None, executors, 64]), state_rows=rng.choice([None, 0, 10**5, 10**7]),
        committed=rng.random() < 0.95, rate=rng.choice([None, 0.0, 300.0]), capacity=rng.choice([None, 0.0, 300.0, 1e5]),
        utilisation=rng.choice([None, 0.0, 0.5, 1.0]), needed=rng.choice([None, 0.0, 100.0, 1e7]),
        peak=rng.choice([None, 0.0, 50.0]), bottleneck_for=rng.choice([0, 0, 0, 1, 5]), instances_short=rng.choice([0, 0, 2]),
        seen=tuple(_sample(rng) for _ in range(rng.randint(0, 3))),
    )  # fmt: skip


def _sample(rng: random.Random) -> Sample:
    return Sample(parallelism=rng.randint(1, 50), capacity=rng.choice([0.0, 100.0, 900.0]))


def _change(rng: random.Random, operators: tuple[OperatorLoad, ...]) -> Change:
    one = rng.choice(operators)
    return Change(
        at=NOW - timedelta(hours=rng.uniform(0.1, 40.0)), operator=one.name, application=one.application,
        kind=rng.choice(list(Kind)), executors_from=rng.randint(1, 9), executors_to=rng.randint(1, 9),
        outcome=rng.choice(list(Outcome)), decision=rng.choice([None, "1", "2"]), effective=rng.choice([None, True, False]),
        rate_before=rng.choice([None, 0.0, 200.0]), observed_rate=rng.choice([None, 0.0, 200.0]),
        pause_s=rng.choice([None, 0.0, 3.0]), state_rows=rng.choice([None, 10**6]),
    )  # fmt: skip


def check(plan: RescalePlan, seen: RescaleWorld) -> None:
    operators = seen.of_application(plan.application)
    assert plan.executors_from == operators[0].parallelism and plan.words
    executors = [p for p in plan.passes if p.stage is not Stage.BUCKETS or p.before == plan.executors_from or not plan.rebuckets]
    executors = [p for p in executors if p.reason != "buckets_raised"]
    value = plan.executors_from
    for one in executors:
        assert one.before == value and one.words
        value = one.after
    if not plan.changes:
        assert plan.answer is Answer.NO_CHANGE and plan.executors_to == plan.executors_from and not plan.rebuckets
        return
    assert value == plan.executors_to != plan.executors_from
    for operator in operators:
        assert plan.executors_to >= operator.min or plan.up
        assert operator.max is None or plan.executors_to <= operator.max
        buckets = plan.buckets_to if operator.name == plan.operator else operator.buckets
        assert not operator.stateful or buckets is None or buckets >= plan.executors_to or plan.down
    free = next((n.free for n in seen.nodes if n.name == plan.node_from), None)
    assert free is None or plan.executors_to - plan.executors_from <= free
    assert plan.kind is not None and lacks(plan.kind, Wanted(executors=True, buckets=plan.rebuckets)) is None
    assert plan.steps and plan.expected_pause_s is not None and plan.expected_rate is not None
    assert not plan.rebuckets or seen.repartition


@pytest.mark.parametrize("first", range(0, 1500, 100))
def test_every_decision_keeps_what_it_must(first: int) -> None:
    changed = 0
    for seed in range(first, first + 100):
        seen = random_world(seed)
        decision = plan_rescale(seen, POLICY)
        assert [p.application for p in decision.plans] == list(seen.applications)
        for plan in decision.plans:
            check(plan, seen)
        ways = {p.up for p in decision.changes}
        assert len(ways) <= 1, "nobody shrinks while somebody grows"
        changed += len(decision.changes)
        assert plan_rescale(seen, POLICY) == decision
        again = RescaleWorld.from_json(seen.to_json())
        assert again == seen and json.loads(plan_rescale(again, POLICY).to_json()) == json.loads(decision.to_json())
    assert changed > 5


def test_it_settles_when_the_world_follows() -> None:
    """Once what was expected has come true, nobody who was made larger has to be again."""
    settled = 0
    for seed in range(600):
        seen = replace(random_world(seed), history=(), running=())
        decision = plan_rescale(seen, POLICY)
        grown = {p.application: p for p in decision.changes if p.up and not p.passes[1:]}
        if not grown or len(grown) < len(decision.changes):
            continue
        settled += 1
        after = replace(
            seen, operators=tuple(_grown(o, grown.get(o.application)) for o in seen.operators), floors_infeasible=False
        )
        assert not any(p.up for p in plan_rescale(after, POLICY).changes)
    assert settled > 20


def _grown(operator: OperatorLoad, plan: RescalePlan | None) -> OperatorLoad:
    calm = replace(operator, bottleneck_for=0, instances_short=0)
    if plan is None:
        return calm
    larger = replace(calm, parallelism=plan.executors_to)
    return replace(larger, capacity=plan.expected_rate, rate=None) if operator.name == plan.operator else larger


def test_requests_never_break_what_decisions_keep() -> None:
    rng = random.Random(5)
    for seed in range(600):
        seen = random_world(seed)
        one = rng.choice(seen.operators)
        request = Request(
            operator=rng.choice([one.name, one.name, "nobody"]), to=rng.choice([None, 0, 1, 5, 64]),
            buckets=rng.choice([None, 1, 16, 128]), node=rng.choice([None, "n1", "n9"]), kind=rng.choice([None, None, *Kind]),
        )  # fmt: skip
        plan = plan_request(seen, request, POLICY)
        assert plan.words and "\n" not in plan.words
        json.loads(plan.to_json())
        if not plan.changes:
            assert plan.executors_to == plan.executors_from and plan.kind is None
            continue
        assert request.to is None or plan.executors_to == request.to
        for operator in seen.of_application(plan.application):
            within = operator.min <= plan.executors_to and (operator.max is None or plan.executors_to <= operator.max)
            assert plan.executors_to == plan.executors_from or within
        assert plan.kind is not None and request.kind in (None, plan.kind)
        assert lacks(plan.kind, Wanted(buckets=plan.rebuckets, node=plan.moves)) is None
