"""The papers' worked examples, their scenarios as single decisions, and what their literal cycle gives away."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.examples import chain_observation, fork
from spillway.decide.qod.propagate import keeps, upward
from spillway.decide.qod.reschedule import Candidate, choose
from spillway.model.qod import Decision, Edge, Instance, Node, Observation, Operator
from spillway.policy import Policy

from tests.support.qod_oracle import Oracle
from tests.support.qod_queries import WHOLE
from tests.support.qod_worlds import up_to_date, world


def test_algorithm_2_example() -> None:
    """Thesis 3.5.1: everything of the candidate set except (40 %, 3) is moved, which releases exactly 40 %."""
    given = [Candidate(*c) for c in ((20.0, 4), (10.0, 3), (40.0, 3), (10.0, 2), (10.0, 2), (10.0, 1))]
    chosen = choose(given, 40.0)
    assert sorted((c.required, c.priority) for c in chosen) == [(10.0, 1), (10.0, 2), (10.0, 2), (10.0, 3)]
    assert sum(c.required for c in chosen) == 40.0


def test_algorithm_2_releases_enough_and_nothing_needless() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        given = [
            Candidate(float(size), int(rank), k)
            for k, (size, rank) in enumerate(zip(rng.uniform(1, 60, 8), rng.integers(0, 4, 8), strict=True))
        ]
        target = float(rng.uniform(0, sum(c.required for c in given)))
        chosen = choose(given, target)
        released = sum(c.required for c in chosen)
        assert released >= target
        assert all(released - c.required < target for c in chosen)
        highest = max((c.priority for c in chosen), default=-1)
        assert sum(c.required for c in given if c.priority < highest) < target or highest == -1


def test_figure_3_3() -> None:
    world = fork()
    desired = np.array([0.8, 0.4])
    assert upward(world, desired).tolist() == [0.8, 0.8, 0.8, 0.8, 0.4]
    assert dict(zip((e.name for e in world.edges), keeps(world, desired).tolist(), strict=True)) == {
        "of_source_1:source_1": 0.8,
        "of_source_2:source_2": 0.8,
        "source_1:union": 1.0,
        "source_2:union": 1.0,
        "union:A": 1.0,
        "union:B": 0.5,
    }


def test_the_interchange_example_by_hand() -> None:
    """min_required 24 and 37.5 of 95; the union needs 48 and the bill 75 for everything: 95/123 for both."""
    decision = decide(chain_observation(), WHOLE)
    assert decision.queries["bill"].desired == pytest.approx(95.0 / 123.0)
    literal = decide(chain_observation(), WHOLE, paper=True)
    assert literal.queries["bill"].desired == pytest.approx(0.5 + (2 / 3) * 16.75 / 50.0)


def taxi(load: float, *, priorities: tuple[int, int], floors: tuple[float, float], second_node: bool) -> Observation:
    """The thesis' Taxi Drives application: two sources, blended, into TDSnk1 (two instances) and the heavier TDSnk2."""
    nodes = [Node(name="TM1", cores=1.0, cpu=min(100.0, 54.0 * load))]
    if second_node:
        nodes.append(Node(name="TM2", cores=1.0, cpu=2.0))
    done = min(1.0, 100.0 / (54.0 * load))

    def on_tm1(rate: float, cpu: float, count: int = 1) -> tuple[Instance, ...]:
        return tuple(
            Instance(node="TM1", in_rate=rate * load * done / count, cpu=cpu * load * done / count) for _ in range(count)
        )

    return Observation(
        nodes=tuple(nodes),
        operators=(
            Operator(name="TDSrc1", instances=on_tm1(50.0, 2.0)),
            Operator(name="TDSrc2", instances=on_tm1(50.0, 2.0)),
            Operator(name="TDSnk1", instances=on_tm1(100.0, 20.0, 2), priority=priorities[0], min_accuracy=floors[0]),
            Operator(name="TDSnk2", instances=on_tm1(100.0, 30.0), priority=priorities[1], min_accuracy=floors[1]),
        ),
        edges=(
            Edge(producer=None, topic="yellow", consumer="TDSrc1", out_rate=50.0 * load, lag=0.0),
            Edge(producer=None, topic="green", consumer="TDSrc2", out_rate=50.0 * load, lag=0.0),
            *(
                Edge(producer=source, topic=None, consumer=sink, out_rate=50.0 * load * done, lag=0.0)
                for sink in ("TDSnk1", "TDSnk2")
                for source in ("TDSrc1", "TDSrc2")
            ),
        ),
    )


@pytest.mark.parametrize("paper", [False, True])
def test_scenario_1_equal_priorities_shed_together(paper: bool) -> None:
    decision = decide(taxi(3.0, priorities=(1, 1), floors=(0.4, 0.6), second_node=False), WHOLE, paper=paper)
    one, two = decision.queries["TDSnk1"], decision.queries["TDSnk2"]
    assert 0.4 < one.desired < 1.0 and 0.6 < two.desired < 1.0
    assert decision.feasible and not decision.moves


@pytest.mark.parametrize("paper", [False, True])
def test_scenario_1_the_instances_of_the_light_sink_move_one_by_one(paper: bool) -> None:
    """(C) and (D) of the thesis: the first, then also the second instance of TDSnk1, because that releases least."""
    first = decide(taxi(4.0, priorities=(1, 1), floors=(0.4, 0.6), second_node=True), WHOLE, paper=paper)
    assert [(m.operator, m.source, m.target) for m in first.moves] == [("TDSnk1", "TM1", "TM2")]
    later = decide(taxi(4.6, priorities=(1, 1), floors=(0.4, 0.6), second_node=True), WHOLE, paper=paper)
    assert [(m.operator, m.source, m.target) for m in later.moves] == [("TDSnk1", "TM1", "TM2")] * 2
    assert {m.instance for m in later.moves} == {0, 1}
    assert first.feasible and later.feasible


@pytest.mark.parametrize("paper", [False, True])
def test_scenario_2_different_priorities_shed_in_order(paper: bool) -> None:
    rush = decide(taxi(2.5, priorities=(1, 2), floors=(0.1, 0.1), second_node=False), WHOLE, paper=paper)
    assert rush.queries["TDSnk2"].desired == pytest.approx(1.0)
    assert rush.queries["TDSnk1"].desired == pytest.approx(0.3)
    storm = decide(taxi(3.5, priorities=(1, 2), floors=(0.1, 0.1), second_node=False), WHOLE, paper=paper)
    assert storm.queries["TDSnk1"].desired == pytest.approx(0.1)
    assert 0.1 < storm.queries["TDSnk2"].desired < 1.0


def comparable(seeds: range) -> list[tuple[Oracle, Decision, Decision]]:
    """Worlds that shed, where the literal cycle stays within what there is and bets on nothing; its decision and ours."""
    found = []
    policy = Policy(qod_headroom=0.0, qod_tolerance=0.0)
    for seed in seeds:
        seen = up_to_date(world(seed, calm=True))
        oracle = Oracle(seen)
        everything = dict.fromkeys(oracle.operators, 1.0)
        if any(oracle.share(n) == 0.0 or oracle.cpu(n, everything) == 0.0 for n in oracle.operators):
            continue
        literal, mended = decide(seen, policy, paper=True), decide(seen, policy)
        if mended.feasible and not mended.moves and oracle.overfull(dict.fromkeys(oracle.queries, 1.0)):
            assert not oracle.overfull(desired(literal))
            found.append((oracle, literal, mended))
    return found


def desired(decision: Decision) -> dict[str, float]:
    return {name: state.desired for name, state in decision.queries.items()}


def test_what_the_literal_cycle_gives_away() -> None:
    """It leaves CPU unused that a query could use, gives some to lower priorities first, and the highest priority pays for it."""
    wastes = favours = worse = several = 0
    cases = comparable(range(400))
    for oracle, literal, mended in cases:
        got, floors = desired(literal), oracle.floors()
        short = [q for q in got if got[q] < 1.0 - 1e-6]
        wasted = [q for q in short if oracle.could_rise(got, q)]
        wastes += bool(wasted)
        for query in (q for q in short if q not in wasted):
            others = {q: floors[q] if oracle.priority(q) < oracle.priority(query) else got[q] for q in got}
            favours += oracle.could_rise(others, query)
        first = [q for q in got if oracle.priority(q) == max(map(oracle.priority, got))]
        if len(first) == 1:
            several += 1
            worse += mended.queries[first[0]].desired > got[first[0]] + 1e-6
            assert mended.queries[first[0]].desired > got[first[0]] - 1e-6
    assert len(cases) > 100 and several > 50
    assert wastes > len(cases) / 4 and favours > 0 and worse > several / 10


def test_the_node_with_the_largest_slack_is_shared_first() -> None:
    """On n1 `both` gets 40 of 100; so it leaves on n2 what `other` needs. The other way round it would take half of n2 first."""

    def on(*nodes: str) -> tuple[Instance, ...]:
        return tuple(Instance(node=n, in_rate=50.0 / len(nodes), cpu=50.0) for n in nodes)

    observation = Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=110.0), Node(name="n2", cores=1.5, cpu=100.0)),
        operators=(Operator(name="both", instances=on("n1", "n2")), Operator(name="other", instances=on("n2"))),
        edges=tuple(Edge(producer=None, topic=f"to_{q}", consumer=q, out_rate=100.0, lag=0.0) for q in ("both", "other")),
    )
    decision = decide(observation, WHOLE, paper=True)
    assert decision.queries["both"].desired == pytest.approx(0.4)
    assert decision.queries["other"].desired == pytest.approx(1.0)


def test_paper_has_no_backlog_no_damping_and_no_limit_on_raising() -> None:
    seen = chain_observation()
    base = decide(seen, WHOLE, paper=True)
    waiting = replace(seen, edges=tuple(replace(e, lag=1e6, keep=0.1) for e in seen.edges))
    assert json.loads(decide(waiting, WHOLE, paper=True).to_json())["queries"] == json.loads(base.to_json())["queries"]
    assert decide(waiting, WHOLE).queries["bill"].desired != base.queries["bill"].desired
