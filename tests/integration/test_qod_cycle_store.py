"""A cycle on a real Postgres: what was measured is recorded there, what is decided is published there, or not."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from spillway.act import cycle
from spillway.act.cycle import Step, decide_all, observe
from spillway.act.publish import publish, verify
from spillway.decide.qod import decide
from spillway.model.qod import Observation
from spillway.model.window import Interval
from spillway.observe.samples import read_samples
from spillway.observe.window import read_window
from spillway.observe.world import part
from spillway.policy import Policy
from spillway.store import pipelines, settings
from spillway.store.decisions import Run

from tests.support.cycles import CALM, LIVE, RISES, RUSH, Cycle
from tests.support.recorded import declared

pytestmark = pytest.mark.integration

# ---- what is observed ----


def test_the_window_says_what_was_recorded(begin):
    cycle_ = begin()
    found = read_window(cycle_.conn, cycle_.window(RUSH), Policy())
    edges = {e.edge: e for e in found.edges}
    assert edges["rec.in:front"].out_rate == pytest.approx(1600.0, rel=0.004)
    assert edges["front:light"].out_rate == pytest.approx(1600.0, rel=0.02)
    assert edges["front:light"].share == pytest.approx(1.0)
    assert edges["front:heavy"].share < 0.55, "it carries 800 of 1600"
    assert edges["front:heavy"].lag > 10_000
    instances = {(i.operator, i.executor): i for i in found.instances}
    assert set(instances) == {("front", "0"), ("front", "1"), ("light", "0"), ("light", "1"), ("heavy", "0")}
    assert instances["light", "1"].in_rate == pytest.approx(800.0, rel=0.02), "one of two"
    assert instances["heavy", "0"].cpu == pytest.approx(100.0, abs=2.0)
    assert all(n.cpu <= 100.0 for n in found.nodes)
    assert {o.operator: (o.declared, o.measured) for o in found.operators} == {"front": (2, 2), "light": (2, 2), "heavy": (1, 1)}


def test_while_load_rises_the_cpu_is_that_of_the_rows_that_were_done(begin):
    """The rush begins within the window: of the rows that came in, many are in the batch that runs at its end."""
    cycle_ = begin()
    found = {n: read_window(cycle_.conn, cycle_.window(n), Policy()).instances for n in (CALM, RISES, RUSH)}
    assert {i.done_rate for n in (CALM, RUSH) for i in found[n]} == {None}, "nothing is in doubt where load is steady"
    [heavy] = [i for i in found[RISES] if i.operator == "heavy"]
    [steady] = [i for i in found[RUSH] if i.operator == "heavy"]
    assert heavy.done_rate < 0.75 * heavy.in_rate
    cost = steady.cpu / steady.in_rate
    assert heavy.cpu / heavy.done_rate == pytest.approx(cost, rel=0.3)
    assert heavy.cpu / heavy.in_rate < 0.7 * cost, "by the rows that came in, a row would seem to cost much less"


def test_that_the_first_batches_of_a_driver_are_slow_is_no_rise(begin):
    cycle_ = begin()
    start = cycle_.window(RISES).start
    assert any(i.done_rate is not None for i in read_window(cycle_.conn, cycle_.window(RISES), Policy()).instances)
    cycle_.sql("update spillway.heartbeat set started_at = %s", start)
    assert {i.done_rate for i in read_window(cycle_.conn, cycle_.window(RISES), Policy()).instances} == {None}


def test_nothing_that_came_after_the_window_is_read(begin):
    """The rest of the recording, and rows of the window that were written too late: the window is the same without them."""
    cycle_ = begin()
    window = cycle_.window(CALM)
    before = read_window(cycle_.conn, window, Policy())
    cycle_.sql("update spillway.edge_metric set rows_kept = 0, keep = 0.1 where ended_at > %s", window.end)
    cycle_.sql(
        "insert into spillway.topic_metric (topic, partition, at, end_offset, written_at) values ('rec.in', 0, %s, 9999999, %s)",
        window.end - timedelta(seconds=0.05), window.end + timedelta(seconds=2),
    )  # fmt: skip
    cycle_.conn.rollback()
    assert read_window(cycle_.conn, window, Policy()) == before
    cycle_.sql("update spillway.topic_metric set written_at = at where end_offset = 9999999")
    assert read_window(cycle_.conn, window, Policy()) != before, "written in time it would have counted"


def test_a_window_knows_the_pipeline_of_its_time(begin):
    cycle_ = begin()
    pipelines.set_mode(cycle_.conn, "rec", "off", "test")
    assert set(read_window(cycle_.conn, cycle_.window(CALM), Policy()).declared) == {"rec"}
    now = datetime.now(tz=cycle_.start.tzinfo)
    assert read_window(cycle_.conn, Interval(start=now - timedelta(seconds=15), end=now), Policy()).declared == {}


def test_costs_are_learned_from_slices_of_the_past(begin):
    cycle_ = begin()
    samples = read_samples(cycle_.conn, cycle_.window(20), Policy(), ["rec"])
    assert set(samples) == {("rec", "front"), ("rec", "light"), ("rec", "heavy")}
    assert len(samples["rec", "heavy"]) >= 18
    calm, rush = samples["rec", "heavy"][-3], samples["rec", "heavy"][0]
    assert calm.arrived == calm.kept == pytest.approx(300.0, rel=0.1)
    assert rush.arrived == pytest.approx(760.0, rel=0.1)
    assert calm.cpu == pytest.approx(47.5, rel=0.1)


# ---- what is decided and published ----


def test_calm_publishes_nothing(begin):
    cycle_ = begin()
    cycle_.run(CALM)
    _, status, reason, output = cycle_.decision(CALM)
    assert (status, reason) == ("published", "")
    assert {e["name"]: e["keep"] for e in output["edges"]} == {"rec.in:front": 1.0, "front:light": 1.0, "front:heavy": 1.0}
    assert cycle_.keeps() == {}


def test_overload_is_published_with_the_decision_that_says_why(begin):
    cycle_ = begin()
    cycle_.run(RUSH)
    decision, status, _, output = cycle_.decision(RUSH)
    assert status == "published"
    heavy = next(e for e in output["edges"] if e["name"] == "front:heavy")
    assert 0.0 < heavy["keep"] < 0.5
    assert cycle_.keeps() == {"front:heavy": heavy["keep"]}, "what keeps everything is not set"
    [setting] = settings.current(cycle_.conn, "rec").values()
    assert (setting.decision_id, setting.ttl_s, setting.issued_by, setting.reason) == (decision, 60.0, "qod", heavy["reason"])
    [(text,)] = cycle_.sql("select text from spillway.event where actor = 'qod' and kind = 'keep'")
    assert heavy["reason"] in text
    [(expected,)] = cycle_.sql("select expected from spillway.decision where id = %s", decision)
    assert expected["keep"]["front:heavy"] == heavy["keep"]
    assert expected["accuracy"]["heavy"] == pytest.approx(heavy["keep"])


def test_what_a_decision_saw_gives_the_same_decision_again(begin):
    cycle_ = begin()
    cycle_.run(RUSH)
    [(body, output)] = cycle_.sql(
        "select o.body, d.output from spillway.decision d join spillway.observation o on o.id = d.observation"
    )
    again = decide(Observation.from_json(json.dumps(body)), Policy())
    nodes = read_window(cycle_.conn, cycle_.window(RUSH), Policy()).nodes_of("rec")
    assert json.loads(json.dumps(part(again, declared(), nodes))) == output


@pytest.mark.parametrize(("mode", "status"), [("advise", ["decided"]), ("off", [])])
def test_only_apply_publishes(begin, mode, status):
    cycle_ = begin(mode)
    cycle_.run(RUSH)
    assert [s for (s,) in cycle_.sql("select status from spillway.decision")] == status
    assert cycle_.keeps() == {}


def test_a_step_that_runs_again_changes_nothing(begin):
    cycle_ = begin()
    cycle_.run(RUSH)
    tables = ("decision", "observation", "edge_setting", "setting_history", "gate_result", "event")
    before = [cycle_.sql(f"select * from spillway.{t} order by 1, 2") for t in tables]
    cycle_.run(RUSH)
    assert [cycle_.sql(f"select * from spillway.{t} order by 1, 2") for t in tables] == before


def test_a_decision_that_comes_late_is_not_published(begin):
    cycle_ = begin()
    window = cycle_.window(RUSH)
    observe(cycle_.conn, window, LIVE)
    decide_all(cycle_.conn, window, LIVE)
    publish(cycle_.conn, window, LIVE, now=window.end + timedelta(seconds=46))
    _, status, reason, _ = cycle_.decision(RUSH)
    assert status == "failed"
    assert reason.startswith("not published: it is 46 s late")
    assert cycle_.keeps() == {}


@pytest.mark.parametrize("mode", ["off", "advise"])
def test_who_takes_the_mode_back_before_publishing_is_heard(begin, mode):
    cycle_ = begin()
    window = cycle_.window(RUSH)
    observe(cycle_.conn, window, LIVE)
    decide_all(cycle_.conn, window, LIVE)
    pipelines.set_mode(cycle_.conn, "rec", mode, "test")
    publish(cycle_.conn, window, LIVE, now=window.end + timedelta(seconds=3))
    assert cycle_.decision(RUSH)[1] == "decided"
    assert cycle_.keeps() == {}


def test_raising_takes_two_cycles_and_steps(begin):
    """After a rush that ended at once: the way up begins at the keep of the last decision."""
    cycle_, last, run = begin(), RUSH - 2, Run(policy=replace(Policy(), qod_drain_horizon_s=3600.0))
    cycle_.run(last, run)
    low, over = cycle_.keeps()["front:heavy"], cycle_.window(last).end
    assert low > 0.3, "above its floor"
    cycle_.sql("update spillway.edge_metric set lag_rows = 0 where ended_at > %s", over)
    cycle_.sql("update spillway.partition_metric set latest_offset = end_offset where ended_at > %s", over - timedelta(minutes=1))
    cycle_.sql("update spillway.executor_cpu set cpu_pct = 5 where at > %s", over)
    cycle_.sql("update spillway.node_metric set cpu_pct = 13 where at > %s", over)
    cycle_.run(last + 1, run)
    assert cycle_.keeps()["front:heavy"] == low
    assert cycle_.decision(last + 1)[3]["remember"]["raise_ready"] == {"heavy": 1}
    cycle_.run(last + 2, run)
    assert cycle_.keeps()["front:heavy"] == pytest.approx(low + Policy().qod_raise_limit)


def test_stale_metrics_hold_what_is_in_force_and_keep_it_alive(begin):
    cycle_, late = begin(), 27  # the recording ends with window 23
    cycle_.sql("update spillway.heartbeat set at = %s", cycle_.window(late).end)
    for number in range(22, late):
        cycle_.run(number)
    kept = cycle_.keeps()
    cycle_.sql("update spillway.edge_setting set issued_at = %s", cycle_.window(late).end - timedelta(seconds=40))
    steps = cycle_.run(late)
    assert steps[0].said == ("stale/rec: rec",)
    assert cycle_.decision(late)[1:3] == ("held", "METRICS_STALE")
    assert cycle_.keeps() == kept
    assert cycle_.sql("select decision_id from spillway.edge_setting") == [(cycle_.decision(late)[0],)], "refreshed"


def test_a_pipeline_that_is_still_starting_is_waited_for(begin):
    cycle_ = begin()
    cycle_.sql("delete from spillway.heartbeat where application = 'behind'")
    steps = cycle_.run(CALM)
    assert steps[0] == Step(said=("behind of rec is still starting",))
    assert cycle_.decision(CALM)[1:3] == ("held", "behind of rec is still starting")


@pytest.mark.parametrize(("age_s", "warming"), [(15, {"heavy"}), (59, {"heavy"}), (61, set())])
def test_a_driver_that_has_just_started_is_warming_until_it_has_its_floor_or_its_time_is_up(begin, age_s, warming):
    cycle_ = begin()
    window = cycle_.window(RUSH)
    started = window.end - timedelta(seconds=age_s)
    cycle_.sql("update spillway.heartbeat set started_at = %s", started)
    assert {i.operator for i in read_window(cycle_.conn, window, Policy()).instances if i.warming} == set(), (
        "all have their floors"
    )
    cycle_.sql("update spillway.edge_metric set rows_kept = rows_read / 5, keep = 0.2 where edge = 'front:heavy'")
    cycle_.conn.rollback()
    assert {i.operator for i in read_window(cycle_.conn, window, Policy()).instances if i.warming} == warming


# ---- gates ----

TWICE = """
insert into spillway.executor_cpu
    (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)
select 'n1', spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at
from spillway.executor_cpu where application = 'behind'"""
DAMAGE = {
    "nulls": ("update spillway.executor_cpu set cpu_pct = 'NaN' where application = 'behind'", "instance_cpu_to_be_measured"),
    "no arrivals": ("delete from spillway.topic_metric", "arrival_rate_to_be_measured"),
    "negative rates": ("update spillway.topic_metric set end_offset = 900000 - end_offset", "arrival_rate_not_to_be_negative"),
    "clock skew of a driver": ("update spillway.batch_metric set written_at = ended_at - interval '30 s'", "clocks_to_agree"),
    "a driver's clock behind": ("update spillway.batch_metric set written_at = ended_at + interval '9 s'", "clocks_to_agree"),
    "a node's clock behind": ("update spillway.node_metric set written_at = at + interval '9 s'", "clocks_to_agree"),
    "a topic's clock behind": ("update spillway.topic_metric set written_at = at + interval '9 s'", "clocks_to_agree"),
    "clock skew of an agent": ("update spillway.node_metric set written_at = at - interval '3 s'", "clocks_to_agree"),
    "duplicated instances": (TWICE, "instances_once"),
    "missing instances": (
        "delete from spillway.executor_cpu where application = 'ahead' and executor = '1'",
        "no_instance_missing",
    ),
    "a node that uses more than it has": ("update spillway.node_metric set cpu_pct = 130", "node_cpu_within_its_cores"),
    "a node nobody knows": ("delete from spillway.node_metric where node = 'n2'", "instances_on_known_nodes"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_window_is_refused_recorded_and_changes_nothing(begin, damage):
    text, rule = DAMAGE[damage]
    cycle_ = begin()
    cycle_.run(RUSH - 1)
    in_force = cycle_.sql("select * from spillway.edge_setting")
    assert in_force
    cycle_.sql(text)
    steps = cycle_.run(RUSH)
    assert any(rule in words for words in steps[0].refused)
    assert steps[1:3] == [Step(), Step()], "nothing was decided or published"
    decision, status, reason, output = cycle_.decision(RUSH)
    assert (status, output) == ("refused", None)
    assert rule in reason
    recorded = cycle_.sql("select gate, rule, success, evidence from spillway.gate_result where decision = %s", decision)
    assert (rule, False) in [(r, s) for _, r, s, _ in recorded]
    assert all(gate == "observation" and evidence["rows"] for gate, _, _, evidence in recorded)
    assert cycle_.sql("select * from spillway.edge_setting") == in_force
    [(told,)] = cycle_.sql("select text from spillway.event where kind = 'refused'")
    assert rule in told
    [(world, body)] = cycle_.sql(
        "select o.world, o.body from spillway.decision d join spillway.observation o on o.id = d.observation where d.id = %s",
        decision,
    )  # fmt: skip
    assert world == "refused/rec"
    assert set(body) == {"nodes", "instances", "operators", "edges"}, "what was measured, as it was"


def test_a_refusal_is_told_once_and_again_after_something_else(begin):
    cycle_ = begin()
    cycle_.sql("delete from spillway.topic_metric where at > %s", cycle_.window(CALM).start - timedelta(minutes=2))
    for number in range(CALM, CALM + 3):
        cycle_.run(number)
    assert cycle_.sql("select count(*) from spillway.event where kind = 'refused'") == [(1,)]


def below_floor(observation: Observation, policy: Policy) -> Any:
    """A decision that was spoiled after it was made: the edge into `heavy` keeps less than its floor."""
    decision = decide(observation, policy)
    edges = tuple(replace(e, keep=0.29) if e.consumer == "rec/heavy" else e for e in decision.edges)
    return replace(decision, edges=edges, infeasible=None, feasible=True)


def test_a_keep_below_a_floor_is_refused_recorded_and_not_published(begin, monkeypatch):
    cycle_ = begin()
    monkeypatch.setattr(cycle, "decide", below_floor)
    steps = cycle_.run(CALM)
    assert "keep_within_floor" in steps[1].refused[0]
    decision, status, reason, output = cycle_.decision(CALM)
    assert status == "refused"
    assert "keep_within_floor" in reason
    assert next(e["keep"] for e in output["edges"] if e["name"] == "front:heavy") == 0.29, "kept for the record"
    rules = cycle_.sql("select gate, rule, evidence -> 'rows' from spillway.gate_result where decision = %s", decision)
    [evidence] = [rows for gate, rule, rows in rules if (gate, rule) == ("decision", "keep_within_floor")]
    assert evidence == [{"subject": "heavy", "above_floor": pytest.approx(-0.01)}]
    assert cycle_.keeps() == {}


def test_a_decision_that_raises_is_recorded_as_failed(begin, monkeypatch):
    def fail(observation: Observation, policy: Policy) -> Any:
        raise ArithmeticError("divided by zero")

    cycle_ = begin()
    monkeypatch.setattr(cycle, "decide", fail)
    steps = cycle_.run(RUSH)
    assert "ArithmeticError: divided by zero" in steps[1].refused[0]
    assert cycle_.decision(RUSH)[1:3] == ("failed", "deciding failed: ArithmeticError: divided by zero")
    assert cycle_.keeps() == {}


def test_who_is_refused_holds_up_nobody_else(begin):
    cycle_ = begin("apply", "rec", "other")
    cycle_.sql("delete from spillway.topic_metric where topic = 'rec.in'")
    steps = cycle_.run(RUSH)
    assert len(steps[0].refused) == 1
    assert cycle_.decision(RUSH, "rec")[1] == "refused"
    assert cycle_.decision(RUSH, "other")[1] == "published"
    assert set(settings.current(cycle_.conn, "other")) >= {"front:heavy"}
    assert settings.current(cycle_.conn, "rec") == {}


def test_pipelines_that_share_nodes_are_decided_together(begin):
    cycle_ = begin("apply", "rec", "other")
    cycle_.run(RUSH)
    [(members, body)] = cycle_.sql("select pipelines, body from spillway.observation")
    assert members == ["other", "rec"]
    assert {o["name"] for o in body["operators"]} == {f"{p}/{o}" for p in members for o in ("front", "light", "heavy")}
    pipelines.set_mode(cycle_.conn, "other", "advise", "test")
    later = "update spillway.pipeline_history set at = %s where mode = 'advise' and at > now() - interval '1 minute'"
    cycle_.sql(later, cycle_.window(RUSH + 1).start)
    cycle_.run(RUSH + 1)
    worlds = dict(
        cycle_.sql("select world, pipelines from spillway.observation where interval_end = %s", cycle_.window(RUSH + 1).end)
    )
    assert worlds == {"apply": ["rec"], "advise": ["other", "rec"]}
    assert cycle_.decision(RUSH + 1, "rec")[1] == "published"
    assert cycle_.decision(RUSH + 1, "other")[1] == "decided"


# ---- verify ----


def in_force(cycle_: Cycle, keep: float, since: datetime) -> None:
    """The metrics as they would be, had the keep been in force from a moment on."""
    cycle_.sql(
        "update spillway.edge_metric set keep = %s, rows_kept = rows_read * %s, lag_rows = 0"
        " where edge = 'front:heavy' and ended_at > %s",
        keep, keep, since,
    )  # fmt: skip
    cycle_.sql(
        "update spillway.partition_metric set latest_offset = end_offset where edge = 'front:heavy' and ended_at > %s", since
    )  # fmt: skip


@pytest.mark.parametrize(("works", "verdict"), [(True, "confirmed"), (False, "missed")])
def test_the_first_window_after_a_decision_shows_what_came_of_it(begin, works, verdict):
    cycle_ = begin()
    cycle_.run(RUSH)
    decision = cycle_.decision(RUSH)[0]
    published = cycle_.window(RUSH).end + timedelta(seconds=3)
    cycle_.sql("update spillway.decision set published_at = %s", published)
    cycle_.sql("update spillway.edge_setting set issued_at = %s", published)
    cycle_.sql("update spillway.setting_history set issued_at = %s", published)
    if works:
        in_force(cycle_, cycle_.keeps()["front:heavy"], published - timedelta(seconds=60))
    verify(cycle_.conn, cycle_.window(RUSH + 1), LIVE)
    assert cycle_.sql("select verified from spillway.decision where id = %s", decision) == [(None,)], "half of it lies before"
    verify(cycle_.conn, cycle_.window(RUSH + 2), LIVE)
    [(found,)] = cycle_.sql("select verified from spillway.decision where id = %s", decision)
    assert found["verdict"] == verdict
    kinds = [k for (k,) in cycle_.sql("select kind from spillway.event where actor = 'qod' order by id")]
    assert ("missed" in kinds) is not works
    if not works:
        assert any(words.startswith("keep of front:heavy is 1 instead of") for words in found["missed"])


def test_a_decision_whose_traffic_stops_stays_unverified(begin):
    cycle_ = begin()
    cycle_.run(RUSH)
    decision, following = cycle_.decision(RUSH)[0], cycle_.window(RUSH + 2)
    published = cycle_.window(RUSH).end + timedelta(seconds=3)
    cycle_.sql("update spillway.decision set published_at = %s", published)
    cycle_.sql("update spillway.setting_history set issued_at = %s", published)
    for table in ("batch_metric", "edge_metric", "partition_metric"):
        cycle_.sql(f"delete from spillway.{table} where ended_at > %s", published)
    assert verify(cycle_.conn, following, LIVE).said == ()
    assert cycle_.sql("select verified from spillway.decision where id = %s", decision) == [(None,)]
    assert cycle_.sql("select kind from spillway.event where kind = 'missed'") == []
