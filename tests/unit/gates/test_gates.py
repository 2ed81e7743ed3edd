"""Each rule lets good rows through and is broken by the row it is there for; who is broken is told apart from who is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.decide.qod import decide
from spillway.gates.run import Gate, check_decision, check_observation
from spillway.gates.suites import decision_suites, observation_suites
from spillway.gates.tables import Judged, observed
from spillway.gates.verdict import UNKNOWN
from spillway.observe.world import keeps_before, observation, part
from spillway.policy import Policy

from tests.support.windows import changed, pipeline, window

TAXI, ADS = pipeline("taxi"), pipeline("ads")
AHEAD = Policy().qod_ahead_s


def rules(verdict, name="taxi"):
    return {f.rule for f in verdict.failures.get(name, ())}


def test_a_good_window_passes():
    verdict = check_observation(window(TAXI, ADS), AHEAD)
    assert verdict.failures == {}
    assert verdict.rules == sum(len(r) for r in observation_suites(AHEAD).values())


BROKEN = {
    "input_rate_to_be_measured": lambda w: changed(w, "instances", 0, in_rate=None),
    "instance_cpu_to_be_measured": lambda w: changed(w, "instances", 0, cpu=None),
    "input_rate_not_to_be_negative": lambda w: changed(w, "instances", 0, in_rate=-3.0),
    "instance_cpu_not_to_be_negative": lambda w: changed(w, "instances", 0, cpu=-0.5),
    "instance_cpu_within_its_node": lambda w: changed(w, "instances", 0, cpu=450.0),
    "instances_on_known_nodes": lambda w: changed(w, "instances", 0, node="n9"),
    "instances_once": lambda w: replace(w, instances=(*w.instances, replace(w.instances[0], node="n2"))),
    "no_instance_missing": lambda w: changed(w, "operators", 0, measured=1),
    "no_instance_too_many": lambda w: changed(w, "operators", 0, measured=3),
    "arrival_rate_to_be_measured": lambda w: changed(w, "edges", 0, out_rate=None),
    "arrival_rate_not_to_be_negative": lambda w: changed(w, "edges", 0, out_rate=-10.0),
    "keep_in_force_to_be_a_share": lambda w: changed(w, "edges", 0, keep=1.2),
    "lag_not_to_be_negative": lambda w: changed(w, "edges", 0, lag=-1),
    "clocks_to_agree": lambda w: changed(w, "operators", 0, ahead_s=5.0),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_row_stops_its_pipeline_and_no_other(rule):
    verdict = check_observation(BROKEN[rule](window(TAXI, ADS)), AHEAD)
    assert rules(verdict) == {rule}
    assert verdict.passed("ads")
    [failure] = verdict.failures["taxi"]
    assert failure.evidence["rows"], "evidence is what a person looks at"
    assert failure.meaning in str(failure)


@pytest.mark.parametrize(("ahead_s", "passes"), [(2.0, True), (2.1, False), (-3.5, True), (-3.6, False)])
@pytest.mark.parametrize("table", ["nodes", "instances", "operators", "edges"])
def test_a_clock_that_runs_behind_is_as_wrong_as_one_that_runs_ahead(table, ahead_s, passes):
    assert check_observation(changed(window(TAXI), table, 0, ahead_s=ahead_s), AHEAD).passed("taxi") is passes


NODES = {
    "node_cpu_to_be_measured": {"cpu": None},
    "node_cpu_not_to_be_negative": {"cpu": -1.0},
    "node_cpu_within_its_cores": {"cpu": 406.0},
    "clocks_to_agree": {"ahead_s": 9.0},
}


@pytest.mark.parametrize("rule", NODES)
def test_a_broken_node_stops_whoever_runs_on_it(rule):
    apart = window(TAXI, ADS)
    apart = replace(apart, instances=tuple(replace(i, node="n1") if i.pipeline == "ads" else i for i in apart.instances))
    verdict = check_observation(changed(apart, "nodes", 1, **NODES[rule]), AHEAD)
    assert rules(verdict) == {rule}
    assert verdict.passed("ads"), "it has nothing on n2"


def test_every_rule_on_observations_is_broken_by_a_test():
    known = {r.expectation_type.removeprefix("expect_") for rules in observation_suites(AHEAD).values() for r in rules}
    assert known == set(BROKEN) | set(NODES)


@pytest.mark.parametrize("column", ["in_rate", "cpu"])
def test_what_is_warming_may_be_unmeasured(column):
    warm = changed(window(TAXI), "instances", 0, warming=True, **{column: None})
    assert check_observation(warm, AHEAD).passed("taxi")
    starting = changed(window(TAXI), "operators", 0, warming=True, measured=0)
    starting = changed(starting, "edges", 0, out_rate=None)
    assert check_observation(starting, AHEAD).passed("taxi")
    negative = changed(window(TAXI), "instances", 0, warming=True, **{column: -1.0})
    assert not check_observation(negative, AHEAD).passed("taxi")


def test_behind_an_operator_that_has_run_no_batch_lately_nothing_is_measured_yet():
    waking = changed(window(TAXI), "operators", 0, age_s=None)
    for table, column in (("instances", "in_rate"), ("edges", "out_rate")):
        rows = getattr(waking, table)
        waking = replace(waking, **{table: tuple(replace(row, **{column: None}) for row in rows)})
    assert check_observation(waking, AHEAD).passed("taxi")
    alone = changed(changed(window(TAXI), "operators", 2, age_s=None), "instances", 0, in_rate=None)
    assert rules(check_observation(alone, AHEAD)) == {"input_rate_to_be_measured"}, "what lies above it runs"


def test_no_number_is_missing():
    assert rules(check_observation(changed(window(TAXI), "instances", 0, cpu=float("nan")), AHEAD)) == {
        "instance_cpu_to_be_measured"
    }


def test_a_gate_that_cannot_be_evaluated_lets_nobody_through():
    gate = Gate("observation", observation_suites(AHEAD))
    tables = observed(window(TAXI, ADS))
    for row in tables["operators"]:
        del row["ahead_s"]
    verdict = gate.judge(tables, ["taxi", "ads"], {})
    assert rules(verdict, "taxi") == rules(verdict, "ads") == {UNKNOWN}
    assert "ahead_s" in str(verdict.failures["taxi"][0])


# ---- decisions ----


def judged(spec=TAXI, *, before=None, cpu=20.0):
    busy = window(spec, cpu=cpu)
    seen = observation(busy, [spec.name], {spec.name: {"keeps": before, "raise_ready": {}}} if before else {}, {}, Policy())
    output = part(decide(seen, Policy()), spec, busy.nodes_of(spec.name))
    return Judged(pipeline=spec, part=output, before=keeps_before(seen, spec), raise_limit=Policy().qod_raise_limit)


def altered(one, edge, **values):
    edges = [{**e, **values} if e["name"] == edge else e for e in one.part["edges"]]
    return replace(one, part={**one.part, "edges": edges})


@pytest.mark.parametrize("cpu", [20.0, 100.0])
def test_what_is_decided_passes(cpu):
    verdict = check_decision([judged(cpu=cpu), judged(ADS, cpu=cpu)])
    assert verdict.failures == {}
    assert verdict.rules == sum(len(r) for r in decision_suites().values())


WRONG = {
    "every_edge_to_be_decided": lambda j: replace(j, part={**j.part, "edges": j.part["edges"][1:]}),
    "edges_to_be_decided_once": lambda j: replace(j, part={**j.part, "edges": [*j.part["edges"], j.part["edges"][0]]}),
    "keep_to_be_a_share": lambda j: altered(j, "union:heavy", keep=1.5),
    "every_keep_to_have_a_reason": lambda j: altered(j, "union:heavy", reason=""),
    "every_query_to_be_decided": lambda j: replace(j, part={**j.part, "queries": {"light": j.part["queries"]["light"]}}),
    "keep_within_floor": lambda j: altered(j, "union:heavy", keep=0.29),
    "promise_to_be_delivered": lambda j: altered(j, "union:heavy", keep=0.6),
    "accuracy_to_rise_slowly": lambda j: replace(j, before={**j.before, "union:heavy": 0.5}),
    "inputs_to_be_equally_accurate": lambda j: altered(j, "taxi.green:union", keep=0.9),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_decision_stops_its_pipeline_and_no_other(rule):
    verdict = check_decision([WRONG[rule](judged()), judged(ADS)])
    assert rule in rules(verdict)
    assert verdict.passed("ads")


def test_every_rule_on_decisions_is_broken_by_a_test():
    assert {r.expectation_type.removeprefix("expect_") for rules in decision_suites().values() for r in rules} == set(WRONG)


def test_a_floor_that_is_said_to_be_out_of_reach_may_be_missed():
    below = altered(judged(), "union:heavy", keep=0.2)
    queries = {**below.part["queries"], "heavy": {**below.part["queries"]["heavy"], "desired": 0.2}}
    told = {**below.part, "queries": queries, "infeasible": {"queries": ["heavy"], "cores_needed": 1.0}}
    assert check_decision([replace(below, part=told)]).failures == {}
    assert rules(check_decision([replace(below, part={**told, "infeasible": None})])) == {"keep_within_floor"}


def test_a_decision_that_has_forgotten_a_floor_is_held_to_it_all_the_same():
    below = altered(judged(), "union:heavy", keep=0.2)
    queries = {**below.part["queries"], "heavy": {**below.part["queries"]["heavy"], "desired": 0.2, "floor": 0.1}}
    assert rules(check_decision([replace(below, part={**below.part, "queries": queries})])) == {"keep_within_floor"}
    assert rules(check_decision([replace(below, part={**below.part, "queries": {}})])) == {
        "every_query_to_be_decided", "keep_within_floor",
    }  # fmt: skip


def test_a_floor_is_reached_at_once():
    one = judged(before={"union:heavy": 0.1, "union:light": 1.0, "taxi.yellow:union": 1.0, "taxi.green:union": 1.0})
    assert one.part["queries"]["heavy"]["desired"] == pytest.approx(0.3)
    assert check_decision([one]).failures == {}


def test_a_held_decision_is_not_judged_by_what_somebody_set_by_hand():
    odd = altered(judged(), "taxi.green:union", keep=0.1)
    assert not check_decision([odd]).passed("taxi")
    assert check_decision([replace(odd, part={**odd.part, "held": "METRICS_STALE"})]).passed("taxi")
