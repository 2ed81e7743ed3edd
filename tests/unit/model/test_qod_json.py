"""The interchange of `spillway decide qod`: read back as written, and one sentence for whatever is wrong with it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from spillway.decide.qod import decide
from spillway.model.qod import Cost, Edge, Observation, ObservationError, Previous
from spillway.policy import Policy

from tests.support.qod_worlds import pinned, sharing, world

GOOD: dict[str, Any] = {
    "nodes": [{"name": "n1", "cores": 1, "cpu": 95.0}],
    "operators": [
        {"name": "union", "instances": [{"node": "n1", "in_rate": 100.0, "cpu": 40.0}]},
        {"name": "bill", "priority": 2, "min_accuracy": 0.5, "instances": [{"node": "n1", "in_rate": 80.0, "cpu": 50.0}]},
    ],
    "edges": [
        {"from": None, "topic": "yellow", "to": "union", "out_rate": 120.0, "keep": 1.0, "lag": 0},
        {"from": "union", "to": "bill", "out_rate": 100.0, "keep": 1.0},
    ],
}


def test_the_example_of_the_interchange() -> None:
    seen = Observation.from_json(json.dumps(GOOD))
    assert seen.nodes[0].cores == 1.0
    assert seen.operators[1].priority == 2
    assert [e.name for e in seen.edges] == ["yellow:union", "union:bill"]
    assert seen.edges[1].lag is None
    decided = json.loads(decide(seen, Policy()).to_json())
    assert decided["feasible"] is True
    assert [(e["from"], e.get("topic"), e["to"]) for e in decided["edges"]] == [
        (None, "yellow", "union"),
        ("union", None, "bill"),
    ]
    assert all(0.0 <= e["keep"] <= 1.0 and e["reason"] for e in decided["edges"])
    assert decided["queries"]["bill"]["floor"] == 0.5
    assert (decided["moves"], decided["missing"], decided["infeasible"]) == ([], [], None)


def test_what_is_written_is_read_back() -> None:
    for seed in range(50):
        seen = sharing(pinned(world(seed, cost=True), seed), seed)
        assert Observation.from_json(seen.to_json()) == seen
    full = replace(
        Observation.from_json(GOOD),
        previous=Previous(keeps={"yellow:union": 0.5}, raise_ready={"bill": 1}),
        age_s=3.0,
        cycle_s=15.0,
        now="2031-05-04T10:00:00+00:00",
    )
    assert Observation.from_json(full.to_json()) == full
    assert Observation.from_json(full.to_json().encode()) == full


def test_absent_and_null_are_missing_and_not_zero() -> None:
    bare = {"nodes": [{"name": "n", "cores": 1}], "operators": [{"name": "q", "instances": [{"node": "n", "cpu": None}]}],
            "edges": [{"topic": "t", "to": "q"}]}  # fmt: skip
    seen = Observation.from_json(bare)
    assert (seen.nodes[0].cpu, seen.operators[0].instances[0].cpu, seen.operators[0].instances[0].in_rate) == (None, None, None)
    assert (seen.edges[0].out_rate, seen.edges[0].lag, seen.edges[0].keep) == (None, None, None)
    assert "null" not in seen.to_json().replace('"from":null', "")


def test_a_decision_of_an_infeasible_world_is_json_too() -> None:
    tight = copy.deepcopy(GOOD)
    tight["operators"][1]["min_accuracy"] = 1.0
    decided = json.loads(decide(Observation.from_json(tight), Policy()).to_json())
    assert decided["feasible"] is False
    assert decided["infeasible"]["queries"] == ["bill"]
    assert decided["infeasible"]["cores_needed"] == pytest.approx(0.28)


def changed(path: str, value: Any, good: dict[str, Any] = GOOD) -> dict[str, Any]:
    """With one value set; the path is dotted, numbers are positions."""
    raw = copy.deepcopy(good)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = raw
    for part in way:
        at = at[part]
    at[last] = value
    return raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[]", "the observation is an array, but must be an object"),
        ('"x"', "the observation is the text 'x', but must be an object"),
        ("{", "line 1, column 2 is not valid JSON (Expecting property name enclosed in double quotes); give one JSON object"),
        ("", "line 1, column 1 is not valid JSON (Expecting value); give one JSON object"),
        (b"\xff\xfe\x00", "the input is not UTF-8; give one JSON object in UTF-8"),
        ("[" * 100_000, "the input is nested too deeply or has an endless number; give one JSON object"),
        ('{"nodes": [], "nodes": []}', "the field nodes is given twice in one object; give it once"),
        ({"nodes": [], "operators": []}, "edges is missing, but must be an array of objects"),
        ({**GOOD, "egdes": []}, "the unknown field egdes; did you mean edges?"),
        ({**GOOD, "zebra": 1}, "the unknown field zebra; known are nodes, operators, edges, previous, age_s, cycle_s, now"),
        (changed("nodes", {"n1": 1}), "nodes is an object, but must be an array of objects"),
        (changed("nodes.0", 3), "nodes[0] is 3, but must be an object"),
        (changed("nodes.0.name", ""), "nodes[0].name is empty; it must be a name"),
        (changed("nodes.0.name", 7), "nodes[0].name is 7, but must be text"),
        (changed("nodes.0.cores", None), "nodes[0].cores is missing; it must be a number from 0 to 1e+15"),
        (changed("nodes.0.cores", 0), "nodes.n1.cores is 0, but must be more than 0"),
        (changed("nodes.0.cores", "4"), "nodes[0].cores is the text '4', but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cores", True), "nodes[0].cores is true, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cpu", float("nan")), "nodes[0].cpu is nan, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cpu", float("inf")), "nodes[0].cpu is inf, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cpu", -1), "nodes[0].cpu is -1, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cpu", 10**400), "nodes[0].cpu is a number of too many digits, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.memory", 1), "nodes[0] has the unknown field memory; known are name, cores, cpu"),
        (changed("nodes", [*GOOD["nodes"] * 2]), "nodes has the name n1 twice; names must be unique"),
        (changed("operators.0.name", "bill"), "operators has the name bill twice; names must be unique"),
        (changed("operators.0.instances", 2), "operators.union.instances is 2, but must be an array of objects"),
        (changed("operators.0.instances.0.node", "n2"),
         "operators.union.instances[0].node is n2, which is not declared in nodes; known are n1"),
        (changed("operators.0.instances.0.in_rate", -0.5),
         "operators.union.instances[0].in_rate is -0.5, but must be a number from 0 to 1e+15"),
        (changed("operators.0.instances.0.warming", 1), "operators.union.instances[0].warming is 1, but must be true or false"),
        (changed("operators.0.instances.0.movable", "no"),
         "operators.union.instances[0].movable is the text 'no', but must be true or false"),
        (changed("operators.0.instances.0.cores", 0), "operators.union.instances[0].cores is 0, but must be more than 0"),
        (changed("operators.0.instances", [{"node": "n1", "executor": "x"}, {"node": "n1", "executor": "x", "cores": 2}]),
         "operators.union.instances[1] has 2 cores on n1, but its executor x has 1 on n1; an executor is in one place"),
        (changed("operators.1.priority", 1.5), "operators.bill.priority is 1.5, but must be a whole number"),
        (changed("operators.1.priority", True), "operators.bill.priority is true, but must be a whole number"),
        (changed("operators.1.min_accuracy", 1.1), "operators.bill.min_accuracy is 1.1, but must be a number from 0 to 1"),
        (changed("operators.0.priority", 1), "operators.union has something downstream, so its priority and min_accuracy follow"),
        (changed("operators.0.cost", {"fixed": 1}), "operators.union.cost.per_arrived is missing; it must be a number"),
        (changed("edges.0.keep", 1.5), "edges[0].keep is 1.5, but must be a number from 0 to 1"),
        (changed("edges.0.lag", -1), "edges[0].lag is -1, but must be a number from 0 to 1e+15"),
        (changed("edges.0.topic", None), "edges[0] has neither from nor topic; name the operator or the topic its rows come"),
        (changed("edges.1.from", "unoin"), "edges.unoin:bill.from is unoin, which is not an operator; did you mean union?"),
        (changed("edges.1.to", "billing"), "edges.union:billing.to is billing, which is not an operator; did you mean bill?"),
        (changed("edges.1", GOOD["edges"][0]), "edges has the name yellow:union twice; names must be unique"),
        ({**GOOD, "previous": {"keeps": {"a:b": 2}}}, "previous.keeps.a:b is 2, but must be a number from 0 to 1"),
        ({**GOOD, "previous": {"raise_ready": {"bill": -1}}},
         "previous.raise_ready.bill is -1, but must be a whole number from 0 to 1000000000"),
        ({**GOOD, "previous": {"raise_ready": {"bill": 10**30}}},
         "previous.raise_ready.bill is a number of too many digits, but must be a whole number from 0 to 1000000000"),
        ({**GOOD, "previous": {"raise_ready": {"bill": "1"}}}, "previous.raise_ready.bill is the text '1', but must be a whole"),
        (changed("nodes.0.cores", 1e308), "nodes[0].cores is 1e+308, but must be a number from 0 to 1e+15"),
        (changed("operators.0.cost", {"fixed": 1, "per_arrived": 1e308, "per_kept": 1}),
         "operators.union.cost.per_arrived is 1e+308, but must be a number from 0 to 1e+15"),
        (changed("nodes.0.cores", 1e-300), "nodes.n1.cores is 0, but must be more than 0"),
        ({**GOOD, "previous": []}, "previous is an array, but must be an object"),
        ({**GOOD, "age_s": -3}, "age_s is -3, but must be a number from 0 to 1e+15"),
        ({**GOOD, "now": 12}, "now is 12, but must be text"),
    ],
)  # fmt: skip
def test_one_sentence_for_what_is_wrong(raw: Any, message: str) -> None:
    with pytest.raises(ObservationError) as raised:
        Observation.from_json(raw)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", ["proportional", "affine"])
@pytest.mark.parametrize("path", [
    "nodes.0.cores", "nodes.0.cpu", "operators.0.instances.0.in_rate", "operators.0.instances.0.cpu",
    "operators.1.instances.0.in_rate", "operators.1.instances.0.cpu", "operators.1.instances.0.cores", "operators.1.min_accuracy",
    "operators.1.cost.fixed", "operators.1.cost.per_arrived", "operators.1.cost.per_kept", "operators.1.priority",
    "edges.0.out_rate", "edges.0.lag", "edges.0.keep", "edges.1.out_rate", "edges.1.lag", "edges.1.keep",
])  # fmt: skip
@pytest.mark.parametrize("value", [0, 1e-300, 1e-9, 1e-6, 1, 1e6, 1e15, 10**30, 1e308])
def test_whatever_number_is_given_is_decided_with_or_refused(path: str, value: float, model: str) -> None:
    raw = copy.deepcopy(GOOD)
    raw["operators"][1]["cost"] = {"fixed": 1.0, "per_arrived": 0.1, "per_kept": 0.4}
    try:
        seen = Observation.from_json(changed(path, value, raw))
    except ObservationError:
        return
    for paper in (False, True):
        decided = json.loads(decide(seen, Policy(cpu_model=model), paper=paper).to_json())
        assert all(0.0 <= e["keep"] <= 1.0 for e in decided["edges"])


@pytest.mark.parametrize("model", ["proportional", "affine"])
@pytest.mark.parametrize("nodes", [[], GOOD["nodes"]])
def test_an_empty_world_has_nothing_to_decide(nodes: list[Any], model: str) -> None:
    seen = Observation.from_json({"nodes": nodes, "operators": [], "edges": []})
    for paper in (False, True):
        found = decide(seen, Policy(cpu_model=model), paper=paper)
        assert found.feasible and found.edges == () and not found.queries


def test_a_cycle_is_named() -> None:
    raw = copy.deepcopy(GOOD)
    raw["operators"] = [{"name": n, "instances": []} for n in ("a", "b", "c", "d")]
    raw["edges"] = [{"from": p, "to": c} for p, c in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"))]
    with pytest.raises(ObservationError, match=r"the edges (a → b → c → a|b → c → a → b|c → a → b → c) form a cycle"):
        Observation.from_json(raw)
    raw["edges"] = [{"from": "a", "to": "a"}]
    with pytest.raises(ObservationError, match="the edges a → a form a cycle"):
        Observation.from_json(raw)


def test_what_is_made_in_python_is_checked_when_asked() -> None:
    seen = Observation.from_json(GOOD)
    seen.check()
    for broken, message in (
        (replace(seen, edges=(*seen.edges, Edge(producer="bill", topic=None, consumer="union", out_rate=1.0))), "form a cycle"),
        (replace(seen, edges=(replace(seen.edges[0], out_rate=-1.0), seen.edges[1])), "edges.yellow:union.out_rate is -1.0"),
        (replace(seen, age_s=float("nan")), "observation.age_s is nan"),
        (
            replace(
                seen,
                operators=(replace(seen.operators[0], cost=Cost(fixed=-1.0, per_arrived=0.0, per_kept=0.0)), *seen.operators[1:]),
            ),
            "operators.union.cost.fixed is -1.0",
        ),
    ):
        with pytest.raises(ObservationError, match=message):
            broken.check()
