"""What the papers leave open: how CPU is shared, headroom, backlog, flapping; and the words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from spillway.decide.qod import decide
from spillway.decide.qod.damping import Order, damp
from spillway.decide.qod.examples import chain_observation
from spillway.model.qod import Cost, Edge, Instance, Node, Observation, Operator, Previous, Reason
from spillway.policy import Policy

from tests.support.qod_queries import WHOLE, again, query, seen

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


def test_cpu_that_was_used_for_a_third_of_the_rows_is_a_third_of_what_they_need() -> None:
    """Load rises: 40 % of a core were used, and two thirds of what came in are still in flight."""
    calm = seen(query("heavy", cpu=40.0))
    rising = _done(calm, (calm.operators[0].instances[0].in_rate or 0.0) / 3)
    assert decide(calm, Policy()).keep("to_heavy:heavy") == 1.0
    needs, has = 3 * 40.0, 100.0 * (1.0 - Policy().qod_headroom)
    assert decide(rising, Policy()).keep("to_heavy:heavy") == pytest.approx(has / needs)


@pytest.mark.parametrize("cpu", [0.0, 40.0])
def test_nothing_done_says_nothing_of_what_a_row_costs(cpu: float) -> None:
    found = seen(query("heavy", cpu=cpu))
    decision = decide(_done(found, 0.0), Policy())
    assert decision.edges == decide(found, Policy()).edges
    assert json.loads(decision.to_json())["feasible"] is True


def test_the_papers_know_one_rate() -> None:
    found = seen(query("heavy", cpu=45.0, floor=0.5))
    assert decide(_done(found, 20.0), WHOLE, paper=True) == decide(found, WHOLE, paper=True)


def _done(found: Observation, rate: float) -> Observation:
    [operator] = found.operators
    [instance] = operator.instances
    return replace(found, operators=(replace(operator, instances=(replace(instance, done_rate=rate),)),))


def test_what_waits_for_a_change_is_lowered_and_not_raised_above_its_floor() -> None:
    policy = Policy(qod_raise_cycles=1)
    full = seen(query("heavy", cpu=100.0))
    lowered = decide(replace(full, operators=(replace(full.operators[0], may_rise=False),)), policy)
    assert lowered.keep("to_heavy:heavy") < 1.0, "it may be lowered"
    free = seen(query("heavy", cpu=20.0, done=0.5, floor=0.2))
    free = replace(free, previous=Previous(keeps={"to_heavy:heavy": 0.5}))
    waiting = replace(free, operators=(replace(free.operators[0], may_rise=False),))
    assert decide(free, policy).keep("to_heavy:heavy") == pytest.approx(0.6)
    for _ in range(4):
        decision = decide(waiting, policy)
        waiting = again(waiting, decision)
        assert decision.keep("to_heavy:heavy") == pytest.approx(0.5)
    assert decision.edges[0].code is Reason.RAISE_WAITS
    assert "nothing is raised while a change of what runs on the way to it is being prepared" in decision.edges[0].reason
    promised = replace(waiting, operators=(replace(waiting.operators[0], min_accuracy=0.7),))
    assert decide(promised, policy).keep("to_heavy:heavy") == pytest.approx(0.7)


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


def forked(previous: Previous) -> Observation:
    """Two queries below one operator, on nodes with room for all."""
    names = {"union": "n1", "important": "n1", "other": "n2"}
    promises = {"important": (5, 0.8), "other": (1, 0.3)}
    return Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=20.0), Node(name="n2", cores=1.0, cpu=20.0)),
        operators=tuple(
            Operator(
                name=name,
                instances=(Instance(node=node, in_rate=80.0, cpu=10.0),),
                priority=promises.get(name, (None, None))[0],
                min_accuracy=promises.get(name, (None, None))[1],
            )
            for name, node in names.items()
        ),
        edges=(
            Edge(producer=None, topic="t", consumer="union", out_rate=100.0, lag=0.0, keep=0.8),
            Edge(producer="union", topic=None, consumer="important", out_rate=80.0, lag=0.0, keep=1.0),
            Edge(producer="union", topic=None, consumer="other", out_rate=80.0, lag=0.0, keep=0.8),
        ),
        previous=previous,
    )


def test_nobody_waits_while_one_that_matters_less_rises() -> None:
    """Both have 80 and 64 % and could have all; the less important has waited already."""
    decision = decide(forked(Previous(raise_ready={"other": 1})), Policy(qod_raise_limit=0.25))
    assert decision.queries["other"].desired == pytest.approx(0.89)
    assert decision.queries["important"].desired == 1.0
    assert decision.remember.raise_ready == {"other": 2, "important": 1}


def test_nobody_waits_while_one_that_matters_less_follows_another_one() -> None:
    """Streams in a row: the least query has waited, the next one rises with it, and so does the one that shares with that."""
    low, middle, high = 0, 1, 2
    order = Order(np.array([low, middle, high]), np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]))
    half, whole = np.full(3, 0.5), np.ones(3)
    free = np.ones(3, dtype=bool)
    found = damp(half, whole, np.zeros(3), np.array([1, 0, 0]), free, Policy(qod_raise_limit=0.25), order)
    assert found.accuracy.tolist() == [0.75, 0.75, 0.75] and not found.waits.any()
    blind = np.array([True, False, True])
    found = damp(half, whole, np.zeros(3), np.array([1, 0, 0]), blind, Policy(qod_raise_limit=0.25), order)
    assert found.accuracy.tolist() == [0.75, 0.5, 0.5], "one that may not rise overtakes nobody"


def test_one_that_matters_less_waits_by_itself() -> None:
    decision = decide(forked(Previous(raise_ready={"important": 1})), Policy(qod_raise_limit=0.25))
    assert (decision.queries["important"].desired, decision.queries["other"].desired) == (1.0, pytest.approx(0.64))


def test_the_keep_in_force_counts_when_nothing_is_remembered() -> None:
    calm = seen(query("q", cpu=50.0))
    calm = replace(calm, edges=tuple(replace(e, keep=0.4) for e in calm.edges))
    decision = decide(calm, WHOLE)
    assert (decision.keep("to_q:q"), decision.remember.raise_ready) == (0.4, {"q": 1})


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
