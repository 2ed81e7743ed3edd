"""The largest rate: the linear program against NetworkX, against the paper's paths, and against passing rows forward."""

from __future__ import annotations

import pytest
from capacity_worlds import dag, largest_by_trying, left_for, tree
from spillway.decide.capacity import by_library, by_paths, by_program, detect
from spillway.decide.capacity.checks import check
from spillway.decide.capacity.estimate import capacities
from spillway.decide.capacity.network import Arc, Network, physical
from spillway.decide.capacity.plain import ForksHaveShares
from spillway.decide.capacity.shares import passed
from spillway.decide.capacity.study import studied
from spillway.model.capacity import CapacityWorld, Verdict
from spillway.policy import Policy

ALGORITHMS = ["preflow_push", "edmonds_karp", "shortest_augmenting_path", "dinitz", "boykov_kolmogorov"]
SOLVERS = {"program": by_program, "paths": by_paths, **{name: by_library(name) for name in ALGORITHMS}}
POLICY = Policy()

TEXTBOOK = Network(
    source="s",
    arcs=tuple(
        Arc(tail=tail, head=head, capacity=capacity)
        for tail, head, capacity in [
            ("s", "v1", 16.0),
            ("s", "v2", 13.0),
            ("v1", "v3", 12.0),
            ("v2", "v1", 4.0),
            ("v2", "v4", 14.0),
            ("v3", "v2", 9.0),
            ("v3", "t", 20.0),
            ("v4", "v3", 7.0),
            ("v4", "t", 4.0),
        ]
    ),
)
"""The network of the textbook that the paper refers to for max-flow and min-cut (Cormen et al., figure 26.1): 23."""


def network_of(world: CapacityWorld) -> Network:
    source = studied(world)
    assert source is not None
    found = capacities(world, POLICY)
    return physical(world, found, passed(world, found, source))


@pytest.mark.parametrize("name", SOLVERS)
def test_the_network_of_the_textbook(name: str) -> None:
    answer = SOLVERS[name](TEXTBOOK)
    check(TEXTBOOK, answer)
    assert answer.value == pytest.approx(23.0, rel=1e-12)
    assert answer.cut_value == 23.0
    assert {(TEXTBOOK.arcs[n].tail, TEXTBOOK.arcs[n].head) for n in answer.cut} == {("v1", "v3"), ("v4", "v3"), ("v4", "t")}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("links", [False, True])
def test_without_forks_it_is_the_max_flow_of_the_library_to_the_last_digit(whole: bool, links: bool) -> None:
    exact = 0
    for seed in range(120):
        world = tree(seed, whole=whole, links=links)
        source = studied(world)
        assert source is not None
        left = left_for(world, source)
        finding = detect(world, POLICY)
        if left is None:
            assert not finding.max_flow, seed
            continue
        assert finding.max_flow == finding.cut_value
        if whole or not links:
            assert finding.max_flow == float(left), seed
        else:  # what instances manage is a sum that was rounded already
            assert finding.max_flow == pytest.approx(float(left), rel=1e-15), seed
        exact += 1
    assert exact > 100


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_gives_the_same_and_proves_it(name: str) -> None:
    for seed in range(40):
        world = tree(seed, links=seed % 2 == 0)
        if not detect(world, POLICY).max_flow:
            continue
        network = network_of(world)
        answer, other = SOLVERS[name](network), by_program(network)
        check(network, answer)
        assert answer.cut_value == other.cut_value, seed
        assert answer.value == pytest.approx(answer.cut_value, rel=1e-9)
        assert detect(world, POLICY, max_flow=SOLVERS[name]).max_flow == answer.cut_value


def test_selectivities_without_forks_are_other_units() -> None:
    for seed in range(100):
        world = dag(seed)
        network = network_of(world)
        if network.forks or not detect(world, POLICY).max_flow:
            continue
        values = [SOLVERS[name](network).cut_value for name in ("program", "paths", "dinitz")]
        assert values == pytest.approx([values[0]] * 3, rel=1e-9), seed


def test_forks_are_for_the_program_alone() -> None:
    copied = Network(source="s", arcs=(Arc(tail="s", head="a", share=1.0, capacity=5.0), Arc(tail="s", head="b", share=1.0)))
    for solver in (by_paths, by_library()):
        with pytest.raises(
            ForksHaveShares, match="fork in fixed shares, which plain max-flow does not know; use the linear program"
        ):
            solver(copied)


def test_with_forks_it_is_the_largest_rate_that_everybody_follows() -> None:
    """Copies, splits, filters, joins and other sources; the second opinion passes rows forward and tries rates."""
    bounded = overfilled = 0
    for seed in range(250):
        world = dag(seed)
        source = studied(world)
        assert source is not None
        tried = largest_by_trying(world, source)
        found = detect(world, POLICY).max_flow
        assert found is not None
        assert found == pytest.approx(tried, rel=1e-9, abs=1e-9), seed
        bounded += found > 0.0
        overfilled += found == 0.0
    assert bounded > 200


def test_a_rate_just_above_does_not_fit_and_just_below_does() -> None:
    from capacity_worlds import fits

    for seed in range(100):
        world = dag(seed)
        finding = detect(world, POLICY)
        if finding.max_flow and finding.source:
            assert fits(world, finding.source, finding.max_flow * (1 - 1e-9)), seed
            assert not fits(world, finding.source, finding.max_flow * (1 + 1e-9)), seed


def test_nothing_bounds_it() -> None:
    world = CapacityWorld.from_json(
        '{"operators": [{"name": "a", "parallelism": 1}], "edges": [{"from": null, "topic": "t", "to": "a", "flow": 5}]}'
    )
    finding = detect(world, POLICY)
    assert (finding.max_flow, finding.cut_value, finding.cut) == (None, None, ())
    assert (finding.verdict, finding.missing) == (Verdict.NOT_KNOWN, ("operators.a.capacity",))
    assert finding.reason == "operators.a.capacity is missing, so it is not known how much fits"


def test_links_can_let_less_through_than_any_partition_with_all_instances_on_one_side() -> None:
    """One input reaches only the first instance, which is slow; the second one has room that nobody can use."""
    world = CapacityWorld.from_json(
        {
            "operators": [{"name": "a", "parallelism": 2, "instances": [{"rows": 100, "busy_s": 1}, {"rows": 900, "busy_s": 1}]}],
            "edges": [{"from": None, "topic": "t", "to": "a", "flow": 100, "links": [500, 50], "backlog": 9}],
        }
    )
    finding = detect(world, POLICY)
    assert finding.max_flow == finding.cut_value == 150.0
    assert finding.limits["a"].limit == 550.0
    assert finding.cut == (("t", "a"),)
