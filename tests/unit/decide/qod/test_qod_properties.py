"""What must hold in every world, on thousands of seeded random ones; the oracle that judges shares no code with `decide`."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.model.qod import Decision, Observation, Previous, Reason
from spillway.policy import Policy

from tests.support.qod_lp import cores_missing
from tests.support.qod_oracle import Oracle
from tests.support.qod_worlds import wild, with_cores, world

WORLDS = {"proportional": 1_500, "affine": 600}
EXACT = Policy(qod_headroom=0.0, qod_tolerance=0.0)
Case = tuple[int, Observation, Decision, Oracle]


def possible(decision: Decision) -> dict[str, float]:
    return {name: state.possible for name, state in decision.queries.items() if state.possible is not None}


@pytest.fixture(scope="module", params=["proportional", "affine"])
def decided(request: pytest.FixtureRequest) -> list[Case]:
    policy = replace(EXACT, cpu_model=request.param)
    affine = request.param == "affine"
    found = []
    for seed in range(WORLDS[request.param]):
        seen = world(seed, cost=affine)
        found.append((seed, seen, decide(seen, policy), Oracle(seen, affine=affine)))
    return found


def test_the_worlds_are_of_every_kind(decided: list[Case]) -> None:
    decisions = [decision for _, _, decision, _ in decided]
    assert sum(not d.feasible for d in decisions) > len(decided) // 20
    assert sum(bool(d.moves) for d in decisions) > len(decided) // 20
    assert sum(any(0.0 < e.keep < 1.0 for e in d.edges) for d in decisions) > len(decided) // 3


def test_no_floor_is_broken_when_it_can_be_kept(decided: list[Case]) -> None:
    """Where one core per instance suffices, integer programming confirms that there is no placement which holds all floors."""
    confirmed = 0
    for seed, _, decision, oracle in decided:
        below = [q for q, s in decision.queries.items() if s.desired < s.floor - 1e-9]
        if decision.feasible:
            assert below == [], seed
            continue
        assert decision.infeasible is not None and sorted(decision.infeasible.queries) == sorted(below), seed
        if not decision.infeasible.instances_needed:
            confirmed += 1
            assert cores_missing(oracle.without_backlog) > 1e-6, seed
    assert confirmed > len(decided) // 40


def test_keeps_are_fractions_and_deliver_what_is_said(decided: list[Case]) -> None:
    for seed, _, decision, oracle in decided:
        assert all(0.0 <= e.keep <= 1.0 for e in decision.edges), seed
        delivered = oracle.delivered(decision)
        for query, state in decision.queries.items():
            assert min(delivered[query]) == pytest.approx(state.desired, abs=1e-9), seed
        for edge in decision.edges:
            assert edge.expected_accuracy == pytest.approx(decision.expected.accuracy[edge.consumer], abs=1e-9), seed


def test_all_inputs_of_a_consumer_have_equal_accuracy(decided: list[Case]) -> None:
    several = 0
    for seed, _, decision, oracle in decided:
        for inputs in oracle.delivered(decision).values():
            several += len(inputs) > 1
            assert max(inputs) - min(inputs) < 1e-9, seed
    assert several > len(decided)


def test_no_node_and_no_core_is_asked_for_more_than_it_has(decided: list[Case]) -> None:
    """Beyond floors that have to move, or whose backlog waits."""
    late = 0
    for seed, _, decision, oracle in decided:
        if decision.feasible:
            assert bool(oracle.without_backlog.overfull(oracle.floors())) == bool(decision.moves), seed
            by_floors_alone = oracle.overfull(oracle.floors())
            late += bool(by_floors_alone) and not decision.moves
            assert oracle.overfull(possible(decision)) == by_floors_alone, seed
    assert late > len(decided) // 100, "floors that fit but for what waits"


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_headroom_is_left_by_all_but_floors(cpu_model: str) -> None:
    """Of every node and of an instance's core; and floors, moves and missing cores are the same as without."""
    tight = 0
    for seed in range(400):
        seen, headroom = world(seed, cost=cpu_model == "affine"), random.Random(seed).choice([0.08, 0.3, 0.5])
        policy = replace(EXACT, cpu_model=cpu_model, qod_headroom=headroom)
        decision, without = decide(seen, policy), decide(seen, replace(policy, qod_headroom=0.0))
        oracle = Oracle(seen, affine=cpu_model == "affine")
        got = possible(decision)
        start = {q: min(floor, got[q]) for q, floor in oracle.floors().items()}
        at_floors, offered = oracle.used(start), oracle.offered(headroom)
        for resource, cpu in oracle.used(got).items():
            assert cpu <= max(offered[resource], at_floors[resource]) + 1e-6, (seed, resource)
            tight += at_floors[resource] > offered[resource] > 0.0
        assert (decision.feasible, decision.infeasible, decision.moves) == (without.feasible, without.infeasible, without.moves)
        if decision.feasible:
            assert all(got[q] >= floor - 1e-9 for q, floor in oracle.floors().items()), seed
    assert tight > 50


def test_lower_priorities_give_way(decided: list[Case]) -> None:
    """A query below its maximum could not have more even if all of lower priority kept only their floors; so they do, where it
    could use what they have."""
    below = 0
    for seed, _, decision, oracle in decided:
        if not decision.feasible:
            continue
        got, floors = possible(decision), oracle.floors()
        for query in (q for q in got if got[q] < 1.0 - 1e-6):
            below += 1
            others = {q: floors[q] if oracle.priority(q) < oracle.priority(query) else got[q] for q in got}
            assert not oracle.could_rise(others, query), (seed, query)
    assert below > len(decided) // 2


def test_more_cpu_never_lowers_the_highest_priority(decided: list[Case]) -> None:
    compared = 0
    for seed, seen, decision, oracle in decided[:700]:
        top = max(oracle.priority(q) for q in oracle.queries)
        first = [q for q in oracle.queries if oracle.priority(q) == top]
        if not decision.feasible or len(first) > 1:
            continue
        rng = random.Random(seed)
        more = with_cores(seen, {rng.choice(seen.nodes).name: rng.uniform(0.1, 2.0)})
        again = decide(more, replace(EXACT, cpu_model="affine" if oracle.affine else "proportional"))
        compared += 1
        assert possible(again)[first[0]] >= possible(decision)[first[0]] - 1e-9, seed
    assert compared > 150


def test_more_cpu_never_lowers_the_least_of_the_highest_priority(
    decided: list[Case],
) -> None:
    """Several queries of the highest priority: whoever has the least CPU beyond its floor has no less of it afterwards."""
    compared = 0
    for seed, seen, decision, oracle in decided:
        top = max(oracle.priority(q) for q in oracle.queries)
        first = [q for q in oracle.queries if oracle.priority(q) == top]
        if not decision.feasible or len(first) == 1:
            continue
        more = with_cores(seen, {random.Random(seed).choice(seen.nodes).name: 1.0})
        again = decide(more, replace(EXACT, cpu_model="affine" if oracle.affine else "proportional"))
        compared += 1
        assert _least(oracle, first, possible(again)) >= _least(oracle, first, possible(decision)) - 1e-6, seed
    assert compared > len(decided) // 20


def _least(oracle: Oracle, queries: list[str], accuracy: dict[str, float]) -> float:
    """Percent of a core that the accuracy beyond the floor takes where it takes most, the least of the queries below 1."""
    floors = {n: oracle.floor(n) for n in oracle.operators}
    at_floors = oracle.used_by(floors)
    found = []
    for query in (q for q in queries if accuracy[q] < 1.0 - 1e-9):
        steepest = 0.0
        for name in (n for n in oracle.above(query) if floors[n] < 1.0):
            more = oracle.used_by({**floors, name: 1.0})
            steepest = max(steepest, *((more[f"core {n}"] - at_floors[f"core {n}"]) / (1.0 - floors[name]) for n in floors))
        found.append((accuracy[query] - oracle.floors()[query]) * steepest)
    return min(found, default=float("inf"))


def test_the_same_input_gives_the_same_output(decided: list[Case]) -> None:
    for seed, seen, decision, oracle in decided[:100]:
        policy = replace(EXACT, cpu_model="affine" if oracle.affine else "proportional")
        assert decide(Observation.from_json(seen.to_json()), policy).to_json() == decision.to_json(), seed


def test_what_is_remembered_settles() -> None:
    """Fed with its own decisions and an unchanged world, the controller comes to what is possible and publishes nothing more."""
    whole = 0
    for seed in range(60):
        seen, policy = world(seed), Policy()
        seen = replace(seen, previous=Previous(keeps={e.name: 0.3 for e in seen.edges}))
        for _ in range(16):
            decision = decide(seen, policy)
            seen = replace(seen, previous=decision.remember)
        assert not any(edge.published for edge in decision.edges), seed
        for state in decision.queries.values():
            assert state.possible is not None and abs(state.desired - state.possible) < policy.qod_tolerance, seed
            if state.possible == 1.0:
                whole += 1
                assert state.desired == 1.0, seed
    assert whole > 20


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_worlds_with_gaps_and_new_instances(cpu_model: str) -> None:
    """Whatever is in force, unknown, quiet or warming up."""
    policy = Policy(cpu_model=cpu_model)
    kinds: Counter[str] = Counter()
    for seed in range(400):
        seen = wild(seed, cost=cpu_model == "affine")
        ready = seed % 2
        seen = replace(seen, previous=Previous(raise_ready=dict.fromkeys((o.name for o in seen.operators), ready)))
        oracle, decision = Oracle(seen), decide(seen, policy)
        assert decide(Observation.from_json(seen.to_json()), policy) == decision, seed
        assert all(0.0 <= e.keep <= 1.0 for e in decision.edges), seed
        for inputs in oracle.delivered(decision).values():
            assert max(inputs) - min(inputs) < 1e-9, seed
        below = {q for q, s in decision.queries.items() if s.desired < s.floor - 1e-8}
        assert below == set(decision.infeasible.queries if decision.infeasible else ()), seed
        assert decision.feasible is (decision.infeasible is None), seed

        warm = {i.node for o in seen.operators for i in o.instances if i.warming}
        assert not any(move.source in warm or move.target in warm for move in decision.moves), seed
        slowed = {o.name for o in seen.operators if any(i.node in warm for i in o.instances)}
        blind = {e.consumer for e in seen.edges if e.keep is None or (e.producer is None and e.lag is None)}
        before = in_force(oracle)
        for query, state in decision.queries.items():
            above = oracle.above(query)
            assert state.possible is not None, seed
            for name in slowed.intersection(above):
                kinds["slowed"] += 1
                assert state.possible <= oracle.floor(name) + 1e-9, (seed, query)
            kinds["lowered"] += state.desired < before[query] - 1e-9
            kinds["raised"] += state.desired > max(before[query], state.floor) + 1e-9
            lifted = any(e.code is Reason.ON_THE_WAY for e in decision.edges if e.consumer in above)
            kinds["on the way"] += lifted
            kinds["blind"] += bool(may_not := blind.intersection(above) or not (ready or lifted))
            most = before[query] + (0.0 if may_not else policy.qod_raise_limit)
            assert state.desired <= max(most, state.floor) + 1e-9, (seed, query)
    assert min(kinds[k] for k in ("slowed", "lowered", "raised", "blind")) > 50 and kinds["on the way"], kinds


def in_force(oracle: Oracle) -> dict[str, float]:
    """By operator, the accuracy that the keeps of an observation deliver; an unknown one may be all."""
    found: dict[str, float] = {}

    def of(name: str) -> float:
        if name not in found:
            found[name] = min(
                (1.0 if e.keep is None else e.keep) * (of(e.producer) if e.producer else 1.0) for e in oracle.into[name]
            )
        return found[name]

    return {name: of(name) for name in oracle.operators}


def test_damping_keeps_floors_and_equal_inputs() -> None:
    """Whatever was in force before, also by hand and unequal."""
    for seed in range(300):
        seen, rng = world(seed), random.Random(seed)
        seen = replace(seen, previous=Previous(keeps={e.name: rng.random() for e in seen.edges}))
        decision = decide(seen, Policy())
        for inputs in Oracle(seen).delivered(decision).values():
            assert max(inputs) - min(inputs) < 1e-9, seed
        if decision.feasible:
            assert all(s.desired >= s.floor - 1e-9 for s in decision.queries.values()), seed
