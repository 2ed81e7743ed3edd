"""Metrics that are missing or stale, and nodes that warm up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.examples import chain_observation
from spillway.model.qod import Instance, Observation, Previous, Reason
from spillway.policy import Policy

from tests.support.qod_queries import WHOLE, query, seen

# missing and stale


def test_stale_metrics_hold_the_last_decision() -> None:
    old = replace(seen(query("q", cpu=100.0, done=0.5)), previous=Previous(keeps={"to_q:q": 0.8}), age_s=46.0, cycle_s=15.0)
    decision = decide(old, WHOLE)
    assert decision.held == "METRICS_STALE"
    (edge,) = decision.edges
    assert (edge.keep, edge.published, edge.code) == (0.8, False, Reason.METRICS_STALE)
    assert edge.reason == "METRICS_STALE: metrics are 46 s old, more than 3 cycles of 15 s, so the last keep of 0.8 stays"
    assert decision.remember.keeps == {"to_q:q": 0.8}
    assert decide(replace(old, age_s=45.0), WHOLE).held is None
    assert decide(replace(old, age_s=46.0, cycle_s=None), Policy(qod_cycle_s=16.0)).held is None


def test_what_is_held_below_its_floor_is_said() -> None:
    low, high = query("low", floor=0.5), query("high", floor=0.5, priority=3)
    old = replace(seen(low, high), previous=Previous(keeps={"to_low:low": 0.05, "to_high:high": 0.1}), age_s=46.0, cycle_s=15.0)
    decision = decide(old, Policy())
    assert not decision.feasible and decision.infeasible is not None
    assert (decision.infeasible.queries, decision.infeasible.cores_needed) == (("high", "low"), None)
    assert json.loads(decision.to_json())["infeasible"]["cores_needed"] is None
    fine = replace(old, previous=Previous(keeps={"to_low:low": 0.5, "to_high:high": 0.6}))
    assert decide(fine, Policy()).feasible and decide(fine, Policy()).infeasible is None


def test_both_halves_of_a_decision_say_what_is_below_its_floor() -> None:
    """`blind` is held at 0.1; `hopeless` is decided, and needs 160 of one core."""
    blind = query("blind", node="n2", cpu=100.0, floor=0.5, priority=2)
    blind = replace(blind, instances=(replace(blind.instances[0], in_rate=None),))
    hopeless = [query("hopeless", cpu=50.0, done=0.5, floor=0.8), query("other", cpu=50.0, done=0.5, floor=0.8, priority=3)]
    observation = seen(blind, *hopeless, cores={"n1": 1.0, "n2": 1.0})
    decision = decide(replace(observation, previous=Previous(keeps={"to_blind:blind": 0.1})), WHOLE)
    assert not decision.feasible and decision.infeasible is not None
    assert (decision.infeasible.queries, decision.infeasible.cores_needed) == (("blind", "hopeless"), None)
    assert decision.infeasible.at == {"n1": 0.6}
    held_only = decide(
        replace(
            seen(blind, query("fine", cpu=5.0), cores={"n1": 1.0, "n2": 1.0}), previous=Previous(keeps={"to_blind:blind": 0.1})
        ),
        WHOLE,
    )
    assert not held_only.feasible and held_only.infeasible is not None and held_only.infeasible.queries == ("blind",)
    decided_only = decide(observation, WHOLE)
    assert decided_only.infeasible is not None
    assert (decided_only.infeasible.queries, decided_only.infeasible.cores_needed) == (("hopeless",), 0.6)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("operators.q.instances[0].cpu", {"cpu": None}),
        ("operators.q.instances[0].in_rate", {"in_rate": None}),
    ],
)
def test_a_missing_metric_holds_its_pipeline_and_no_other(field: str, change: dict[str, None]) -> None:
    holed = seen(query("q", cpu=100.0, done=0.5), query("other", node="n2", cpu=100.0, done=0.5), cores={"n1": 1.0, "n2": 1.0})
    q, other = holed.operators
    holed = replace(holed, operators=(replace(q, instances=(replace(q.instances[0], **change),)), other))
    decision = decide(holed, WHOLE)
    assert decision.missing == (field,)
    assert decision.held is None
    assert [(e.keep, e.code) for e in decision.edges] == [(1.0, Reason.METRICS_STALE), (pytest.approx(0.5), Reason.CPU_BOUND)]
    assert f"METRICS_STALE: {field} is missing" in decision.edges[0].reason


def test_a_gap_at_the_end_of_a_pipeline_holds_its_sources_too() -> None:
    chain = chain_observation()
    union, bill = chain.operators
    blind = replace(bill, instances=(replace(bill.instances[0], in_rate=None),))
    other = seen(query("other", node="n1", cpu=5.0))
    holed = replace(chain, operators=(union, blind, *other.operators), edges=(*chain.edges, *other.edges))
    decision = decide(holed, WHOLE)
    assert [e.code is Reason.METRICS_STALE for e in decision.edges] == [True, True, False]


def test_everything_missing_holds_everything() -> None:
    empty = Observation.from_json(
        {"nodes": [{"name": "n1", "cores": 1}], "operators": [{"name": "q", "instances": [{"node": "n1"}]}],
         "edges": [{"topic": "t", "to": "q", "keep": 0.3}]}
    )  # fmt: skip
    decision = decide(empty, WHOLE)
    assert decision.held == "METRICS_STALE"
    assert decision.keep("t:q") == 0.3
    assert set(decision.missing) == {
        "operators.q.instances[0].in_rate",
        "operators.q.instances[0].cpu",
        "nodes.n1.cpu",
        "edges.t:q.out_rate",
    }


def test_the_cpu_of_a_held_neighbour_is_not_given_away() -> None:
    """q cannot be seen but uses 60 of the core: `other` shares the 40 that are left, not 100."""
    holed = seen(query("q", cpu=60.0), query("other", cpu=40.0, done=0.5))
    q, other = holed.operators
    holed = replace(holed, operators=(replace(q, instances=(replace(q.instances[0], in_rate=None),)), other))
    assert decide(holed, WHOLE).queries["other"].desired == pytest.approx(0.5)


def test_an_operator_without_instances_is_missing() -> None:
    gone = seen(query("q"), query("other", cpu=20.0))
    decision = decide(replace(gone, operators=(replace(gone.operators[0], instances=()), gone.operators[1])), WHOLE)
    assert decision.missing == ("operators.q.instances",)
    assert decision.edges[0].code is Reason.METRICS_STALE


def test_an_empty_world_is_decided() -> None:
    decision = decide(Observation(nodes=(), operators=(), edges=()), WHOLE)
    assert (decision.feasible, decision.edges, decision.held) == (True, (), None)


# warm-up


def test_a_node_that_warms_up_runs_at_its_floors() -> None:
    """A third query elsewhere is not touched."""
    observation = seen(
        query("new", cpu=10.0, done=0.1, floor=0.4, warming=True),
        query("old", cpu=20.0, floor=0.3),
        query("far", node="n2", cpu=20.0, floor=0.3),
        cores={"n1": 4.0, "n2": 1.0},
    )
    decision = decide(observation, WHOLE)
    assert {name: state.desired for name, state in decision.queries.items()} == {"new": 0.4, "old": 0.3, "far": 1.0}
    assert decision.edges[1].code is Reason.WARMING
    assert decision.edges[1].reason == "keeps 30 %, the least old is promised, while n1 warms up"
    assert decide(observation, WHOLE, paper=True).queries["old"].desired == 0.3


def test_a_new_instance_may_be_without_metrics() -> None:
    observation = seen(query("new", cpu=10.0, floor=0.4, warming=True))
    blank = Instance(node="n1", in_rate=None, cpu=None, warming=True)
    decision = decide(replace(observation, operators=(replace(observation.operators[0], instances=(blank,)),)), WHOLE)
    assert (decision.missing, decision.queries["new"].desired) == ((), 0.4)


def test_what_warms_up_is_not_taken_for_overloaded() -> None:
    """It does a tenth of its rows with half a core; taken at its word, its floor of 0.8 would need four cores."""
    alone = decide(seen(query("new", cpu=50.0, done=0.1, floor=0.8, warming=True)), WHOLE)
    assert alone.feasible and alone.queries["new"].desired == 0.8
    beside = seen(
        query("new", cpu=50.0, done=0.1, floor=0.8, warming=True),
        query("hopeless", node="n2", cpu=100.0, done=0.5, floor=0.8),
        cores={"n1": 1.0, "n2": 1.0},
    )
    assert (infeasible := decide(beside, WHOLE).infeasible) is not None
    assert (infeasible.queries, infeasible.cores_needed) == (("hopeless",), 0.6)
    pair = seen(query("new", cpu=50.0, done=0.1, floor=0.8), cores={"n1": 1.0, "n2": 1.0})
    old, new = Instance(node="n1", in_rate=45.0, cpu=30.0), Instance(node="n2", in_rate=5.0, cpu=50.0, warming=True)
    decision = decide(replace(pair, operators=(replace(pair.operators[0], instances=(old, new)),)), WHOLE)
    assert decision.feasible and not decision.moves
    assert decision.expected.cpu["n1"] == pytest.approx(20.0 + 0.8 * 30.0 / 0.9)


def test_a_node_warms_up_for_others_too_when_what_is_new_is_held() -> None:
    """The other instance of `blind` cannot be seen, so all of it is held; what it starts on n1 still warms n1 up."""
    new, unseen = Instance(node="n1", in_rate=None, cpu=None, warming=True), Instance(node="n2", in_rate=None, cpu=5.0)
    observation = seen(query("blind"), query("old", cpu=60.0, floor=0.3), query("far", node="n2"), cores={"n1": 1.0, "n2": 4.0})
    blind, *others = observation.operators
    observation = replace(observation, operators=(replace(blind, instances=(new, unseen)), *others))
    decision = decide(observation, WHOLE)
    assert {name: decision.queries[name].desired for name in ("old", "far")} == {"old": 0.3, "far": 1.0}
    assert decision.edges[1].reason == "keeps 30 %, the least old is promised, while n1 warms up"
    tight = seen(query("blind"), query("a", cpu=60.0, floor=1.0), query("b", cpu=60.0, floor=1.0), cores={"n1": 1.0, "n2": 4.0})
    blind, *others = tight.operators
    onto = (replace(new, node="n2"), replace(unseen, node="n1"))
    assert not decide(replace(tight, operators=(replace(blind, instances=onto), *others)), WHOLE).moves


def test_nothing_is_moved_off_or_onto_a_warming_node() -> None:
    tight = [query("a", cpu=60.0, floor=1.0), query("b", cpu=60.0, floor=1.0)]
    two = {"n1": 1.0, "n2": 4.0}
    assert decide(seen(*tight, query("c", node="n2", cpu=5.0), cores=two), WHOLE).moves
    onto = decide(seen(*tight, query("c", node="n2", cpu=5.0, warming=True), cores=two), WHOLE)
    assert not onto.moves and not onto.feasible
    off = decide(seen(tight[0], replace(tight[1], instances=(replace(tight[1].instances[0], warming=True),)), cores=two), WHOLE)
    assert not off.moves and off.feasible
