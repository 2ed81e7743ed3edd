"""The interchange of `spillway decide capacity`: what goes in comes out, and a mistake is one sentence that names its place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from spillway.model.capacity import Bandwidth, Busy, CapacityWorld, FlowEdge, FlowOperator
from spillway.model.qod import ObservationError

SMALL: dict[str, Any] = {
    "operators": [{"name": "parse", "parallelism": 2}, {"name": "count", "parallelism": 1}],
    "edges": [
        {"from": None, "topic": "ads", "to": "parse", "flow": 900.0, "capacity": 2000.0, "backlog": 50000},
        {"from": "parse", "to": "count", "flow": 300.0, "capacity": 300.0, "selectivity": 0.333},
    ],
}
FULL = CapacityWorld(
    operators=(
        FlowOperator(name="a", parallelism=2, capacity=5.0, confidence=0.5, batches=(Busy(rows=1.0, busy_s=2.0),)),
        FlowOperator(name="b", parallelism=2, instances=(Busy(rows=3.0, busy_s=1.0),) * 2, skew=1.5),
    ),
    edges=(
        FlowEdge(
            producer=None,
            topic="t",
            consumer="a",
            flow=1.0,
            capacity=2.0,
            confidence=0.25,
            backlog=3.0,
            partitions=(1.0, 2.0),
            selectivity=0.5,
            arrival=1.5,
            bandwidth=Bandwidth(link=9.0, system=1.0, heartbeat=1.0, checkpoint=1.0, others=1.0, row_bytes=5.0),
            latency_ms=10.0,
            latency_constraint_ms=20.0,
            carried=0.75,
        ),
        FlowEdge(producer="a", topic="inner", consumer="b", links=(1.0, 2.0)),
    ),
)


def changed(*path: Any, value: Any) -> str:
    copy = json.loads(json.dumps(SMALL))
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(copy)


def test_the_example_is_read() -> None:
    world = CapacityWorld.from_json(json.dumps(SMALL))
    assert [o.name for o in world.operators] == ["parse", "count"]
    assert world.edges[0].backlog == 50000.0
    assert world.edges[0].selectivity is None and world.edges[0].share == 1.0
    assert world.edges[1].backlog is None, "absent is missing, not zero"
    assert json.loads(world.to_json()) == SMALL


def test_everything_goes_there_and_back() -> None:
    FULL.check()
    assert CapacityWorld.from_json(FULL.to_json()) == FULL
    assert CapacityWorld.from_json(json.loads(FULL.to_json())) == FULL


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, column 1 is not valid JSON (Expecting value); give one JSON object"),
        ("[]", "the observation is an array, but must be an object"),
        ('{"operators": []}', "edges is missing, but must be an array of objects"),
        (changed("edgez", value=[]), "the unknown field edgez; did you mean edges?"),
        (changed("edges", 0, "flows", value=1), "edges[0] has the unknown field flows; did you mean flow?"),
        (
            changed("operators", 0, "paralelism", value=1),
            "operators.parse has the unknown field paralelism; did you mean parallelism?",
        ),
        (
            changed("operators", 0, "parallelism", value=0),
            "operators.parse.parallelism is 0, but must be a whole number from 1 to",
        ),
        (
            changed("operators", 0, "parallelism", value=1.5),
            "operators.parse.parallelism is 1.5, but must be a whole number from 1",
        ),
        (changed("operators", 0, "parallelism", value=None), "operators.parse.parallelism is missing; it must be a whole number"),
        (changed("operators", 0, "name", value=""), "operators[0].name is empty; it must be a name"),
        (changed("operators", 1, "name", value="parse"), "operators has the name parse twice; names must be unique"),
        (changed("operators", 0, "skew", value=0.5), "operators.parse.skew is 0.5, but must be at least 1: the fullest bucket"),
        (changed("operators", 0, "confidence", value=2), "operators.parse.confidence is 2, but must be a number from 0 to 1"),
        (
            changed("operators", 0, "instances", value=[{"rows": 1, "busy_s": 1}]),
            "operators.parse has 1 instances, but parallelism 2; give one for each or none",
        ),
        (
            changed("operators", 0, "batches", value=[{"rows": 1}]),
            "operators.parse.batches[0].busy_s is missing; it must be a number",
        ),
        (changed("edges", 0, "flow", value="fast"), "edges[0].flow is the text 'fast', but must be a number from 0 to 1e+15"),
        (changed("edges", 0, "flow", value=True), "edges[0].flow is true, but must be a number"),
        (changed("edges", 0, "flow", value=-1), "edges[0].flow is -1, but must be a number from 0 to 1e+15"),
        (changed("edges", 0, "capacity", value=float("nan")), "edges[0].capacity is nan, but must be a number from 0 to 1e+15"),
        (changed("edges", 0, "capacity", value=float("inf")), "edges[0].capacity is inf, but must be a number from 0 to 1e+15"),
        (changed("edges", 0, "topic", value=None), "edges[0] has neither from nor topic; name the operator or the topic"),
        (
            changed("edges", 1, "from", value="pars"),
            "edges.pars:count.from is pars, which is not an operator; did you mean parse?",
        ),
        (
            changed("edges", 0, "to", value="nobody"),
            "edges.ads:nobody.to is nobody, which is not an operator; known are count, parse",
        ),
        (
            changed("edges", value=[*SMALL["edges"], SMALL["edges"][1]]),
            "edges has the name parse:count twice; names must be unique",
        ),
        (
            changed("edges", value=[*SMALL["edges"], {"from": "count", "to": "parse"}]),
            "form a cycle; a pipeline must end somewhere",
        ),
        (changed("edges", value=[{"from": "parse", "to": "parse"}]), "the edges parse → parse form a cycle"),
        (changed("edges", 0, "partitions", value=[1, -2]), "edges[0].partitions[1] is -2, but must be a number"),
        (changed("edges", 0, "links", value=3), "edges[0].links is 3, but must be an array of numbers"),
        (
            changed("edges", 1, "links", value=[1, 2]),
            "edges.parse:count has 2 links, but count has parallelism 1; give one for each",
        ),
        (changed("edges", 1, "links", value=[1]), "edges.parse:count has a capacity and links; give one of them"),
        (changed("edges", 0, "latency_ms", value=0), "edges.ads:parse.latency_ms is 0, but must be more than 0; leave it out"),
        (changed("edges", 0, "bandwidth", value={"link": 1}), "edges[0].bandwidth.system is missing; it must be a number"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(ObservationError) as raised:
        CapacityWorld.from_json(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(FULL, edges=(replace(FULL.edges[0], flow=-1.0), FULL.edges[1])), "edges.t:a.flow is -1.0, but must be a number"),
        (replace(FULL, edges=(replace(FULL.edges[0], arrival=float("nan")),)), "edges.t:a.arrival is nan"),
        (replace(FULL, edges=(replace(FULL.edges[0], partitions=(-1.0,)),)), "edges.t:a.partitions[0] is -1.0"),
        (replace(FULL, operators=FULL.operators[:1]), "edges.a:b.to is b, which is not an operator"),
        (
            replace(FULL, operators=(replace(FULL.operators[0], batches=(Busy(rows=-1.0, busy_s=1.0),)), FULL.operators[1])),
            "operators.a.batches[0].rows is -1.0",
        ),
    ],
)
def test_what_is_made_in_python_can_be_checked_too(wrong: CapacityWorld, says: str) -> None:
    with pytest.raises(ObservationError) as raised:
        wrong.check()
    assert says in str(raised.value)
