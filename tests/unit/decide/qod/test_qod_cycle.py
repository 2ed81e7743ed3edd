"""What the papers leave open: backlog, flapping, missing and stale metrics, warm-up, infeasible floors, moves; and the words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.examples import chain_observation
from spillway.model.qod import Cost, Decision, Edge, Infeasible, Instance, Node, Observation, Operator, Previous, Reason
from spillway.policy import Policy

from tests.support.qod_lp import cores_missing
from tests.support.qod_oracle import Oracle
from tests.support.qod_worlds import with_cores, world

WHOLE = Policy(qod_headroom=0.0)
"""All of a core may be used, which gives round numbers."""


def query(
    name: str, *, node: str = "n1", cpu: float = 50.0, done: float = 1.0, priority: int = 1, floor: float = 0.0, count: int = 1,
    warming: bool = False,
) -> Operator:  # fmt: skip
    """A source that is a query, of 100 rows per second, `cpu` for the share `done` of them in each instance."""
    instance = Instance(node=node, in_rate=100.0 * done / count, cpu=cpu, warming=warming)
    return Operator(name=name, instances=(instance,) * count, priority=priority, min_accuracy=floor)


def seen(*operators: Operator, cores: dict[str, float] | None = None, lag: float | None = 0.0) -> Observation:
    nodes = cores or {"n1": 1.0}
    used = {n: sum(i.cpu or 0.0 for o in operators for i in o.instances if i.node == n) for n in nodes}
    return Observation(
        nodes=tuple(Node(name=n, cores=c, cpu=used[n]) for n, c in nodes.items()),
        operators=operators,
        edges=tuple(Edge(producer=None, topic=f"to_{o.name}", consumer=o.name, out_rate=100.0, lag=lag) for o in operators),
    )


def again(observation: Observation, decision: Decision) -> Observation:
    return replace(observation, previous=decision.remember)


# distribution


def test_equal_priorities_get_equal_cpu_and_the_light_one_is_satisfied() -> None:
    """Algorithm 3 by hand: 20 and 160 on one core; the light one takes its 20, the heavy one the other 80."""
    decision = decide(seen(query("light", cpu=20.0), query("heavy", cpu=80.0, done=0.5)), WHOLE)
    assert decision.queries["light"].desired == 1.0
    assert decision.queries["heavy"].desired == pytest.approx(0.5)


def test_an_instance_has_one_core_whatever_the_node_has() -> None:
    decision = decide(seen(query("heavy", cpu=100.0, done=0.4), cores={"n1": 8.0}), WHOLE)
    assert decision.queries["heavy"].desired == pytest.approx(0.4)
    assert decision.edges[0].code is Reason.CORE_BOUND
    assert decision.edges[0].reason == "keeps 40 %: an instance of heavy would need 250 % of a core and has one core"


@pytest.mark.parametrize(("node", "own", "floor"), [(104.0, 98.0, 0.0), (103.0, 1.0, 0.5)])
def test_a_node_that_is_measured_above_its_cores_is_full_and_no_more(node: float, own: float, floor: float) -> None:
    observation = seen(query("q", cpu=own, floor=floor))
    decision = decide(replace(observation, nodes=(replace(observation.nodes[0], cpu=node),)), WHOLE)
    assert (decision.feasible, decision.queries["q"].desired) == (True, 1.0)
    assert decision.expected.cpu == {"n1": pytest.approx(100.0)}


def test_nothing_is_shed_when_there_is_room() -> None:
    decision = decide(seen(query("light", cpu=20.0)), WHOLE)
    (edge,) = decision.edges
    assert (edge.keep, edge.published, edge.code) == (1.0, False, Reason.NOTHING_TO_SHED)
    assert decision.expected.cpu == {"n1": pytest.approx(20.0)}


def test_a_query_without_promise_has_the_defaults_of_a_topology() -> None:
    decision = decide(seen(replace(query("plain"), priority=None, min_accuracy=None)), WHOLE)
    assert (decision.queries["plain"].priority, decision.queries["plain"].floor) == (1, 0.0)


def test_what_nothing_flows_through_keeps_everything() -> None:
    quiet = seen(query("quiet", cpu=0.0, done=0.0))
    quiet = replace(quiet, edges=tuple(replace(e, out_rate=0.0) for e in quiet.edges))
    assert decide(quiet, WHOLE).keep("to_quiet:quiet") == 1.0


def test_a_stalled_query_bets_on_one_core() -> None:
    """Nothing gets through: its floor reserves a whole core; without a floor half a core is half the way."""
    decision = decide(seen(query("other", cpu=50.0, priority=2), query("stalled", cpu=0.0, done=0.0)), WHOLE)
    assert decision.queries["stalled"].desired == pytest.approx(0.5)
    tight = seen(query("other", cpu=50.0, floor=0.8), query("stalled", cpu=0.0, done=0.0, priority=2, floor=0.1))
    decision = decide(tight, WHOLE)
    assert not decision.feasible and decision.infeasible is not None
    assert (decision.infeasible.queries, decision.infeasible.cores_needed) == (("other",), 0.4)


# headroom


def test_shedding_leaves_headroom_on_the_node_and_on_the_core_of_an_instance() -> None:
    policy = Policy(qod_headroom=0.1)
    decision = decide(seen(query("a", cpu=50.0, done=0.5), query("b", cpu=50.0, done=0.5)), policy)
    assert {name: s.desired for name, s in decision.queries.items()} == pytest.approx({"a": 0.45, "b": 0.45})
    assert decision.edges[0].reason == (
        "keeps 45 %: n1 has 90 % of a core for operators that would need 200 % of a core, most of it a"
    )
    one = decide(seen(query("heavy", cpu=95.0), cores={"n1": 8.0}), policy)
    assert one.queries["heavy"].desired == pytest.approx(90.0 / 95.0)
    assert one.edges[0].reason == "keeps 94.74 %: an instance of heavy would need 95 % of a core and may use 90 % of a core"
    assert decide(seen(query("light", cpu=89.0)), policy).queries["light"].desired == 1.0


def test_the_headroom_of_a_node_is_a_share_of_all_its_cores() -> None:
    """Others use 100 of 400; 300 are left, of which 40 stay free."""
    shared = seen(query("q", cpu=100.0, done=0.5, count=3), cores={"n1": 4.0})
    shared = replace(shared, nodes=(replace(shared.nodes[0], cpu=400.0),))
    assert decide(shared, Policy(qod_headroom=0.1)).queries["q"].desired == pytest.approx(0.5 * 260.0 / 300.0)


def test_floors_may_use_the_headroom() -> None:
    """Both floors need all of n1: nothing moves, nothing is infeasible, nobody gets more than its floor."""
    full = seen(
        query("a", cpu=50.0, done=0.5, floor=0.5),
        query("b", cpu=50.0, done=0.5, floor=0.5, priority=2),
        cores={"n1": 1.0, "n2": 1.0},
    )
    decision = decide(full, Policy(qod_headroom=0.5))
    assert decision.feasible and not decision.moves
    assert {name: s.desired for name, s in decision.queries.items()} == {"a": 0.5, "b": 0.5}
    beyond = seen(query("a", cpu=50.0, done=0.5, floor=0.6), query("b", cpu=50.0, done=0.5, floor=0.6, priority=2))
    with_headroom, without = decide(beyond, Policy(qod_headroom=0.5)).infeasible, decide(beyond, WHOLE).infeasible
    assert with_headroom == without and without is not None and without.cores_needed == pytest.approx(0.2)
    assert "n1 has 100 % of a core" in decide(beyond, Policy(qod_headroom=0.5)).edges[0].reason


# backlog


def test_a_backlog_raises_the_demand() -> None:
    """600 rows that wait, spread over 30 s, make 120 rows per second of 100."""
    full = query("full", cpu=100.0)
    assert decide(seen(full), WHOLE).queries["full"].desired == 1.0
    assert decide(seen(full, lag=600.0), WHOLE).queries["full"].desired == pytest.approx(1.0 / 1.2)
    slow = replace(WHOLE, qod_drain_horizon_s=60.0)
    assert decide(seen(full, lag=600.0), slow).queries["full"].desired == pytest.approx(1.0 / 1.1)


def test_the_batch_in_flight_is_no_backlog() -> None:
    policy = Policy(qod_headroom=0.0, qod_lag_ignored_s=2.0)
    assert decide(seen(query("full", cpu=100.0), lag=200.0), policy).queries["full"].desired == 1.0
    assert decide(seen(query("full", cpu=100.0), lag=800.0), policy).queries["full"].desired == pytest.approx(1.0 / 1.2)


def test_the_backlog_of_an_inner_edge_counts_too() -> None:
    inner = chain_observation()
    lagging = replace(inner, edges=(inner.edges[0], replace(inner.edges[1], lag=3000.0)))
    assert decide(lagging, WHOLE).queries["bill"].desired < decide(inner, WHOLE).queries["bill"].desired


def test_an_unknown_lag_lets_a_keep_fall_but_not_rise() -> None:
    heavy = seen(query("heavy", cpu=100.0, done=0.5), lag=None)
    lowered = decide(heavy, WHOLE)
    assert lowered.missing == ("edges.to_heavy:heavy.lag",)
    assert lowered.keep("to_heavy:heavy") == pytest.approx(0.5)
    light = replace(seen(query("heavy", cpu=20.0, done=0.5), lag=None), previous=lowered.remember)
    for _ in range(4):
        decision = decide(light, WHOLE)
        light = again(light, decision)
        assert decision.keep("to_heavy:heavy") == pytest.approx(0.5)
    assert decision.edges[0].code is Reason.LAG_UNKNOWN
    known = replace(light, edges=tuple(replace(e, lag=0.0) for e in light.edges))
    assert decide(known, WHOLE).keep("to_heavy:heavy") == pytest.approx(0.6)


def test_the_cpu_of_catching_up_is_no_steady_need() -> None:
    """q works off twice what arrives and needs 45 of its 90 from now on; r needs 32. The same holds behind a source that does."""
    q = Operator(name="q", instances=(Instance(node="n1", in_rate=200.0, cpu=90.0),), priority=1)
    r = Operator(name="r", instances=(Instance(node="n1", in_rate=10.0, cpu=8.0),), priority=0)
    observation = seen(q, r)
    into_q, into_r = observation.edges
    observation = replace(observation, edges=(into_q, replace(into_r, out_rate=40.0)))
    assert {name: s.desired for name, s in decide(observation, WHOLE).queries.items()} == {"q": 1.0, "r": 1.0}
    source = Operator(name="source", instances=(Instance(node="n1", in_rate=200.0, cpu=10.0),))
    behind = replace(
        observation,
        operators=(source, replace(q, instances=(replace(q.instances[0], cpu=80.0),)), r),
        edges=(
            replace(into_q, consumer="source"),
            Edge(producer="source", topic=None, consumer="q", out_rate=200.0, lag=0.0),
            observation.edges[1],
        ),
    )
    assert {name: s.desired for name, s in decide(behind, WHOLE).queries.items()} == {"q": 1.0, "r": 1.0}
    costly = Cost(fixed=0.0, per_arrived=0.0, per_kept=0.4)
    learned = replace(behind, operators=(source, replace(behind.operators[1], cost=costly), r))
    decision = decide(learned, Policy(qod_headroom=0.0, cpu_model="affine"))
    assert decision.queries["r"].desired == 1.0
    assert decision.expected.cpu["n1"] == pytest.approx(5.0 + 40.0 + 32.0)


def test_an_unknown_keep_may_fall_but_not_rise() -> None:
    def without_keep(observation: Observation, **fields: float) -> Observation:
        return replace(observation, edges=tuple(replace(e, keep=fields.get(e.consumer)) for e in observation.edges))

    rush, calm = seen(query("q", cpu=100.0, done=0.5)), seen(query("q", cpu=20.0))
    lowered = decide(without_keep(rush), WHOLE)
    assert lowered.missing == ("edges.to_q:q.keep",)
    assert (lowered.keep("to_q:q"), lowered.edges[0].published) == (pytest.approx(0.5), True)
    (edge,) = decide(without_keep(calm), WHOLE).edges
    assert (edge.keep, edge.published, edge.code) == (1.0, False, Reason.KEEP_UNKNOWN)
    chain = chain_observation()
    light = replace(chain, operators=tuple(replace(o, instances=(replace(o.instances[0], cpu=5.0),)) for o in chain.operators))
    light = replace(without_keep(light, union=0.6), previous=Previous(raise_ready={"bill": 5}))
    decision = decide(light, WHOLE)
    assert (decision.missing, decision.keep("yellow:union")) == (("edges.union:bill.keep",), pytest.approx(0.6))
    assert [e.code for e in decision.edges] == [Reason.KEEP_UNKNOWN, Reason.KEEP_UNKNOWN]
    assert decide(again(light, decision), WHOLE).missing == (), "what is remembered is known"


# flapping


def test_lowering_is_immediate_raising_waits_and_goes_in_steps() -> None:
    rush, calm = seen(query("q", cpu=100.0, done=0.5)), seen(query("q", cpu=50.0))
    decision = decide(rush, WHOLE)
    keeps, codes = [decision.keep("to_q:q")], [decision.edges[0].code]
    for _ in range(7):
        decision = decide(again(calm, decision), WHOLE)
        keeps.append(decision.keep("to_q:q"))
        codes.append(decision.edges[0].code)
    assert keeps == pytest.approx([0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0])
    assert codes[:3] == [Reason.CPU_BOUND, Reason.RAISE_WAITS, Reason.RAISE_LIMITED]
    assert codes[-1] is Reason.NOTHING_TO_SHED


def test_the_count_starts_anew_when_more_is_no_longer_possible() -> None:
    rush, calm = seen(query("q", cpu=100.0, done=0.5)), seen(query("q", cpu=50.0))
    decision = decide(rush, WHOLE)
    for observation in (calm, rush, calm):
        decision = decide(again(observation, decision), WHOLE)
        assert decision.keep("to_q:q") == pytest.approx(0.5)


@pytest.mark.parametrize(("done", "published"), [(0.485, False), (0.515, False), (0.47, True)])
def test_small_changes_are_not_published(done: float, published: bool) -> None:
    before = Previous(keeps={"to_q:q": 0.5})
    decision = decide(replace(seen(query("q", cpu=100.0, done=done)), previous=before), WHOLE)
    assert decision.edges[0].published is published
    assert decision.keep("to_q:q") == pytest.approx(done if published else 0.5)
    assert (decision.edges[0].code is Reason.WITHIN_TOLERANCE) is not published


def test_the_last_bit_to_everything_is_made() -> None:
    calm = replace(seen(query("q", cpu=50.0)), previous=Previous(keeps={"to_q:q": 0.99}))
    first = decide(calm, WHOLE)
    assert (first.keep("to_q:q"), first.edges[0].code) == (0.99, Reason.RAISE_WAITS)
    assert decide(again(calm, first), WHOLE).keep("to_q:q") == 1.0


def test_a_keep_of_nothing_rises_by_however_little_is_possible() -> None:
    """Three operators that stand still bet on a core each, and 5 percent are free: else they would never be seen to run."""
    names = ("a", "b", "q")
    observation = Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=95.0),),
        operators=tuple(Operator(name=n, instances=(Instance(node="n1", in_rate=0.0, cpu=0.0),)) for n in names),
        edges=tuple(
            Edge(producer=above, topic=None if above else "t", consumer=n, out_rate=0.0 if above else 100.0, lag=0.0, keep=keep)
            for above, n, keep in ((None, "a", 0.0), ("a", "b", 1.0), ("b", "q", 1.0))
        ),
    )
    first = decide(observation, WHOLE)
    assert (first.edges[0].keep, first.edges[0].code) == (0.0, Reason.RAISE_WAITS)
    assert decide(again(observation, first), WHOLE).keep("t:a") == pytest.approx(0.05 / 3)


def test_a_floor_is_not_waited_for() -> None:
    calm = replace(seen(query("q", cpu=50.0, floor=0.6)), previous=Previous(keeps={"to_q:q": 0.1}))
    assert decide(calm, WHOLE).keep("to_q:q") == pytest.approx(0.6)


def test_the_keep_in_force_counts_when_nothing_is_remembered() -> None:
    calm = seen(query("q", cpu=50.0))
    calm = replace(calm, edges=tuple(replace(e, keep=0.4) for e in calm.edges))
    decision = decide(calm, WHOLE)
    assert (decision.keep("to_q:q"), decision.remember.raise_ready) == (0.4, {"q": 1})


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
    for seed in range(300):
        observation = world(seed)
        infeasible = decide(observation, WHOLE).infeasible
        if infeasible is None:
            continue
        found += 1
        assert decide(grown(observation, infeasible), WHOLE).feasible, seed
        at = sum(infeasible.at.values())
        assert infeasible.cores_needed is not None and infeasible.cores_needed >= at - 1e-9, seed
        further += bool(infeasible.instances_needed)
        least = cores_missing(Oracle(observation))
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
            assert cores_missing(Oracle(observation)) < 1e-6, seed


# words


def test_an_edge_says_what_it_keeps_of_what_arrives() -> None:
    observation = Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=100.0),),
        operators=(
            Operator(name="union", instances=(Instance(node="n1", in_rate=100.0, cpu=20.0),)),
            Operator(name="heavy", priority=1, instances=(Instance(node="n1", in_rate=50.0, cpu=50.0),)),
            Operator(name="light", priority=2, instances=(Instance(node="n1", in_rate=100.0, cpu=30.0),)),
        ),
        edges=(
            Edge(producer=None, topic="trips", consumer="union", out_rate=100.0, lag=0.0),
            Edge(producer="union", topic=None, consumer="heavy", out_rate=100.0),
            Edge(producer="union", topic=None, consumer="light", out_rate=100.0),
        ),
    )
    decision = decide(observation, WHOLE)
    assert [e.reason for e in decision.edges] == [
        "keeps everything: there is CPU for all of it",
        "keeps 50 %: n1 has 100 % of a core for operators that would need 150 % of a core, most of it heavy; priority 1 gives "
        "way to light of priority 2",
        "keeps everything: there is CPU for all of it",
    ]
    crowded = replace(observation, operators=(replace(observation.operators[0], instances=(
        Instance(node="n1", in_rate=50.0, cpu=60.0),)), *observation.operators[1:]))  # fmt: skip
    edges = {e.name: e for e in decide(crowded, WHOLE).edges}
    assert edges["union:light"].code is Reason.SHED_EARLIER
    assert edges["union:light"].reason == "hands on all that arrives: what has to go is dropped earlier"
    assert edges["union:heavy"].code is Reason.AT_FLOOR
    assert edges["union:heavy"].reason.startswith("keeps 0 %, the floor of heavy: n1 has ")
