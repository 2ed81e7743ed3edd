"""Each rule on flow networks, findings and plans lets good ones through and is broken by the row it is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spillway.decide.capacity import detect
from spillway.decide.rescale import plan_rescale
from spillway.gates.capacity import check_detected, check_measured, check_proposed
from spillway.gates.capacity_suites import detected_suites, measured_suites, proposed_suites
from spillway.gates.capacity_tables import Found, Proposed
from spillway.model.capacity_window import CapacityWindow
from spillway.model.rescale import OperatorLoad, RescaleWorld
from spillway.model.topology import Parallelism
from spillway.observe.capacity_load import Past, rescale_world
from spillway.observe.capacity_world import capacity_world
from spillway.policy import Policy

from tests.support.flows import changed, flow_window
from tests.support.windows import NOON, pipeline

TAXI, ADS = pipeline("taxi"), pipeline("ads")
AHEAD = Policy().qod_ahead_s


def rules(verdict: Any, name: str = "taxi") -> set[str]:
    return {f.rule for f in verdict.failures.get(name, ())}


def names(suites: dict[str, Any]) -> set[str]:
    return {r.expectation_type.removeprefix("expect_") for found in suites.values() for r in found}


def both(taxi: CapacityWindow) -> dict[str, CapacityWindow]:
    return {"taxi": taxi, "ads": flow_window(ADS)}


# ---- what was measured ----


def test_a_good_window_passes() -> None:
    verdict = check_measured(both(flow_window(TAXI)), AHEAD)
    assert verdict.failures == {}
    assert verdict.rules == sum(len(r) for r in measured_suites(AHEAD).values())


BROKEN = {
    "no_instance_missing": lambda w: changed(w, "operators", 0, measured=1),
    "no_instance_too_many": lambda w: changed(w, "operators", 0, measured=3),
    "busy_time_not_to_be_negative": lambda w: changed(
        w, "operators", 0, batches=(replace(w.operators[0].batches[0], busy_s=-1.0),)
    ),
    "batches_one_after_another": lambda w: changed(w, "operators", 0, overlap_s=12.0),
    "selectivity_to_be_measured": lambda w: changed(w, "operators", 0, selectivity=None),
    "selectivity_not_to_be_negative": lambda w: changed(w, "operators", 0, selectivity=-0.1),
    "clocks_to_agree": lambda w: changed(w, "operators", 0, ahead_s=5.0),
    "instances_once": lambda w: replace(w, instances=(*w.instances, replace(w.instances[0], node="n2"))),
    "instance_rows_not_to_be_negative": lambda w: changed(w, "instances", 0, rows=-1.0),
    "flow_to_be_measured": lambda w: changed(w, "edges", 0, flow=None),
    "flow_not_to_be_negative": lambda w: changed(w, "edges", 0, flow=-3.0),
    "arrival_rate_to_be_measured": lambda w: changed(w, "edges", 0, arrival=None),
    "arrival_rate_not_to_be_negative": lambda w: changed(w, "edges", 0, arrival=-3.0),
    "backlog_to_be_known": lambda w: changed(w, "edges", 0, backlog=None),
    "backlog_not_to_be_negative": lambda w: changed(w, "edges", 0, backlog=-1.0),
    "keep_in_force_to_be_a_share": lambda w: changed(w, "edges", 0, keep=1.2),
    "latency_not_to_be_negative": lambda w: changed(w, "edges", 0, latency_ms=-5.0),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_row_stops_its_pipeline_and_no_other(rule: str) -> None:
    verdict = check_measured(both(BROKEN[rule](flow_window(TAXI))), AHEAD)
    assert rules(verdict) == {rule}
    assert verdict.passed("ads")
    [failure] = verdict.failures["taxi"]
    assert failure.evidence["rows"], "evidence is what a person looks at"
    assert failure.meaning in str(failure)


def test_every_rule_on_what_was_measured_is_broken_by_a_test() -> None:
    assert names(measured_suites(AHEAD)) == set(BROKEN)


@pytest.mark.parametrize("table", ["operators", "instances", "edges"])
@pytest.mark.parametrize(("ahead_s", "passes"), [(2.0, True), (2.1, False), (-3.5, True), (-3.6, False)])
def test_clocks_are_looked_at_in_every_table(table: str, ahead_s: float, passes: bool) -> None:
    assert check_measured({"taxi": changed(flow_window(TAXI), table, 0, ahead_s=ahead_s)}, AHEAD).passed("taxi") is passes


def test_behind_an_operator_that_has_hardly_finished_a_batch_nothing_has_to_be_known() -> None:
    idle = changed(flow_window(TAXI), "operators", 2, finished=0, batches=(), selectivity=None, busy_share=None)
    idle = changed(idle, "edges", 3, flow=None, backlog=None, arrival=None)
    assert check_measured({"taxi": idle}, AHEAD).passed("taxi")


# ---- what was found ----


def found(spec: Any = TAXI, *, over_flow: float = 0.25, **window: float) -> Found:
    world = capacity_world(flow_window(spec, **window))
    return Found(pipeline=spec, world=world, finding=detect(world, Policy()).as_dict(), over_flow=over_flow)


def altered(one: Found, **values: Any) -> Found:
    return replace(one, finding={**one.finding, **values})


def row(one: Found, table: str, number: int, **values: Any) -> Found:
    rows = [{**r, **values} if n == number else r for n, r in enumerate(one.finding[table])]
    return altered(one, **{table: rows})


@pytest.mark.parametrize("rate", [0.0, 100.0, 199.0, 400.0, 4000.0])
def test_what_is_found_passes(rate: float) -> None:
    verdict = check_detected([found(rate=rate), found(ADS, rate=rate)])
    assert verdict.failures == {}
    assert verdict.rules == sum(len(r) for r in detected_suites().values())


WRONG = {
    "flow_to_equal_cut": lambda f: altered(f, cut_value=f.finding["max_flow"] * 1.01),
    "flow_and_cut_together": lambda f: altered(f, cut_value=None),
    "max_flow_not_to_be_negative": lambda f: altered(f, max_flow=-1.0, cut_value=-1.0),
    "finding_to_have_a_reason": lambda f: altered(f, reason=""),
    "bottleneck_to_be_named": lambda f: altered(f, verdict="bottleneck", bottlenecks=[]),
    "bottleneck_to_be_declared": lambda f: altered(f, bottlenecks=["somebody"]),
    "every_edge_to_be_found_once": lambda f: altered(f, edges=[*f.finding["edges"], f.finding["edges"][0]]),
    "capacity_not_to_be_negative": lambda f: row(f, "edges", 0, capacity=-1.0, flow=None),
    "flow_within_capacity": lambda f: row(f, "edges", 0, flow=f.finding["edges"][0]["capacity"] * 1.3),
    "confidence_to_be_a_share": lambda f: row(f, "edges", 0, confidence=1.5),
    "capacity_to_say_its_estimator": lambda f: row(f, "edges", 0, estimator=""),
    "rows_to_be_conserved": lambda f: row(f, "operators", 2, gain=1.7),
    "limit_not_to_be_negative": lambda f: row(f, "operators", 0, limit=-2.0),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_finding_stops_its_pipeline_and_no_other(rule: str) -> None:
    verdict = check_detected([WRONG[rule](found()), found(ADS)])
    assert rules(verdict) == {rule}
    assert verdict.passed("ads")


def test_every_rule_on_findings_is_broken_by_a_test() -> None:
    assert names(detected_suites()) == set(WRONG)


@pytest.mark.parametrize("edges", [lambda e: e[1:], lambda e: [*e, {**e[0], "to": "nobody"}]])
def test_an_edge_that_is_forgotten_or_made_up_is_found(edges: Any) -> None:
    one = found()
    verdict = check_detected([altered(one, edges=edges(one.finding["edges"]))])
    assert ("every_edge_to_be_found_once" in rules(verdict)) is (len(edges(one.finding["edges"])) < 4)


def test_a_flow_may_lie_above_its_capacity_by_what_the_policy_says() -> None:
    one = row(found(over_flow=0.5), "edges", 0, flow=found().finding["edges"][0]["capacity"] * 1.4)
    assert check_detected([one]).passed("taxi")


# ---- what is proposed ----

WIDE = replace(TAXI, operators=tuple(replace(o, parallelism=Parallelism(max=8)) for o in TAXI.operators))


def proposal(spec: Any = WIDE, times: int = 3) -> Proposed:
    window = flow_window(spec, rate=300.0)
    operators = tuple(
        OperatorLoad(name=o.operator, application=o.application, parallelism=o.declared, buckets=8) for o in window.operators
    )
    past = Past(bottleneck_for={"heavy": times}, peaks={}, window_s=0.0)
    finding = detect(capacity_world(window), Policy()).as_dict()
    world = rescale_world(RescaleWorld(now=NOON, operators=operators), spec, window, finding, past)
    executors = {a.name: a.executors for a in spec.applications}
    return Proposed(pipeline=spec, executors=executors, output=plan_rescale(world, Policy()).as_dict())


def plan(one: Proposed, application: str = "heavy", **values: Any) -> Proposed:
    plans = [{**p, **values} if p["application"] == application else p for p in one.output["plans"]]
    return replace(one, output={**one.output, "plans": plans})


@pytest.mark.parametrize("times", [0, 3])
def test_what_is_proposed_passes(times: int) -> None:
    one = proposal(times=times)
    assert any(p["answer"] == "change" for p in one.output["plans"]) is (times == 3)
    verdict = check_proposed([one])
    assert verdict.failures == {}
    assert verdict.rules == sum(len(r) for r in proposed_suites().values())


BAD = {
    "plan_for_declared_operator": lambda p: plan(p, operator="union"),
    "one_plan_per_application": lambda p: replace(p, output={**p.output, "plans": [*p.output["plans"], p.output["plans"][-1]]}),
    "target_within_declared_bounds": lambda p: plan(p, executors={"from": 1, "to": 9}),
    "plan_to_begin_with_what_is": lambda p: replace(p, executors={**p.executors, "heavy": 2}),
    "every_plan_to_have_a_reason": lambda p: plan(p, words=""),
    "more_executors_to_bring_more": lambda p: plan(p, expected_rate=10.0),
}


@pytest.mark.parametrize("rule", BAD)
def test_a_bad_plan_stops_its_pipeline(rule: str) -> None:
    assert rules(check_proposed([BAD[rule](proposal())])) == {rule}


def test_every_rule_on_plans_is_broken_by_a_test() -> None:
    assert names(proposed_suites()) == set(BAD)


def test_what_is_beyond_its_bounds_already_may_stay_there() -> None:
    narrow = replace(TAXI, operators=tuple(replace(o, parallelism=Parallelism(max=1)) for o in TAXI.operators))
    assert check_proposed([proposal(narrow, times=0)]).passed("taxi"), "front has 2 executors and declares 1 at most"
