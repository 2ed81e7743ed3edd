"""Executors of several cores, and such as several operators share: what is used up is theirs, not an instance's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.world import columns
from spillway.model.qod import Cost, Operator, Reason
from spillway.policy import Policy

from tests.support.qod_oracle import Oracle
from tests.support.qod_queries import WHOLE, query, seen
from tests.support.qod_worlds import sharing, world

ROOM = {"n1": 8.0}


def within(operator: Operator, executor: str | None = None, cores: float = 1.0) -> Operator:
    return replace(operator, instances=tuple(replace(i, executor=executor, cores=cores) for i in operator.instances))


def test_an_instance_may_use_all_the_cores_of_its_executor() -> None:
    wide = query("wide", cpu=250.0, floor=0.8)
    decision = decide(seen(within(wide, cores=8.0), cores=ROOM), WHOLE)
    assert decision.feasible and decision.queries["wide"].desired == 1.0
    assert decision.expected.cpu == {"n1": pytest.approx(250.0)}
    narrow = decide(seen(wide, cores=ROOM), WHOLE)
    assert narrow.infeasible is not None and narrow.infeasible.instances_needed == {"wide": 1}


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_operators_that_share_an_executor_share_its_cores(cpu_model: str) -> None:
    """Either does 60 of 100 rows with half of the core they have together; the node has seven more that are of no use."""
    cost = Cost(fixed=0.0, per_arrived=0.0, per_kept=50.0 / 60.0)
    one, other = (replace(within(query(n, cpu=50.0, done=0.6), "front/0"), cost=cost) for n in ("one", "other"))
    policy = replace(WHOLE, cpu_model=cpu_model)
    decision = decide(seen(one, other, cores=ROOM), policy)
    assert {n: q.desired for n, q in decision.queries.items()} == pytest.approx({"one": 0.6, "other": 0.6})
    assert decision.edges[0].code is Reason.CORE_BOUND
    assert decision.edges[0].reason == (
        "keeps 60 %: an executor of one and other would need 167 % of a core and has one core"
    )  # fmt: skip
    important = decide(seen(replace(one, priority=2), other, cores=ROOM), policy)
    assert {n: q.desired for n, q in important.queries.items()} == pytest.approx({"one": 1.0, "other": 0.2})
    two = [within(q, "front/0", 2.0) for q in (one, other)]
    assert all(q.desired == 1.0 for q in decide(seen(*two, cores=ROOM), policy).queries.values())


def test_floors_of_a_shared_executor_need_more_of_all_that_is_in_it() -> None:
    """133 % for both floors: a second executor of the application."""
    one = within(query("one", cpu=50.0, done=0.6, floor=0.8, priority=2), "front/0")
    other = within(query("other", cpu=50.0, done=0.6, floor=0.8), "front/0")
    for cores, missing in ((8.0, 0.0), (1.0, 1.0 / 3.0)):
        decision = decide(seen(one, other, cores={"n1": cores}), WHOLE)
        assert decision.infeasible is not None and decision.infeasible.queries == ("other",)
        assert decision.infeasible.instances_needed == {"one": 1, "other": 1}
        assert decision.infeasible.cores_needed == pytest.approx(missing, abs=1e-4)
        assert decision.queries["one"].desired == pytest.approx(0.8)
        assert decision.queries["other"].desired == pytest.approx(0.4)


def test_two_that_stand_still_in_one_executor_bet_on_half_of_it_each() -> None:
    still = [within(query(n, cpu=0.0, done=0.0, floor=0.5), "front/0") for n in ("one", "other")]
    decision = decide(seen(*still, cores=ROOM), WHOLE)
    assert decision.feasible and all(q.desired >= 0.5 for q in decision.queries.values())


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_no_executor_is_asked_for_more_than_it_has_and_none_is_left_idle(cpu_model: str) -> None:
    headroom, affine = 0.08, cpu_model == "affine"
    policy = Policy(cpu_model=cpu_model, qod_tolerance=0.0, qod_headroom=headroom)
    bound = below = 0
    for seed in range(400):
        observation = sharing(world(seed, cost=affine), seed)
        observation.check()
        decision, oracle = decide(observation, policy), Oracle(observation, affine=affine)
        got = {name: state.possible or 0.0 for name, state in decision.queries.items()}
        if decision.feasible:
            floors = oracle.floors()
            assert all(got[q] >= floor - 1e-9 for q, floor in floors.items()), seed
            assert not [r for r in oracle.without_backlog.overfull(floors) if not r.startswith("node")], seed
        start = {q: min(floor, got[q]) for q, floor in oracle.floors().items()}
        at_floors, offered = oracle.used(start), oracle.offered(headroom)
        for resource, cpu in oracle.used(got).items():
            assert cpu <= max(offered[resource], at_floors[resource]) + 1e-6, (seed, resource)
        bound += any("an executor of" in e.reason for e in decision.edges)
        whole = decide(observation, replace(policy, qod_headroom=0.0))
        if whole.feasible:
            got = {name: state.possible or 0.0 for name, state in whole.queries.items()}
            for name in (q for q in got if got[q] < 1.0 - 1e-6):
                below += 1
                others = {q: oracle.floors()[q] if oracle.priority(q) < oracle.priority(name) else got[q] for q in got}
                assert not oracle.could_rise(others, name), (seed, name)
    assert bound > 40 and below > 100


def test_executors_with_the_same_operators_and_cores_are_one_kind() -> None:
    def placed(name: str, *executors: tuple[str | None, float]) -> Operator:
        instance = query(name).instances[0]
        return replace(query(name), instances=tuple(replace(instance, executor=x, cores=c) for x, c in executors))

    found = seen(
        placed("one", ("a", 2.0), ("a", 2.0), ("b", 2.0), ("b", 2.0), ("c", 2.0)),
        placed("two", ("a", 2.0), ("b", 2.0), ("c", 2.0), ("d", 4.0)),
        placed("three", (None, 1.0), (None, 1.0), (None, 3.0)),
    )
    world = columns(found.nodes, found.operators, found.edges)
    members = zip(world.member_executor.tolist(), world.member_operator.tolist(), world.member_count.tolist(), strict=True)
    assert world.executor_cores.tolist() == [2.0, 2.0, 4.0, 1.0, 3.0]
    assert list(members) == [(0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 1), (2, 1, 1), (3, 2, 1), (4, 2, 1)]
