"""The interchange of `spillway decide rescale`: read back as written, and one sentence for whatever is wrong with it."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from spillway.decide.rescale import plan_rescale
from spillway.model.qod import ObservationError
from spillway.model.rescale import Kind, Outcome, RescaleWorld
from spillway.policy import Policy

NOW = datetime(2031, 5, 4, 10, 0, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "now": "2031-05-04T10:00:00+00:00",
    "operators": [
        {"name": "parse", "application": "front", "parallelism": 2, "max": 8, "rate": 900.0, "capacity": 2000.0, "node": "n1"},
        {
            "name": "count", "parallelism": 1, "min": 1, "max": 8, "buckets": 8, "stateful": True, "state_rows": 120000,
            "state_bytes": 9000000, "committed": False, "rate": 300.0, "capacity": 300.0, "utilisation": 0.98, "needed": 500.0,
            "peak": 800.0, "bottleneck_for": 3, "instances_short": 1, "seen": [{"parallelism": 2, "capacity": 580.0}],
        },
    ],
    "edges": [
        {"from": None, "topic": "ads", "to": "parse", "arrival": 1500.0, "peak": 4000.0, "backlog": 50000},
        {"from": "parse", "to": "count", "selectivity": 0.333},
    ],
    "nodes": [{"name": "n1", "free": 3}, {"name": "n2"}],
    "history": [
        {"at": "2031-05-04T08:00:00+00:00", "operator": "count", "kind": "shadow", "from": 2, "to": 1, "buckets_from": 4,
         "buckets_to": 8, "outcome": "rolled_back", "decision": "17", "rate_before": 500.0, "expected_rate": 300.0,
         "observed_rate": 290.0, "effective": True, "pause_s": 4.2, "state_rows": 100000},
        {"at": "2031-05-03T08:00:00+02:00", "operator": "parse", "application": "front", "from": 1, "to": 2},
    ],
    "running": ["front"],
    "frozen": [{"from": "2031-05-04T12:00:00+00:00", "to": "2031-05-04T13:00:00+00:00", "why": "release"}],
    "window_s": 86400.0,
    "floors_infeasible": True,
    "repartition": False,
    "repartition_why": "Spark 4.1 cannot",
    "request": {"operator": "count", "to": 4, "buckets": 16, "node": "n2", "kind": "shadow"},
    "policy": {"rescale_step_factor": 4.0},
}  # fmt: skip


def test_everything_is_read() -> None:
    seen = RescaleWorld.from_json(json.dumps(GOOD))
    parse, count = seen.operators
    assert (parse.application, count.application, parse.min, parse.committed, count.committed) == (
        "front",
        "count",
        1,
        True,
        False,
    )
    assert seen.now == NOW and [c.operator for c in seen.history] == ["parse", "count"], "oldest first"
    assert (seen.history[0].kind, seen.history[0].outcome) == (Kind.RESTART, Outcome.DONE)
    assert seen.request is not None and seen.request.kind is Kind.SHADOW
    assert seen.edges[1].selectivity == 0.333 and seen.edges[0].selectivity == 1.0
    assert (seen.running, seen.repartition, seen.policy) == (("front",), False, {"rescale_step_factor": 4.0})


def test_what_is_written_is_read_back() -> None:
    seen = RescaleWorld.from_json(GOOD)
    assert RescaleWorld.from_json(seen.to_json()) == seen
    assert RescaleWorld.from_json(seen.to_json().encode()) == seen
    bare = RescaleWorld.from_json({"now": GOOD["now"], "operators": [{"name": "a", "parallelism": 1}]})
    assert bare.to_json() == '{"now":"2031-05-04T10:00:00+00:00","operators":[{"name":"a","parallelism":1}]}'


def test_now_is_given_or_said() -> None:
    raw = {"operators": [{"name": "a", "parallelism": 1}]}
    assert RescaleWorld.from_json(raw, now=NOW).now == NOW
    assert RescaleWorld.from_json({**raw, "now": GOOD["now"]}, now=NOW + timedelta(days=1)).now == NOW
    with pytest.raises(ObservationError, match="now is missing; it must be a time such as 2031-05-04T10:00:00"):
        RescaleWorld.from_json(raw)


def changed(path: str, value: Any) -> dict[str, Any]:
    raw = copy.deepcopy(GOOD)
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
        ("{", "line 1, column 2 is not valid JSON"),
        ('{"now": "x", "now": "y"}', "the field now is given twice in one object; give it once"),
        ({"now": GOOD["now"]}, "operators is missing, but must be an array of objects"),
        ({**GOOD, "oprators": []}, "the unknown field oprators; did you mean operators?"),
        (changed("now", "yesterday"), "now is the text 'yesterday', but must be a time such as 2031-05-04T10:00:00+00:00"),
        (changed("now", "2031-05-04T10:00:00"), "now is 2031-05-04T10:00:00, but must say its offset from UTC, such as 2031"),
        (
            changed("operators.0.parallelism", 0),
            "operators.parse.parallelism is 0, but must be a whole number from 1 to 1000000000",
        ),
        (changed("operators.0.parallelism", 2.0), "operators.parse.parallelism is 2.0, but must be a whole number from 1"),
        (changed("operators.0.parallelism", True), "operators.parse.parallelism is true, but must be a whole number from 1"),
        (changed("operators.0.parallelism", 10**6), "operators.parse.parallelism is 1000000, but must be at most 100000"),
        (changed("operators.0.parallelism", 10**30), "operators.parse.parallelism is a number of too many digits, but must be"),
        (changed("operators.0.capacity", "x"), "operators.parse.capacity is the text 'x', but must be a number from 0 to 1e+15"),
        (changed("operators.0.capacity", float("nan")), "operators.parse.capacity is nan, but must be a number from 0 to 1e+15"),
        (changed("operators.0.capacity", -1), "operators.parse.capacity is -1, but must be a number from 0 to 1e+15"),
        (changed("operators.0.max", 0), "operators.parse.max is 0, but must be a whole number from 1"),
        (changed("operators.1.min", 9), "operators.count.max is 8, but must be at least min, which is 9"),
        (changed("operators.1.utilisation", 1.5), "operators.count.utilisation is 1.5, but must be a number from 0 to 1"),
        (changed("operators.1.stateful", "yes"), "operators.count.stateful is the text 'yes', but must be true or false"),
        (changed("operators.1.seen", [{"parallelism": 2}]), "operators.count.seen[0].capacity is missing; it must be a number"),
        (changed("operators.1.name", "parse"), "operators has the name parse twice; names must be unique"),
        (changed("operators.1.aplication", "x"), "operators.count has the unknown field aplication; did you mean application?"),
        (
            changed("operators.1.application", "front"),
            "operators.count has another parallelism or node than parse, but both are in",
        ),
        (changed("operators.0.node", "n3"), "operators.parse.node is n3, which is not declared in nodes; known are n1, n2"),
        (
            changed("edges.0.topic", None),
            "edges[0] has neither from nor topic; name the operator or the topic its rows come from",
        ),
        (changed("edges.1.to", "cuont"), "edges.parse:cuont.to is cuont, which is not an operator; did you mean count?"),
        (
            changed("edges.1.arrival", 3.0),
            "edges.parse:count has a producer, so what arrives on it follows; give arrival and peak",
        ),
        (changed("edges.0.from", "count"), "edges.count:parse has a producer, so what arrives on it follows"),
        (changed("edges.0", {"from": "count", "to": "parse"}), "the edges "),
        (changed("history.0.at", None), "history[0].at is missing; it must be a time such as"),
        (
            changed("history.0.at", "2031-05-04T10:00:01+00:00"),
            "history has a change at 2031-05-04T10:00:01+00:00, which is later than now",
        ),
        (
            changed("history.0.kind", "magic"),
            "history[0].kind is the text 'magic', but must be restart or executors or handover or",
        ),
        (
            changed("history.0.outcome", "well"),
            "history[0].outcome is the text 'well', but must be done or rolled_back or failed",
        ),
        (changed("history.0.to", None), "history[0].to is missing; it must be a whole number from 1"),
        (changed("running", ["count", ""]), "running is an array, but must be an array of names"),
        (changed("running", ["frnot"]), "running has frnot, which is not an application; did you mean front?"),
        (changed("frozen.0.to", GOOD["now"]), "frozen[0].to is 2031-05-04T10:00:00+00:00, but must be later than its from"),
        (
            changed("request.kind", "fast"),
            "request.kind is the text 'fast', but must be restart or executors or handover or shadow",
        ),
        (changed("request", []), "request is an array, but must be an object"),
        (changed("policy", []), "policy is an array, but must be an object of fields of the policy"),
        (changed("nodes.0.free", -1), "nodes[0].free is -1, but must be a whole number from 0 to 1000000000"),
        (changed("window_s", "day"), "window_s is the text 'day', but must be a number from 0 to 1e+15"),
    ],
)
def test_one_sentence_for_what_is_wrong(raw: Any, message: str) -> None:
    with pytest.raises(ObservationError) as raised:
        RescaleWorld.from_json(raw)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", [
    "operators.1.parallelism", "operators.1.max", "operators.1.buckets", "operators.1.state_rows", "operators.1.rate",
    "operators.1.capacity", "operators.1.utilisation", "operators.1.needed", "operators.1.peak", "operators.1.bottleneck_for",
    "operators.1.instances_short", "operators.1.seen.0.parallelism", "operators.1.seen.0.capacity", "edges.0.arrival",
    "edges.0.peak", "edges.0.backlog", "edges.1.selectivity", "nodes.0.free", "history.0.from", "history.0.rate_before",
    "history.0.observed_rate", "history.0.pause_s", "history.0.state_rows", "window_s", "request.to", "request.buckets",
])  # fmt: skip
@pytest.mark.parametrize("value", [0, 1, 2, 1e-300, 1e-9, 10**6, 10**9, 1e15, 10**30, 1e308])
def test_whatever_number_is_given_is_decided_with_or_refused(path: str, value: float) -> None:
    raw = {**changed(path, value), "running": [], "floors_infeasible": path.startswith("operators")}
    raw["operators"][1]["committed"] = True
    try:
        seen = RescaleWorld.from_json(raw)
    except ObservationError:
        return
    decision = plan_rescale(seen, Policy())
    found = json.loads(decision.to_json())
    assert all(1 <= plan["target"] <= 10**6 for plan in found["plans"])


def test_an_empty_world_has_nothing_to_decide() -> None:
    assert plan_rescale(RescaleWorld.from_json({"now": GOOD["now"], "operators": []}), Policy()).plans == ()
