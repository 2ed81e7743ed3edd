"""`detect`: verdicts and their reasons, what is missing, which source is studied, and what is handed on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from spillway.decide.capacity import AnswerBroken, by_program, detect
from spillway.decide.capacity.checks import Answer, CapacityBroken, ConservationBroken, CutBroken
from spillway.decide.capacity.examples import chain, fork, join
from spillway.decide.capacity.network import Network
from spillway.model.capacity import (
    Bandwidth,
    Busy,
    CapacityFinding,
    CapacityWorld,
    DrainPath,
    Estimator,
    FlowEdge,
    FlowOperator,
    Verdict,
)
from spillway.policy import Policy

POLICY = Policy()
INTERCHANGE = """
{"operators": [{"name": "parse", "parallelism": 2}, {"name": "count", "parallelism": 1}],
 "edges": [{"from": null, "topic": "ads", "to": "parse", "flow": 900.0, "capacity": 2000.0, "backlog": 50000},
           {"from": "parse", "to": "count", "flow": 300.0, "capacity": 300.0, "selectivity": 0.333}]}
"""


def world(*edges: dict[str, Any], **operators: dict[str, Any]) -> CapacityWorld:
    named = [{"name": name, "parallelism": 1, **fields} for name, fields in operators.items()]
    return CapacityWorld.from_json(json.dumps({"operators": named, "edges": [{"from": None, **e} for e in edges]}))


def test_the_example_of_the_interchange() -> None:
    finding = detect(CapacityWorld.from_json(INTERCHANGE), POLICY)
    assert finding.max_flow == finding.cut_value == 300.0 / 0.333
    assert finding.cut == (("parse", "count"),)
    assert finding.bottlenecks == finding.potential == ("count",)
    assert finding.drain == ()
    assert finding.in_source_units
    assert finding.reason == "count lets no more than 901 rows/s of ads through, which carries 900 rows/s: there is no room left"


def test_while_there_is_a_path_and_rows_wait_they_are_dispatched() -> None:
    finding = detect(chain(flow=600.0), POLICY)
    assert (finding.verdict, finding.bottlenecks, finding.potential) == (Verdict.DISPATCH, (), ())
    assert finding.drain == (DrainPath(path=("ads", "parse", "count"), value=300.0),)
    assert finding.cut == (("parse", "count"),)


def test_the_path_goes_through_the_smallest_space_and_down_to_a_sink() -> None:
    deep = world(
        {"topic": "t", "to": "a", "flow": 10, "capacity": 100, "backlog": 5},
        {"from": "a", "to": "b", "capacity": 40},
        {"from": "a", "to": "c", "capacity": 90},
        {"from": "b", "to": "d", "capacity": 80},
        {"from": "c", "to": "d", "capacity": 60},
        {"from": "d", "to": "e", "capacity": 500},
        **{name: {} for name in "abcde"},
    )
    assert detect(deep, POLICY).drain == (DrainPath(path=("t", "a", "b", "d", "e"), value=30.0),)


@pytest.mark.parametrize(
    ("backlog", "verdict", "says"),
    [
        (0.0, Verdict.KEEPS_UP, "ads carries 600 rows/s of the 900 rows/s that fit, and nothing waits"),
        (None, Verdict.KEEPS_UP, "ads carries 600 rows/s of the 900 rows/s that fit, and whether anything waits is not known"),
        (1.0, Verdict.DISPATCH, "1 row of ads waits, and 300 rows/s more fit through ads → parse → count"),
    ],
)
def test_what_waits_decides_between_dispatch_and_nothing(backlog: float | None, verdict: Verdict, says: str) -> None:
    finding = detect(chain(flow=600.0, backlog=backlog), POLICY)
    assert (finding.verdict, finding.reason) == (verdict, says)


def test_a_batch_in_flight_may_be_no_backlog() -> None:
    policy = Policy(capacity_backlog_ignored_s=10.0)
    assert detect(chain(flow=600.0, backlog=6_000.0), policy).verdict is Verdict.KEEPS_UP
    assert detect(chain(flow=600.0, backlog=6_001.0), policy).verdict is Verdict.DISPATCH


def test_room_that_is_smaller_than_the_measurement_is_none_while_rows_wait() -> None:
    unsure = replace(chain().edges[1], flow=270.0, confidence=0.9)
    narrow = replace(chain(flow=820.0), edges=(replace(chain().edges[0], flow=820.0), unsure))
    assert detect(narrow, POLICY).bottlenecks == ("count",)
    calm = replace(narrow, edges=(replace(narrow.edges[0], backlog=0.0), unsure))
    assert detect(calm, POLICY).verdict is Verdict.KEEPS_UP
    guess = replace(narrow, edges=(replace(narrow.edges[0], flow=600.0), replace(unsure, confidence=0.0)))
    assert detect(guess, POLICY).verdict is Verdict.DISPATCH, "never more than λ leaves"


def test_rows_wait_in_front_of_the_bottleneck_and_not_at_the_source() -> None:
    behind = chain(flow=1500.0, backlog=0.0)
    waiting = replace(
        behind, edges=(replace(behind.edges[0], arrival=1500.0), replace(behind.edges[1], flow=300.0, backlog=9_000.0))
    )
    finding = detect(waiting, POLICY)
    assert finding.bottlenecks == ("count",)
    assert finding.reason.endswith("through, to which 1500 rows/s are written: there is no room left")


def test_two_that_are_equally_narrow_are_both_named() -> None:
    even = fork(right=1.6, flow=500.0)
    assert detect(even, POLICY).bottlenecks == ("slow", "fast")
    assert detect(even, POLICY).potential == ("slow", "fast")


def test_no_source() -> None:
    finding = detect(world(a={}), POLICY)
    assert (finding.verdict, finding.max_flow, finding.source) == (Verdict.NO_SOURCE, None, None)


def test_no_load_on_a_pipeline_is_no_bottleneck() -> None:
    idle = world({"topic": "t", "to": "a", "flow": 0, "arrival": 0, "capacity": 0, "backlog": 0}, a={})
    assert detect(idle, POLICY).verdict is Verdict.KEEPS_UP
    assert detect(idle, POLICY).potential == ()
    asked = world({"topic": "t", "to": "a", "flow": 0, "capacity": 0, "backlog": 3}, a={})
    finding = detect(asked, POLICY)
    assert (finding.max_flow, finding.cut_value, finding.bottlenecks) == (0.0, 0.0, ("a",))


def test_the_others_alone_fill_it() -> None:
    full = replace(join(capacity=250.0), operators=(replace(join().operators[0], capacity=250.0),))
    finding = detect(full, POLICY)
    assert (finding.source, finding.max_flow, finding.cut_value, finding.bottlenecks) == ("clicks", 0.0, 0.0, ("match",))
    assert finding.reason == "match lets nothing of clicks through: the other sources alone fill it"


@pytest.mark.parametrize(("edge", "operator"), [({"capacity": 50}, {}), ({}, {"capacity": 50})])
def test_what_another_source_cannot_bring_through_its_own_operators_is_not_held(
    edge: dict[str, Any], operator: dict[str, Any]
) -> None:
    side = world(
        {"topic": "main", "to": "join", "flow": 100, "backlog": 500},
        {"topic": "side", "to": "own", "flow": 900, "backlog": 1, **edge},
        {"from": "own", "to": "join", "flow": 50},
        join={"capacity": 400},
        own=operator,
    )
    assert detect(side, POLICY).max_flow == 350.0


def test_what_the_others_overfill_most_is_named() -> None:
    over = world(
        {"topic": "main", "to": "a", "flow": 10, "backlog": 9000},
        {"topic": "side", "to": "a", "flow": 200},
        {"from": "a", "to": "b"},
        a={"capacity": 150},
        b={"capacity": 50},
    )
    finding = detect(over, POLICY)
    assert (finding.max_flow, finding.bottlenecks, finding.cut) == (0.0, ("b",), (("a", "b"),))


def test_links_that_the_others_overfill_leave_nothing() -> None:
    """Both topics only reach the first instance, whose 100 rows/s the other one takes; no partition sees that."""
    narrow = world(
        {"topic": "main", "to": "a", "flow": 10, "backlog": 9000, "links": [500, 0]},
        {"topic": "side", "to": "a", "flow": 120, "links": [500, 0]},
        a={"parallelism": 2, "instances": [{"rows": 100, "busy_s": 1}, {"rows": 900, "busy_s": 1}]},
    )
    finding = detect(narrow, POLICY)
    assert (finding.source, finding.max_flow, finding.bottlenecks) == ("main", 0.0, ("a",))
    assert finding.limits["a"].limit == 500.0


def test_a_missing_capacity_forbids_dispatch_but_excuses_no_bottleneck() -> None:
    blind = replace(chain(flow=600.0), edges=(replace(chain(flow=600.0).edges[0], capacity=None), chain().edges[1]))
    finding = detect(blind, POLICY)
    assert (finding.verdict, finding.missing, finding.drain) == (Verdict.NOT_KNOWN, ("operators.parse.capacity",), ())
    assert finding.max_flow == 900.0
    full = replace(blind, edges=(replace(blind.edges[0], flow=900.0), blind.edges[1]))
    assert detect(full, POLICY).bottlenecks == ("count",)


def test_a_missing_flow_is_not_zero() -> None:
    unknown = replace(chain(), edges=(replace(chain().edges[0], flow=None), chain().edges[1]))
    finding = detect(unknown, POLICY)
    assert (finding.verdict, finding.missing, finding.present) == (Verdict.NOT_KNOWN, ("edges.ads:parse.flow",), None)
    other = replace(join(), edges=(join().edges[0], replace(join().edges[1], flow=None)))
    assert detect(other, POLICY).missing == ("edges.views:match.flow",)
    assert detect(other, POLICY).verdict is Verdict.NOT_KNOWN


def test_the_source_with_the_largest_partition_is_studied() -> None:
    def two(**more: Any) -> CapacityWorld:
        return world(
            {"topic": "even", "to": "a", "flow": 1, "capacity": 9, "backlog": 400, **more.get("even", {})},
            {"topic": "skewed", "to": "a", "flow": 1, "capacity": 9, "backlog": 300, **more.get("skewed", {})},
            a={},
        )

    assert detect(two(), POLICY).source == "even"
    by_partition = two(even={"partitions": [100, 100, 100, 100]}, skewed={"partitions": [250, 25, 25, 0]})
    assert detect(by_partition, POLICY).source == "skewed"
    assert detect(two(even={"partitions": [100, 100, 100, 100]}), POLICY).source == "even"


def test_what_waits_further_down_counts_at_the_source_it_came_from() -> None:
    down = world(
        {"topic": "loud", "to": "a", "flow": 90, "backlog": 0},
        {"topic": "quiet", "to": "b", "flow": 10, "backlog": 40},
        {"from": "a", "to": "b", "flow": 70, "backlog": 600},
        a={"capacity": 100},
        b={"capacity": 80},
    )
    assert detect(down, POLICY).source == "loud"
    assert detect(down, POLICY).bottlenecks == ("b",)


def test_a_topic_that_two_operators_read_is_copied() -> None:
    copied = world(
        {"topic": "t", "to": "a", "flow": 80, "capacity": 100, "backlog": 0},
        {"topic": "t", "to": "b", "flow": 60, "capacity": 60, "backlog": 900},
        a={},
        b={},
    )
    finding = detect(copied, POLICY)
    assert (finding.max_flow, finding.present, finding.bottlenecks) == (60.0, 60.0, ("b",))


def test_which_estimator_a_capacity_came_from() -> None:
    link = Bandwidth(link=4e3, system=0.0, heartbeat=0.0, checkpoint=0.0, others=0.0, row_bytes=100.0)
    seen = CapacityWorld(
        operators=(
            FlowOperator(name="net", parallelism=2),
            FlowOperator(name="busy", parallelism=1, batches=(Busy(rows=100.0, busy_s=1.0),) * 3),
            FlowOperator(name="slow", parallelism=1),
            FlowOperator(name="blind", parallelism=1),
        ),
        edges=(
            FlowEdge(producer=None, topic="t", consumer="net", flow=5.0, bandwidth=link),
            FlowEdge(producer="net", topic=None, consumer="busy", flow=5.0, bandwidth=link),
            FlowEdge(
                producer="net", topic=None, consumer="slow", flow=5.0, capacity=9.0, latency_ms=500.0, latency_constraint_ms=250.0
            ),
            FlowEdge(producer="net", topic=None, consumer="blind", flow=5.0),
        ),
    )
    edges = {e.consumer: e for e in detect(seen, POLICY).edges}
    assert (edges["net"].estimator, edges["net"].capacity) == (Estimator.BANDWIDTH, 80.0)
    assert (edges["busy"].estimator, edges["busy"].capacity, edges["busy"].confidence) == (Estimator.USEFUL_RATE, 100.0, 1.0)
    assert (edges["slow"].estimator, edges["slow"].capacity) == (Estimator.FEEDBACK, 7.0)
    assert (edges["blind"].estimator, edges["blind"].capacity, edges["blind"].confidence) == (Estimator.NONE, None, 0.0)


def test_what_was_carried_is_handed_on_and_holds_the_capacity_up() -> None:
    edge = FlowEdge(
        producer=None, topic="t", consumer="a", flow=290.0, capacity=300.0, latency_ms=200.0, latency_constraint_ms=250.0
    )
    one = CapacityWorld(operators=(FlowOperator(name="a", parallelism=1),), edges=(edge,))
    first = detect(one, POLICY).edges[0]
    assert first.carried == 290.0
    slow = replace(edge, flow=280.0, latency_ms=10.0 * 250.0, latency_constraint_ms=50.0, carried=first.carried, capacity=295.0)
    second = detect(replace(one, edges=(slow,)), POLICY).edges[0]
    assert (second.capacity, second.carried, second.estimator) == (290.0, 290.0, Estimator.FEEDBACK)


def test_an_operator_with_two_inputs_is_regulated_as_one() -> None:
    timed = [replace(e, latency_ms=500.0, latency_constraint_ms=250.0) for e in join().edges]
    finding = detect(replace(join(), edges=tuple(timed)), POLICY)
    assert finding.limits["match"].capacity == 998.0
    assert finding.limits["match"].estimator is Estimator.FEEDBACK


def test_the_same_world_gives_the_same_finding_and_the_json_is_whole() -> None:
    finding = detect(chain(), POLICY)
    assert finding == detect(CapacityWorld.from_json(chain().to_json()), POLICY)
    told = json.loads(finding.to_json())
    assert list(told)[:7] == ["max_flow", "cut_value", "cut", "bottlenecks", "potential", "drain", "in_source_units"]
    assert told["cut"] == [["parse", "count"]]
    assert told["edges"][0]["estimator"] == "given"


def lying(**changed: Any) -> Any:
    return lambda network: replace(by_program(network), **changed)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"value": 901.0}, ConservationBroken),
        ({"flow": (900.0, 900.0, 300.0, 200.0)}, ConservationBroken),
        ({"flow": (900.0, 900.0, 301.0, 301.0)}, CapacityBroken),
        ({"flow": (-900.0, 900.0, 300.0, 300.0)}, CapacityBroken),
        ({"cut_value": 899.0}, CutBroken),
        ({"value": 0.0, "flow": (0.0,) * 4, "cut_value": 0.0, "size": 0.0}, CutBroken),
    ],
)
def test_an_answer_that_does_not_hold_is_not_given(changed: dict[str, Any], error: type[AnswerBroken]) -> None:
    with pytest.raises(error):
        detect(chain(), POLICY, max_flow=lying(**changed))


def test_an_answer_above_every_partition_is_not_given() -> None:
    def larger(network: Network) -> Answer:
        wide = replace(network, arcs=tuple(replace(a, capacity=2 * a.capacity) for a in network.arcs))
        return by_program(wide)

    with pytest.raises(AnswerBroken):
        detect(chain(), POLICY, max_flow=larger)


def test_a_finding_is_frozen() -> None:
    finding: CapacityFinding = detect(chain(), POLICY)
    with pytest.raises(AttributeError):
        finding.max_flow = 1.0  # type: ignore[misc]
