"""Rows on the way meet the keeps of two decisions: those of before above, those of now below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.examples import fork
from spillway.decide.qod.flight import MOST, for_rows_on_the_way
from spillway.decide.qod.propagate import downward, keeps
from spillway.model.qod import Edge, Instance, Node, Observation, Operator, Previous, Reason
from spillway.policy import Policy


def taxi(keeps_before: dict[str, float]) -> Observation:
    """The front is on a node of its own with CPU for all of it again; the heavy query has CPU for a fifth of what comes."""
    return Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=40.0), Node(name="n2", cores=1.0, cpu=95.0)),
        operators=(
            Operator(name="union", instances=(Instance(node="n1", in_rate=88.0, cpu=20.0),)),
            Operator(name="light", priority=5, min_accuracy=0.8, instances=(Instance(node="n1", in_rate=88.0, cpu=10.0),)),
            Operator(name="heavy", priority=1, min_accuracy=0.2, instances=(Instance(node="n2", in_rate=20.0, cpu=95.0),)),
        ),
        edges=(
            Edge(producer=None, topic="trips", consumer="union", out_rate=100.0, lag=0.0),
            Edge(producer="union", topic=None, consumer="light", out_rate=88.0, lag=0.0),
            Edge(producer="union", topic=None, consumer="heavy", out_rate=88.0, lag=0.0),
        ),
        previous=Previous(keeps=keeps_before, raise_ready={"light": 1}),
    )


def test_rows_that_were_shed_above_before_do_not_fall_below_the_floor_below() -> None:
    """As seen on the line: the union kept 0.88 of all, and was to keep everything again."""
    decision = decide(taxi({"trips:union": 0.88, "union:light": 1.0, "union:heavy": 0.2 / 0.88}), Policy(qod_raise_limit=1.0))
    assert decision.keep("trips:union") == 1.0 and decision.keep("union:light") == 1.0
    assert 0.88 * decision.keep("union:heavy") >= 0.2 - 1e-9
    [heavy] = [e for e in decision.edges if e.consumer == "heavy"]
    assert heavy.code is Reason.ON_THE_WAY and "rows on the way to heavy" in heavy.reason
    assert decision.queries["heavy"].desired == pytest.approx(heavy.keep), "what is promised is what the keeps deliver"

    again = decide(replace(taxi(dict(decision.remember.keeps)), previous=decision.remember), Policy())
    assert again.keep("union:heavy") == pytest.approx(0.2), "for one cycle"
    assert all(e.code is not Reason.ON_THE_WAY for e in again.edges)


def test_a_lift_is_bounded_by_what_a_cycle_may_raise_and_by_a_quarter() -> None:
    """Light jumps to its floor, as it may. Heavy is not to jump with it: a gate would refuse every such decision."""
    seen = taxi({"trips:union": 0.3, "union:light": 1.0, "union:heavy": 0.2 / 0.3})
    decision = decide(seen, Policy(qod_raise_limit=0.02))
    assert decision.queries["light"].desired >= 0.8
    assert 0.2 < decision.queries["heavy"].desired <= 0.22 + 1e-9
    decision = decide(seen, Policy(qod_raise_limit=1.0))
    assert decision.queries["heavy"].desired == pytest.approx(MOST * 0.2), "it has CPU for 0.2"


def test_a_query_whose_lag_is_not_known_is_not_lifted() -> None:
    seen = taxi({"trips:union": 0.88, "union:light": 1.0, "union:heavy": 0.2 / 0.88})
    blind = Edge(producer=None, topic="more", consumer="heavy", out_rate=0.0, lag=None)
    seen = replace(seen, edges=(*seen.edges, blind))
    assert all(e.code is not Reason.ON_THE_WAY for e in decide(seen, Policy(qod_raise_limit=1.0)).edges)


@pytest.mark.parametrize("off", [0.0, 1e-12, 1e-11, 1e-10, 5e-9, 1e-8, 1e-6])
def test_a_keep_that_is_just_below_a_floor_is_decided_on(off: float) -> None:
    decision = decide(taxi({"trips:union": 0.88, "union:light": 1.0, "union:heavy": 0.2 / 0.88 - off}), Policy())
    assert 0.2 - 1e-6 <= decision.queries["heavy"].desired <= MOST * 0.2


EVERYBODY, ALL = np.ones(2, dtype=bool), 1.0
"""May rise; in one cycle."""


@pytest.mark.parametrize("seed", range(50))
def test_whatever_was_in_force_no_row_on_the_way_falls_below_a_floor_that_was_kept(seed: int) -> None:
    chance = np.random.default_rng(seed)
    first, second = chance.uniform(0.05, 0.5, 2).tolist()
    world = fork(floors=(first, second))
    before, now = (np.maximum(world.floor, chance.uniform(0.0, 1.0, 2)) for _ in range(2))
    in_force = keeps(world, before)
    accuracy = for_rows_on_the_way(world, now, in_force, EVERYBODY, ALL)
    assert (accuracy >= now).all() and (accuracy <= np.minimum(MOST * now, 1.0) + 1e-12).all()
    after, old = keeps(world, accuracy), downward(world, in_force)
    for number, edge in enumerate(world.edges):
        if edge.consumer in ("A", "B"):
            query = "AB".index(edge.consumer)
            reached = old[2] * after[number] >= world.floor[query] - 1e-7, accuracy[query] >= MOST * now[query] - 1e-9
            assert any(reached), "written by the union before, read now"


def test_nobody_is_lifted_who_is_below_a_floor_or_was() -> None:
    """Else a node that cannot hold its floors would be given still more."""
    world = fork(floors=(0.0, 0.5))
    in_force = np.array([0.4, 0.4, 1.0, 1.0, 1.0, 0.5])
    assert for_rows_on_the_way(world, np.array([0.8, 0.1]), in_force, EVERYBODY, ALL).tolist() == [0.8, 0.1]
    assert for_rows_on_the_way(world, np.array([0.8, 0.5]), in_force, EVERYBODY, ALL).tolist() == [0.8, 0.5]


def test_nothing_changes_where_less_is_delivered_above() -> None:
    world = fork(floors=(0.1, 0.1))
    assert for_rows_on_the_way(world, np.array([0.5, 0.2]), np.ones(6), EVERYBODY, ALL).tolist() == [0.5, 0.2]
