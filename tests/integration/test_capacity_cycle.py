"""Evaluations of capacity on a real Postgres: what was measured is recorded there, what is found and proposed is stored there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from psycopg2 import errors
from spillway.act import capacity as first_half
from spillway.act import capacity_propose as second_half
from spillway.act.capacity import detect_all, observe
from spillway.act.capacity_live import step
from spillway.act.capacity_propose import propose
from spillway.act.cycle import Step
from spillway.act.live import NothingObserved, StepRefused
from spillway.decide.capacity import detect
from spillway.decide.rescale import plan_rescale
from spillway.model.capacity import CapacityWorld
from spillway.model.rescale import RescaleWorld
from spillway.observe.capacity import read_capacity
from spillway.policy import Policy
from spillway.store import pipelines
from spillway.store.decisions import Run

from tests.support.database import Database
from tests.support.evaluations import CALM, LIVE, RUSH, Evaluations

pytestmark = pytest.mark.integration
Begin = Callable[..., Evaluations]
REPLAY = Run(origin="replay", replay="again", policy=Policy())

# ---- what is measured ----


def test_the_window_says_what_was_recorded(evaluate: Begin) -> None:
    at = evaluate()
    part = read_capacity(at.conn, at.window(RUSH), Policy()).parts["rec"]
    edges, operators = {e.edge: e for e in part.edges}, {o.operator: o for o in part.operators}
    assert edges["rec.in:front"].flow == pytest.approx(1600.0, rel=0.02)
    assert edges["rec.in:front"].arrival == pytest.approx(1600.0, rel=0.01)
    assert edges["rec.in:front"].backlog == 0.0
    heavy = operators["heavy"]
    able = sum(b.rows for b in heavy.batches) / sum(b.busy_s for b in heavy.batches)
    assert able == pytest.approx(3200 / 4.2, rel=0.02), "3200 rows at a time, 0.2 s and 1.25 ms each"
    assert edges["front:heavy"].flow == pytest.approx(able, rel=0.01), "full"
    assert heavy.busy_share == pytest.approx(1.0, abs=0.005)
    assert edges["front:heavy"].arrival == pytest.approx(1600.0, rel=0.05)
    assert edges["front:heavy"].backlog > 50_000
    assert len(edges["front:heavy"].partitions) == 2
    assert operators["light"].busy_share < 0.3
    assert {o.operator: (o.declared, o.measured) for o in part.operators} == {"front": (2, 2), "light": (2, 2), "heavy": (1, 1)}
    assert {(i.operator, i.executor) for i in part.instances} == {
        ("front", "0"), ("front", "1"), ("light", "0"), ("light", "1"), ("heavy", "0"),
    }  # fmt: skip
    assert operators["front"].selectivity == 1.0


def test_nothing_that_came_after_the_window_is_read(evaluate: Begin) -> None:
    at = evaluate()
    window = at.window(CALM)
    before = read_capacity(at.conn, window, Policy())
    at.sql("update spillway.batch_metric set batch_ms = 9 * batch_ms where ended_at > %s", window.end)
    at.sql("update spillway.edge_metric set rows_kept = 0 where ended_at > %s", window.end)
    at.sql("update spillway.partition_metric set latest_offset = 9999999 where ended_at > %s", window.end)
    at.conn.rollback()
    assert read_capacity(at.conn, window, Policy()) == before
    at.sql("update spillway.edge_metric set rows_kept = rows_read / 2 where ended_at > %s", window.start)
    at.conn.rollback()
    assert read_capacity(at.conn, window, Policy()) != before


def test_latency_is_that_of_the_rows_and_skew_that_of_the_fullest_partition(evaluate: Begin) -> None:
    at = evaluate()
    at.sql("update spillway.edge_metric set latency_mean_ms = case when batch_id % 2 = 0 then 1000 else 3000 end")
    at.sql(
        'update spillway.pipeline_version set spec = replace(spec::text, \'"kind": "stateless"\', \'"kind": "aggregate"\')::jsonb'
    )
    at.sql("update spillway.partition_metric set start_offset = end_offset - case partition when 0 then 300 else 100 end")
    at.conn.rollback()
    part = read_capacity(at.conn, at.window(RUSH), Policy()).parts["rec"]
    assert part.edges[0].latency_ms == pytest.approx(2000.0, rel=0.05)
    assert part.edges[0].latency_constraint_ms == 10_000.0
    assert part.operator("heavy").skew == pytest.approx(1.5)


def test_batches_of_a_cold_driver_tell_nothing(evaluate: Begin) -> None:
    at = evaluate()
    window = at.window(CALM)
    at.sql("update spillway.heartbeat set started_at = %s where application = 'behind'", window.end - timedelta(seconds=31))
    part = read_capacity(at.conn, window, Policy()).parts["rec"]
    assert part.operator("heavy").finished > 20
    assert len(part.operator("heavy").batches) == 0
    assert len(part.operator("front").batches) > 20


# ---- what is found ----


def test_calm_keeps_up_and_changes_nothing(evaluate: Begin) -> None:
    at = evaluate()
    steps = at.run(CALM)
    _, status, reason, output = at.decision(CALM)
    assert (status, output["verdict"], output["bottlenecks"]) == ("decided", "keeps_up", [])
    assert output["max_flow"] == pytest.approx(output["cut_value"])
    assert output["max_flow"] > 500.0
    assert "and nothing waits" in reason
    _, status, reason, output = at.decision(CALM, "rescale")
    assert status == "decided"
    assert {p["answer"] for p in output["plans"]} == {"no_change"}
    assert "of what it could carry" in reason
    assert at.plans() == []
    assert [s.refused for s in steps] == [(), (), ()]
    assert at.sql("select kind from spillway.event where actor = 'capacity'") == []


def test_what_is_overloaded_is_named_with_its_capacity(evaluate: Begin) -> None:
    at = evaluate()
    at.run(RUSH)
    decision, status, reason, output = at.decision(RUSH)
    assert (status, output["verdict"], output["bottlenecks"]) == ("decided", "bottleneck", ["heavy"])
    assert output["cut"] == [["front", "heavy"]]
    assert output["max_flow"] == pytest.approx(762.0, rel=0.03)
    assert "1600 rows/s are written" in reason
    stored = at.sql("select edge, flow, capacity, estimator, confidence, backlog, decision from spillway.capacity order by edge")
    assert [r[0] for r in stored] == ["front:heavy", "front:light", "rec.in:front"]
    assert stored[0][2] == pytest.approx(762.0, rel=0.03)
    assert {r[3] for r in stored} <= {"useful_rate", "feedback"}
    assert {r[6] for r in stored} == {decision}
    assert stored[0][5] > 50_000
    [(subject, text)] = at.sql("select subject, text from spillway.event where actor = 'capacity' and kind = 'bottleneck'")
    assert subject == "heavy"
    assert reason in text


def test_a_bottleneck_is_told_once_and_so_is_its_end(evaluate: Begin) -> None:
    at = evaluate("advise")
    for number in (CALM, RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    at.sql(
        "update spillway.edge_metric set lag_rows = 0, rows_kept = 10, rows_read = 10 where ended_at > %s",
        at.window(RUSH + 2).end,
    )
    at.sql("update spillway.batch_metric set batch_ms = 10, output_rows = 10 where ended_at > %s", at.window(RUSH + 2).end)
    at.run(RUSH + 3)
    told = at.sql("select kind from spillway.event where actor = 'capacity' order by id")
    assert told == [("bottleneck",), ("room",)]


def test_what_an_evaluation_saw_gives_the_same_finding_again(evaluate: Begin) -> None:
    at = evaluate()
    at.run(RUSH)
    stored = (
        "select o.body, d.output from spillway.decision d join spillway.observation o on o.id = d.observation where d.kind = %s"
    )
    [(body, output)] = at.sql(stored, "capacity")
    assert json.loads(detect(CapacityWorld.from_json(json.dumps(body)), Policy()).to_json()) == output
    [(body, output)] = at.sql(stored, "rescale")
    assert json.loads(plan_rescale(RescaleWorld.from_json(json.dumps(body)), Policy()).to_json()) == output


def test_a_step_that_runs_again_changes_nothing(evaluate: Begin) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    tables = ("decision", "observation", "capacity", "gate_result", "event", "rescale_plan", "rescale_step")
    before = [at.sql(f"select * from spillway.{t} order by 1, 2, 3") for t in tables]
    assert at.plans()
    at.run(RUSH + 2)
    assert [at.sql(f"select * from spillway.{t} order by 1, 2, 3") for t in tables] == before


def test_shedding_does_not_hide_a_bottleneck(evaluate: Begin) -> None:
    """Quality of Data lets 45 % in, so nothing waits and everybody keeps up; what is offered does not fit all the same."""
    at = evaluate("advise")
    at.sql("update spillway.edge_metric set rows_kept = rows_read * 0.45, keep = 0.45, lag_rows = 0 where edge = 'rec.in:front'")
    at.sql("update spillway.batch_metric set output_rows = output_rows * 0.45 where operator = 'front'")
    at.sql(
        "update spillway.edge_metric set rows_read = 1440, rows_kept = 1440, lag_rows = 0 where operator in ('light', 'heavy');"
        "update spillway.batch_metric set input_rows = 1440, output_rows = 1440, started_at = ended_at - interval '1.9 s',"
        " batch_ms = 1900 where operator = 'heavy';"
        "update spillway.partition_metric set latest_offset = end_offset"
    )
    at.run(RUSH)
    output = at.decision(RUSH)[3]
    assert output["present"] == pytest.approx(1600.0, rel=0.02), "as much as is offered"
    assert (output["verdict"], output["bottlenecks"]) == ("bottleneck", ["heavy"])


# ---- what is proposed ----


def test_a_bottleneck_that_persists_is_asked_to_be_rescaled(evaluate: Begin) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1):
        at.run(number)
        assert at.decision(number, "rescale")[1] == "decided"
    assert "is a bottleneck for 2 of 3 evaluations" in at.decision(RUSH + 1, "rescale")[2]
    assert at.plans() == []
    steps = at.run(RUSH + 2)
    decision, status, reason, output = at.decision(RUSH + 2, "rescale")
    assert status == "published"
    [plan] = [p for p in output["plans"] if p["answer"] == "change"]
    assert (plan["operator"], plan["reason"], plan["executors"]["from"]) == ("heavy", "bottleneck_persists", 1)
    assert plan["executors"]["to"] in (3, 4)
    assert plan["words"] in reason
    [(_, of, application, operator, state, before, after, by)] = at.plans()
    assert (of, application, operator, state, before, after, by) == (
        decision, "behind", "heavy", "planned", 1, plan["executors"]["to"], "capacity",
    )  # fmt: skip
    [(expected,)] = at.sql("select expected from spillway.decision where id = %s", decision)
    assert expected == {"behind": plan["expected_rate"]}
    assert any("is asked for" in words for words in steps[2].said)


@pytest.mark.parametrize("mode", ["advise", "off"])
def test_only_apply_asks(evaluate: Begin, mode: str) -> None:
    at = evaluate(mode)
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    assert at.plans() == []
    found = at.sql("select status, output -> 'plans' from spillway.decision where kind = 'rescale' order by interval_end desc")
    assert len(found) == (3 if mode == "advise" else 0)
    if found:
        assert found[0][0] == "decided"
        assert "change" in [p["answer"] for p in found[0][1]]


@pytest.mark.parametrize("change", ["mode", "late", "moved"])
def test_what_has_changed_meanwhile_is_not_asked_for(evaluate: Begin, change: str) -> None:
    at = evaluate()
    at.run(RUSH)
    at.run(RUSH + 1)
    window = at.window(RUSH + 2)
    observe(at.conn, window, LIVE)
    detect_all(at.conn, window, LIVE)
    if change == "mode":
        pipelines.set_mode(at.conn, "rec", "advise", "test")
    if change == "moved":
        at.sql("update spillway.heartbeat set state = 'starting' where application = 'behind'")
    propose(at.conn, window, LIVE, now=window.end + timedelta(seconds=181 if change == "late" else 3))
    assert at.plans() == []
    _, status, reason, _ = at.decision(RUSH + 2, "rescale")
    assert status == "failed"
    words = {"mode": "applied no longer", "late": "it is 181 s late", "moved": "does not run yet"}[change]
    assert words in reason
    assert at.sql("select count(*) from spillway.event where actor = 'capacity' and kind = 'failed'") == [(1,)]


def test_a_proposal_whose_author_died_after_asking_is_not_made_again(evaluate: Begin) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    decision = at.decision(RUSH + 2, "rescale")[0]
    at.sql("update spillway.decision set status = 'decided', published_at = null where id = %s", decision)
    at.conn.rollback()
    propose(at.conn, at.window(RUSH + 2), LIVE, now=at.window(RUSH + 2).end)
    assert at.decision(RUSH + 2, "rescale")[1] == "published"
    assert len(at.plans()) == 1


INFEASIBLE = {"queries": ["heavy"], "cores_needed": 0.5, "instances_needed": {"heavy": 1}}


def test_floors_that_cannot_be_met_need_no_second_evaluation(evaluate: Begin) -> None:
    at = evaluate()
    end = at.window(RUSH).end
    at.sql(
        "insert into spillway.policy_version (digest, body) values ('p', '{}');"
        "insert into spillway.decision (pipeline, interval_start, interval_end, origin, mode, version, policy, status, output)"
        " select 'rec', t - interval '15 s', t, 'live', 'apply', 1, 'p', 'published', %s::jsonb"
        " from generate_series(%s::timestamptz - interval '45 s', %s, interval '15 s') t",
        json.dumps({"infeasible": INFEASIBLE}), end, end,
    )  # fmt: skip
    at.run(RUSH)
    [plan] = [p for p in at.decision(RUSH, "rescale")[3]["plans"] if p["answer"] == "change"]
    assert (plan["operator"], plan["reason"]) == ("heavy", "floors_infeasible")
    assert len(at.plans()) == 1


def test_while_a_plan_is_carried_out_nothing_is_evaluated_and_then_it_is_judged(evaluate: Begin) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    assert len(at.plans()) == 1
    requested, ended = at.window(RUSH + 2).end + timedelta(seconds=3), at.window(RUSH + 3).start + timedelta(seconds=30)
    at.sql("update spillway.rescale_plan set requested_at = %s", requested)
    at.run(RUSH + 3)
    _, status, reason, _ = at.decision(RUSH + 3)
    assert status == "held"
    assert reason.startswith("plan 1 (")
    assert reason.endswith(" of heavy) was under way in the window")
    at.carried_out(requested, ended)
    at.sql("delete from spillway.decision where interval_end = %s", at.window(RUSH + 3).end)
    at.run(RUSH + 3)
    assert at.decision(RUSH + 3)[1] == "held", "half of the window lies before its end"
    policy = Run(policy=replace(Policy(), rescale_judge_after_s=0.0))
    at.sql("update spillway.batch_metric set batch_ms = batch_ms / 3 where operator = 'heavy' and ended_at > %s", ended)
    observe(at.conn, at.window(RUSH + 4), policy)
    detect_all(at.conn, at.window(RUSH + 4), policy)
    propose(at.conn, at.window(RUSH + 4), policy, now=at.window(RUSH + 4).end)
    [(observed,)] = at.sql("select observed from spillway.rescale_plan")
    assert observed["effective"] is True
    assert observed["rate"] == pytest.approx(3 * 762.0, rel=0.05)
    [(text,)] = at.sql("select text from spillway.event where actor = 'capacity' and kind = 'effective'")
    assert "rows/s, " in text


@pytest.mark.parametrize(("busy", "judged"), [(True, {"effective": False}), (False, {})])
def test_a_plan_that_brought_nothing_is_ineffective_if_more_was_asked_for(
    evaluate: Begin, busy: bool, judged: dict[str, Any]
) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    ended = at.window(RUSH + 2).end + timedelta(seconds=40)
    at.carried_out(at.window(RUSH + 2).end + timedelta(seconds=3), ended)
    if not busy:
        at.sql(
            "update spillway.batch_metric set batch_ms = 1000, started_at = ended_at - interval '1 s' where operator = 'heavy'"
            " and ended_at > %s", ended,
        )  # fmt: skip
        at.sql(
            "update spillway.edge_metric set rows_kept = 762, rows_read = 762 where operator = 'heavy' and ended_at > %s", ended
        )
    policy = Run(policy=replace(Policy(), rescale_judge_after_s=0.0))
    window = at.window(RUSH + 4)
    observe(at.conn, window, policy)
    detect_all(at.conn, window, policy)
    propose(at.conn, window, policy, now=window.end)
    [(observed,)] = at.sql("select observed from spillway.rescale_plan")
    assert {k: v for k, v in observed.items() if k == "effective"} == judged
    at.conn.rollback()
    if busy:
        assert "heavy is a bottleneck for 1 of 3 evaluations" in at.decision(RUSH + 4, "rescale")[2], "counted anew"


# ---- gates ----

TWICE = """
insert into spillway.executor_cpu (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)
select 'n1', spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at
from spillway.executor_cpu where application = 'behind'"""
DAMAGE = {
    "no arrivals": ("delete from spillway.topic_metric", "arrival_rate_to_be_measured"),
    "a topic that shrinks": ("update spillway.topic_metric set end_offset = -end_offset", "arrival_rate_not_to_be_negative"),
    "a driver's clock ahead": ("update spillway.batch_metric set written_at = ended_at - interval '30 s'", "clocks_to_agree"),
    "a topic's clock behind": ("update spillway.topic_metric set written_at = at + interval '9 s'", "clocks_to_agree"),
    "an instance twice": (TWICE, "instances_once"),
    "an instance missing": (
        "delete from spillway.executor_cpu where application = 'ahead' and executor = '1'", "no_instance_missing",
    ),
    "an instance too many": ("update spillway.application set executors = 1", "no_instance_too_many"),
    "negative flow": ("update spillway.edge_metric set rows_kept = -rows_kept", "flow_not_to_be_negative"),
    "a reader ahead of what was written": (
        "update spillway.partition_metric set latest_offset = end_offset - 5", "backlog_not_to_be_negative",
    ),
    "no offsets": ("update spillway.partition_metric set latest_offset = null", "backlog_to_be_known"),
    "more kept than read": ("update spillway.edge_metric set rows_kept = 2 * rows_read", "keep_in_force_to_be_a_share"),
    "two drivers at once": (
        "update spillway.batch_metric set started_at = started_at - interval '3 s'", "batches_one_after_another",
    ),
    "nobody counted what came out": ("update spillway.batch_metric set output_rows = null", "selectivity_to_be_measured"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_window_is_refused_recorded_and_nothing_is_proposed(evaluate: Begin, damage: str) -> None:
    text, rule = DAMAGE[damage]
    at = evaluate()
    at.run(RUSH)
    before = at.sql("select * from spillway.capacity")
    at.sql(text)
    steps = at.run(RUSH + 1)
    assert any(rule in words for words in steps[0].refused)
    assert steps[1:] == [Step(), Step()]
    decision, status, reason, output = at.decision(RUSH + 1)
    assert (status, output) == ("refused", None)
    assert rule in reason
    recorded = at.sql("select gate, rule, success, evidence from spillway.gate_result where decision = %s", decision)
    assert (rule, False) in [(r, s) for _, r, s, _ in recorded]
    assert all(gate == "observation" and evidence["rows"] for gate, _, _, evidence in recorded)
    assert at.sql("select * from spillway.capacity") == before
    assert at.sql("select count(*) from spillway.decision where kind = 'rescale'") == [(1,)], "of the window before"
    [(world, body)] = at.sql(
        "select o.world, o.body from spillway.decision d join spillway.observation o on o.id = d.observation where d.id = %s",
        decision,
    )  # fmt: skip
    assert world == "refused/capacity/rec"
    assert set(body) == {"operators", "edges", "instances"}


def test_a_refusal_is_told_once(evaluate: Begin) -> None:
    at = evaluate()
    at.sql("delete from spillway.topic_metric")
    for number in (CALM, CALM + 1):
        at.run(number)
    assert at.sql("select count(*) from spillway.event where actor = 'capacity' and kind = 'refused'") == [(1,)]


def test_what_was_refused_stays_refused(evaluate: Begin) -> None:
    at = evaluate()
    at.sql("update spillway.edge_metric set rows_kept = -rows_kept")
    at.run(RUSH)
    at.sql("update spillway.edge_metric set rows_kept = -rows_kept")
    at.run(RUSH)
    assert at.decision(RUSH)[1] == "refused"
    assert at.sql("select count(*) from spillway.decision where kind = 'rescale'") == [(0,)]


def test_a_spoiled_finding_is_refused_and_nothing_is_proposed(evaluate: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(world: CapacityWorld, policy: Policy) -> Any:
        found = detect(world, policy)
        return replace(found, cut_value=(found.max_flow or 0.0) * 2, bottlenecks=("nobody",))

    at = evaluate()
    monkeypatch.setattr(first_half, "detect", spoiled)
    steps = at.run(RUSH)
    assert "flow_to_equal_cut" in steps[1].refused[0]
    decision, status, _, output = at.decision(RUSH)
    assert (status, output["bottlenecks"]) == ("refused", ["nobody"])
    found = at.sql("select gate, rule from spillway.gate_result where decision = %s order by rule", decision)
    assert found == [("decision", "bottleneck_to_be_declared"), ("decision", "flow_to_equal_cut")]
    assert at.sql("select count(*) from spillway.capacity") == [(0,)]
    assert at.sql("select count(*) from spillway.decision where kind = 'rescale'") == [(0,)]


@pytest.mark.parametrize("half", ["detect", "plan_rescale"])
def test_what_raises_is_recorded_as_failed_and_holds_up_nobody(
    evaluate: Begin, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ArithmeticError("divided by zero")

    at = evaluate()
    monkeypatch.setattr(first_half if half == "detect" else second_half, half, fail)
    steps = at.run(RUSH)
    number = 1 if half == "detect" else 2
    assert "ArithmeticError: divided by zero" in steps[number].refused[0]
    _, status, reason, output = at.decision(RUSH, "capacity" if half == "detect" else "rescale")
    assert (status, output) == ("failed", None)
    assert "divided by zero" in reason
    assert at.plans() == []


def test_a_plan_beyond_its_bounds_is_refused_and_not_asked_for(evaluate: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    def bold(world: RescaleWorld, policy: Policy) -> Any:
        found = plan_rescale(world, policy)
        return replace(found, plans=tuple(replace(p, executors_to=99) if p.changes else p for p in found.plans))

    at = evaluate()
    at.run(RUSH)
    at.run(RUSH + 1)
    monkeypatch.setattr(second_half, "plan_rescale", bold)
    steps = at.run(RUSH + 2)
    assert "target_within_declared_bounds" in steps[2].refused[0]
    decision, status, _, _ = at.decision(RUSH + 2, "rescale")
    assert status == "refused"
    [(evidence,)] = at.sql("select evidence -> 'rows' from spillway.gate_result where decision = %s", decision)
    assert evidence == [{"subject": "heavy", "beyond_bounds": 95}]
    assert at.plans() == []
    again = at.run(RUSH + 2)
    assert "was refused before" in again[2].refused[0]


def test_who_is_refused_holds_up_nobody_else(evaluate: Begin) -> None:
    at = evaluate("apply", "rec", "other")
    at.sql("delete from spillway.topic_metric where topic = 'rec.in'")
    steps = at.run(RUSH)
    assert len(steps[0].refused) == 1
    assert at.decision(RUSH)[1] == "refused"
    assert at.decision(RUSH, pipeline="other")[1] == "decided"
    assert at.decision(RUSH, "rescale", "other")[1] == "decided"


def test_who_is_still_starting_is_waited_for(evaluate: Begin) -> None:
    at = evaluate()
    at.sql("delete from spillway.heartbeat where application = 'behind'")
    steps = at.run(CALM)
    assert steps[0] == Step(said=("rec: held, behind of rec is still starting",))
    assert steps[1:] == [Step(), Step()]
    assert at.decision(CALM)[1:3] == ("held", "behind of rec is still starting")


# ---- replay ----


def replayed(at: Evaluations, number: int) -> None:
    for name in ("observe", "detect", "propose"):
        step(at.conn, name, at.window(number), REPLAY)


def test_a_replay_finds_the_same_and_touches_nothing_live(evaluate: Begin) -> None:
    at = evaluate()
    numbers = (RUSH, RUSH + 1, RUSH + 2)
    for number in numbers:
        at.run(number)
    watched = ("capacity", "event", "rescale_plan", "rescale_step", "application", "pipeline", "operator_state")
    before = [at.sql(f"select * from spillway.{t} order by 1, 2, 3") for t in watched]
    live = at.sql("select interval_end, output from spillway.decision where kind = 'capacity' order by 1")
    for _ in range(2):
        for number in numbers:
            replayed(at, number)
        columns = "select interval_end, output from spillway.decision where kind = 'capacity' and origin = 'replay' order by 1"
        assert at.sql(columns) == live
    assert [at.sql(f"select * from spillway.{t} order by 1, 2, 3") for t in watched] == before
    proposed = "where kind = 'rescale' and origin = 'replay' order by interval_end"
    *_, (status, last) = at.sql(f"select status, output -> 'plans' from spillway.decision {proposed}")
    assert status == "decided"
    assert [p["operator"] for p in last if p["answer"] == "change"] == ["heavy"], "as if none had been asked for"


def test_a_replay_sees_the_executors_of_then(evaluate: Begin) -> None:
    at = evaluate()
    at.sql(
        "insert into spillway.rescale_plan (pipeline, application, operator, kind, state, executors_from, executors_to,"
        " buckets_from, buckets_to, checkpoint_from, checkpoint_to, generation_from, requested_by, requested_at, ended_at)"
        " values ('rec', 'behind', 'heavy', 'executors', 'done', 1, 3, 8, 8, 0, 0, 1, 'test', %s, %s)",
        at.window(RUSH + 1).end, at.window(RUSH + 1).end,
    )  # fmt: skip
    at.sql("update spillway.application set executors = 3 where application = 'behind'")
    replayed(at, RUSH)
    [(status,)] = at.sql("select status from spillway.decision where kind = 'capacity'")
    assert status == "decided", "before the plan one executor was all there should be"
    with pytest.raises(StepRefused, match="no_instance_missing"):
        step(at.conn, "observe", at.window(RUSH + 3), REPLAY)


def test_a_window_of_a_replay_that_nobody_observed_is_not_decided(evaluate: Begin) -> None:
    at = evaluate()
    with pytest.raises(NothingObserved, match="rec was not observed"):
        step(at.conn, "detect", at.window(RUSH), REPLAY)


# ---- who may write, and for how long it stays ----

FORBIDDEN = [
    ("job", "insert into spillway.capacity (pipeline, edge, at, estimator, confidence) values ('p', 'e', now(), 'x', 1)"),
    ("read", "delete from spillway.capacity"),
    ("job", "update spillway.rescale_plan set state = 'done'"),
]


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN)
def test_role_may_not(migrated: Database, role: str, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        migrated.sql(role, statement)


def test_housekeeping_drops_old_capacities_and_plans_that_have_ended(evaluate: Begin) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    [(today,)] = at.sql("select (now() at time zone 'UTC')::date")
    at.database.sql("control", "select spillway.drop_partitions(%s)", today - timedelta(days=1))
    assert at.sql("select count(*) from spillway.capacity") == [(9,)]
    at.sql("update spillway.capacity set at = at - interval '9 days'")
    at.sql("update spillway.decision set interval_start = interval_start - interval '9 days'")
    at.sql("update spillway.decision set interval_end = interval_end - interval '9 days'")
    at.database.sql("control", "select spillway.drop_partitions(%s)", today - timedelta(days=1))
    assert at.sql("select count(*) from spillway.capacity") == [(0,)]
    assert at.sql("select decision, state from spillway.rescale_plan") == [(None, "planned")], "what is under way stays"
    at.sql("update spillway.rescale_plan set state = 'failed', ended_at = now() - interval '9 days'")
    at.database.sql("control", "select spillway.drop_partitions(%s)", today - timedelta(days=1))
    assert at.sql("select count(*) from spillway.rescale_plan") == [(0,)]
    assert at.sql("select count(*) from spillway.rescale_step") == [(0,)]
