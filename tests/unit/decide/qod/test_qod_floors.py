"""Floors that do not fit where they are: what moves, what is infeasible, and how much is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.model.qod import Cost, Infeasible, Node, Observation, Reason

from tests.support.qod_lp import cores_missing
from tests.support.qod_oracle import Oracle
from tests.support.qod_queries import WHOLE, again, query, seen
from tests.support.qod_worlds import pinned, with_cores, world

# floors and what waits


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_no_floor_is_given_up_for_what_waits(cpu_model: str) -> None:
    """100 rows/s take 90 % of the core each; of them, the floors 50 % and 40 %. A minute of traffic waits for either."""
    high, low = query("high", cpu=45.0, done=0.5, priority=2, floor=0.5), query("low", cpu=45.0, done=0.5, floor=0.4)
    if cpu_model == "affine":
        high, low = (replace(q, cost=Cost(fixed=0.0, per_arrived=0.0, per_kept=0.9)) for q in (high, low))
    policy = replace(WHOLE, cpu_model=cpu_model)
    nodes = {"n1": 1.0, "n2": 1.0}
    late = decide(seen(high, low, cores=nodes, lag=6_000.0), policy)
    assert late.feasible and late.moves == ()
    assert {name: state.desired for name, state in late.queries.items()} == pytest.approx({"high": 0.5, "low": 0.4})
    calm = decide(seen(high, low, cores=nodes, lag=0.0), policy)
    assert calm.queries["high"].desired == pytest.approx(0.5 + 19 / 90), "what is above the floors drains it"
    assert late.expected.cpu["n1"] == 100.0


def test_what_only_waits_does_not_break_a_floor_either() -> None:
    """Nothing arrives any more; what is done is all catching up."""
    late = seen(query("late", cpu=100.0, floor=0.9), lag=60_000.0)
    late = replace(late, edges=tuple(replace(e, out_rate=0.0) for e in late.edges))
    decision = decide(late, WHOLE)
    assert decision.feasible and decision.queries["late"].desired == pytest.approx(0.9)


def test_a_floor_that_stays_broken_gives_way_to_what_waits() -> None:
    """100 of 200 % for all rows. The first cycle gives what the core carries of the arrivals, the next ones drain as well."""
    late = seen(query("heavy", cpu=100.0, done=0.5, floor=0.8), lag=3_000.0)
    first = decide(late, WHOLE)
    assert not first.feasible and first.queries["heavy"].desired == pytest.approx(0.5)
    second = decide(again(late, first), WHOLE)
    assert second.infeasible == first.infeasible
    assert second.queries["heavy"].desired == pytest.approx(0.25)


# moves and infeasible floors


def test_the_lower_priority_moves_to_the_node_with_the_most_room() -> None:
    observation = seen(
        query("high", cpu=60.0, priority=2, floor=1.0),
        query("low", cpu=60.0, priority=1, floor=1.0),
        query("small", node="n2", cpu=50.0),
        query("smaller", node="n3", cpu=20.0),
        cores={"n1": 1.0, "n2": 2.0, "n3": 2.0},
    )
    decision = decide(observation, WHOLE)
    (move,) = decision.moves
    assert (move.operator, move.instance, move.source, move.target) == ("low", 0, "n1", "n3")
    assert move.reason == (
        "the floors on n1 need 120 % of a core and it has 100 % of a core; n3 has room for the 60 % of a core that low needs for "
        "its floor"
    )
    assert decision.feasible


def test_what_a_move_releases_is_not_handed_out_before_it_is_seen() -> None:
    observation = seen(
        query("high", cpu=50.0, done=0.5, priority=2, floor=0.55),
        query("low", cpu=50.0, priority=1, floor=1.0),
        cores={"n1": 1.0, "n2": 1.0},
    )
    decision = decide(observation, WHOLE)
    assert [m.operator for m in decision.moves] == ["low"]
    assert decision.queries["high"].desired == pytest.approx(0.55)
    literal = decide(observation, WHOLE, paper=True)
    assert [m.operator for m in literal.moves] == ["low"]
    assert literal.queries["high"].desired == pytest.approx(1.0)


def test_what_is_infeasible_here_does_not_cost_a_floor_there() -> None:
    """On n1 a move makes the floors fit; n3 is hopeless, and only its lower priority falls below its floor."""
    observation = seen(
        query("high", cpu=60.0, priority=2, floor=1.0),
        query("low", cpu=60.0, priority=1, floor=1.0),
        query("third", node="n3", cpu=80.0, priority=2, floor=1.0),
        query("fourth", node="n3", cpu=80.0, priority=1, floor=1.0),
        cores={"n1": 1.0, "n2": 0.7, "n3": 1.0},
    )
    decision = decide(observation, WHOLE)
    assert [(m.operator, m.target) for m in decision.moves] == [("low", "n2")]
    assert decision.infeasible is not None and decision.infeasible.queries == ("fourth",)
    assert {name: round(state.desired, 6) for name, state in decision.queries.items()} == {
        "high": 1.0,
        "low": 1.0,
        "third": 1.0,
        "fourth": 0.25,
    }


def test_infeasible_floors_are_honoured_from_the_top() -> None:
    observation = seen(
        query("low", cpu=30.0, done=0.5, priority=1, floor=1.0),
        query("high", cpu=40.0, done=0.5, priority=3, floor=0.9),
        query("middle", cpu=30.0, done=0.5, priority=2, floor=0.4),
    )
    decision = decide(observation, WHOLE)
    assert not decision.feasible and decision.infeasible is not None
    assert decision.infeasible.queries == ("low",)
    assert decision.infeasible.cores_needed == pytest.approx((0.9 * 80 + 0.4 * 60 + 60 - 100) / 100)
    assert decision.infeasible.at == {"n1": decision.infeasible.cores_needed}
    assert decision.queries["high"].desired == pytest.approx(0.9)
    assert decision.queries["middle"].desired == pytest.approx(0.4)
    assert decision.queries["low"].desired == pytest.approx(4 / 60)
    (edge, *_) = decision.edges
    assert edge.code is Reason.BELOW_FLOOR
    assert edge.reason == (
        "keeps 6.667 %, INFEASIBLE: low is below its floor of 100 %: n1 has 100 % of a core for operators that would need "
        "200 % of a core, most of it high; priority 1 gives way to high of priority 3"
    )


@pytest.mark.parametrize(("cores", "missing"), [(8.0, 0.0), (1.5, 0.1), (1.0, 0.6)])
def test_a_floor_beyond_one_core_per_instance_needs_more_instances(cores: float, missing: float) -> None:
    """160 for the floor: a second instance, and cores only where too few are idle."""
    decision = decide(seen(query("heavy", cpu=100.0, done=0.5, floor=0.8), cores={"n1": cores}), WHOLE)
    infeasible = decision.infeasible
    assert infeasible is not None
    assert (infeasible.cores_needed, infeasible.at, infeasible.instances_needed) == (missing, {}, {"heavy": 1})
    assert decision.queries["heavy"].desired == pytest.approx(0.5)


def test_what_an_instance_costs_anyway_is_not_shared_with_further_ones() -> None:
    """40 + 160 for the rows of two instances each: with 60 left on a core, 320 take six."""
    heavy = query("heavy", cpu=100.0, done=0.5, floor=1.0, count=2)
    heavy = replace(heavy, cost=Cost(fixed=40.0, per_arrived=0.0, per_kept=3.2))
    infeasible = decide(seen(heavy, cores={"n1": 8.0}), replace(WHOLE, cpu_model="affine")).infeasible
    assert infeasible is not None
    assert (infeasible.instances_needed, infeasible.cores_needed) == ({"heavy": 4}, 0.0)
    useless = replace(heavy, cost=Cost(fixed=110.0, per_arrived=0.0, per_kept=0.1))
    infeasible = decide(seen(useless, cores={"n1": 8.0}), replace(WHOLE, cpu_model="affine")).infeasible
    assert infeasible is not None and infeasible.instances_needed == {}


def test_the_addition_of_cores_fixes_it_and_is_the_smallest() -> None:
    """Integer programming over all placements finds nothing smaller in nearly every world, and what is said always suffices."""
    found = exact = further = 0
    for seed in range(450):
        observation = world(seed)
        infeasible = decide(observation, WHOLE).infeasible
        if infeasible is None:
            continue
        found += 1
        assert decide(grown(observation, infeasible), WHOLE).feasible, seed
        at = sum(infeasible.at.values())
        assert infeasible.cores_needed is not None and infeasible.cores_needed >= at - 1e-9, seed
        further += bool(infeasible.instances_needed)
        least = cores_missing(Oracle(observation).without_backlog)
        assert least <= at + 1e-5, seed
        exact += least >= at - 1e-4
    assert found > 40 and further > 10 and exact >= 0.95 * found


def grown(observation: Observation, infeasible: Infeasible) -> Observation:
    """With the cores and instances that are said to be missing. New ones share the rows of the old, on a node of their own."""
    more = infeasible.instances_needed
    released = dict.fromkeys((n.name for n in observation.nodes), 0.0)
    operators, cpu = [], 0.0
    for operator in observation.operators:
        count, new = len(operator.instances), more.get(operator.name, 0)
        smaller = [
            replace(i, in_rate=(i.in_rate or 0.0) * count / (count + new), cpu=(i.cpu or 0.0) * count / (count + new))
            for i in operator.instances
        ]
        for old, less in zip(operator.instances, smaller, strict=True):
            released[old.node] += (old.cpu or 0.0) - (less.cpu or 0.0)
        slowest = min(smaller, key=lambda i: i.in_rate or 0.0)
        cpu += new * (slowest.cpu or 0.0)
        operators.append(replace(operator, instances=(*smaller, *(replace(slowest, node="new") for _ in range(new)))))
    wider = with_cores(observation, dict(infeasible.at))
    nodes = [replace(n, cpu=max((n.cpu or 0.0) - released[n.name], 0.0)) for n in wider.nodes]
    new_node = Node(name="new", cores=float(sum(more.values()) or 0.01), cpu=cpu)
    return replace(wider, operators=tuple(operators), nodes=(*nodes, new_node))


def test_feasible_means_that_some_placement_holds_all_floors() -> None:
    for seed in range(120):
        observation = world(seed)
        if decide(observation, WHOLE).feasible:
            assert cores_missing(Oracle(observation).without_backlog) < 1e-6, seed


def test_what_cannot_be_moved_stays_and_nothing_counts_on_its_move() -> None:
    """Integer programming confirms both: that there is a placement, with what stays where it is, and that there is none."""
    moved = less = confirmed = 0
    for seed in range(400):
        observation = pinned(world(seed), seed)
        decision, free = decide(observation, WHOLE), decide(world(seed), WHOLE)
        moved += len(decision.moves)
        less += free.feasible and not decision.feasible
        instances = {o.name: o.instances for o in observation.operators}
        assert all(instances[m.operator][m.instance].movable for m in decision.moves), seed
        missing = cores_missing(Oracle(observation).without_backlog)
        if decision.feasible:
            assert missing < 1e-6, seed
        elif not decision.infeasible.instances_needed:  # type: ignore[union-attr]
            confirmed += 1
            assert missing > 1e-6, seed
    assert moved > 20 and less > 5 and confirmed > 20


def test_floors_are_infeasible_where_only_what_stays_could_make_room() -> None:
    high, low = query("high", cpu=60.0, priority=2, floor=0.9), query("low", cpu=60.0, priority=1, floor=0.9)
    rooms = {"n1": 1.0, "n2": 1.0}
    assert decide(seen(high, low, cores=rooms), WHOLE).feasible
    stays = replace(low, instances=(replace(low.instances[0], movable=False),))
    other = decide(seen(high, stays, cores=rooms), WHOLE)
    assert other.feasible and [m.operator for m in other.moves] == ["high"]
    both = [replace(q, instances=(replace(q.instances[0], movable=False),)) for q in (high, low)]
    for paper in (False, True):
        decision = decide(seen(*both, cores=rooms), WHOLE, paper=paper)
        assert decision.moves == ()
        assert decision.infeasible is not None and decision.infeasible.queries == ("low",)
        assert decision.infeasible.at == {"n1": pytest.approx(0.08)}
