"""Drivers that end, nodes that die, pipelines that vanish, steps that run again: a cycle says so, and stops nobody else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from spillway.act import cycle
from spillway.act.cycle import Step, decide_all, observe
from spillway.act.publish import publish
from spillway.observe.samples import read_samples
from spillway.observe.window import read_window
from spillway.policy import Policy
from spillway.store.decisions import REPLAY, Run

from tests.support.cycles import CALM, LIVE, RUSH, Cycle

pytestmark = pytest.mark.integration
SHRINKING = "update spillway.topic_metric set end_offset = 900000 - end_offset where topic = 'rec.in'"
"""Breaks a rule of the observation gate; once more, and all is well again."""


# ---- drivers and nodes ----


@pytest.mark.parametrize(
    ("beat_s", "state"), [(-1.0, "running"), (2.0, "stopped"), (2.0, "failed"), (-20.0, "fenced")], ids=lambda v: str(v)
)
def test_a_driver_that_ended_is_waited_for(begin, beat_s, state):
    """The next generation has no heartbeat yet, so the newest one is that of the driver that ended."""
    cycle_ = begin()
    last = cycle_.window(RUSH).start + timedelta(seconds=beat_s)
    cycle_.sql("update spillway.heartbeat set at = %s, state = %s where application = 'behind'", last, state)
    cycle_.sql("delete from spillway.executor_cpu where application = 'behind' and at > %s", last)
    steps = cycle_.run(RUSH)
    assert steps[0] == Step(said=("behind of rec is still starting",))
    assert cycle_.decision(RUSH)[1:3] == ("held", "behind of rec is still starting")


def test_a_driver_that_ended_later_was_there_in_a_window_before(begin):
    cycle_ = begin()
    cycle_.sql("update spillway.heartbeat set state = 'stopped'")
    assert read_window(cycle_.conn, cycle_.window(RUSH), Policy()).starting("rec") == []


def test_a_heart_that_beats_seldom_beats(begin):
    cycle_ = begin()
    cycle_.sql("update spillway.heartbeat set at = %s", cycle_.window(RUSH).start - timedelta(seconds=20))
    slow = Policy(heartbeat_s=30.0, fence_s=90.0)
    assert read_window(cycle_.conn, cycle_.window(RUSH), slow).starting("rec") == []
    assert read_window(cycle_.conn, cycle_.window(RUSH), Policy()).starting("rec") == ["ahead", "behind"]


def heavy(cycle_: Cycle) -> list[tuple[str, str]]:
    cycle_.conn.rollback()
    found = read_window(cycle_.conn, cycle_.window(RUSH), Policy())
    return [(i.node, i.executor) for i in found.instances if i.operator == "heavy"]


def test_executors_of_a_node_that_died_are_gone_after_a_while(begin):
    cycle_, died = begin(), timedelta(seconds=50)
    end = cycle_.window(RUSH).end
    cycle_.sql(
        "insert into spillway.executor_cpu"
        " (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)"
        " select 'n1', spark_app, '1', pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at"
        " from spillway.executor_cpu where application = 'behind' and at > %s",
        end - died,
    )  # fmt: skip
    for table in ("node_metric", "executor_cpu"):
        cycle_.sql(f"delete from spillway.{table} where node = 'n2' and at > %s", end - died)
    assert heavy(cycle_) == [("n1", "1")]


def test_while_nobody_looks_at_any_node_executors_are_stale_and_not_gone(begin):
    cycle_ = begin()
    for table in ("node_metric", "executor_cpu"):
        cycle_.sql(f"delete from spillway.{table} where at > %s", cycle_.window(RUSH).end - timedelta(seconds=50))
    assert heavy(cycle_) == [("n2", "0")]


def test_the_last_executor_of_a_node_is_gone_when_the_node_is_seen_without_it(begin):
    cycle_ = begin()
    assert heavy(cycle_) == [("n2", "0")]
    gone = cycle_.window(RUSH).end - timedelta(seconds=12)
    cycle_.sql("delete from spillway.executor_cpu where application = 'behind' and at > %s", gone)
    assert heavy(cycle_) == []


# ---- topics that are quiet for a while ----


def quiet_before(cycle_: Cycle, batches: int) -> None:
    """Of every operator only the newest so many batches of the window are there."""
    window = cycle_.window(RUSH)
    for operator in ("front", "light", "heavy"):
        found = cycle_.sql(
            "select batch_id from spillway.batch_metric where operator = %s and ended_at <= %s order by batch_id desc limit %s",
            operator, window.end, batches,
        )  # fmt: skip
        for table in ("batch_metric", "edge_metric", "partition_metric"):
            cycle_.sql(
                f"delete from spillway.{table} where operator = %s and ended_at <= %s and not batch_id = any(%s)",
                operator, window.end, [batch for (batch,) in found],
            )  # fmt: skip


def test_a_topic_that_wakes_up_is_held_until_its_first_batch(begin):
    cycle_ = begin()
    quiet_before(cycle_, 0)
    assert not any(step.refused for step in cycle_.run(RUSH))
    assert cycle_.decision(RUSH)[1:3] == ("held", "METRICS_STALE")


def test_one_batch_is_enough_to_decide_by(begin):
    cycle_ = begin()
    quiet_before(cycle_, 1)
    assert not any(step.refused for step in cycle_.run(RUSH))
    assert cycle_.decision(RUSH)[1:3] == ("published", "")


def test_executors_on_two_nodes_are_decided_by_what_they_take_together(begin):
    """Spark hands a task to whichever is free: which executor comes first must not matter."""
    found = []
    for names in (("0", "1"), ("1", "0")):
        cycle_ = begin("apply", f"p{names[0]}")
        cycle_.sql("update spillway.executor_cpu set executor = %s where application = 'behind'", names[0])
        cycle_.sql(
            "insert into spillway.executor_cpu"
            " (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)"
            " select 'n1', spark_app, %s, pipeline, application, at, cpu_pct / 3, rss_bytes, window_s, written_at"
            " from spillway.executor_cpu where application = 'behind' and pipeline = %s",
            names[1], f"p{names[0]}",
        )  # fmt: skip
        window = read_window(cycle_.conn, cycle_.window(RUSH), Policy())
        found.append([i.cpu for i in window.instances if i.operator == "heavy" and i.pipeline == f"p{names[0]}"])
    assert len(found[0]) == 2 and found[0] == pytest.approx(found[1]) and found[0][0] == pytest.approx(found[0][1])


# ---- pipelines ----


@pytest.mark.parametrize("raises", [False, True])
def test_a_pipeline_that_vanished_stops_nobody_else(begin, monkeypatch, raises):
    def fail(*_: object) -> None:
        raise ArithmeticError("divided by zero")

    cycle_ = begin("apply", "rec", "other")
    window = cycle_.window(RUSH)
    observe(cycle_.conn, window, LIVE)
    cycle_.sql("delete from spillway.pipeline_history where pipeline = 'other'")
    if raises:
        monkeypatch.setattr(cycle, "decide", fail)
    decide_all(cycle_.conn, window, LIVE)
    assert cycle_.decision(RUSH, "rec")[1] == ("failed" if raises else "decided")
    assert cycle_.sql("select count(*) from spillway.decision where pipeline = 'other'") == [(0,)]


# ---- steps that run again ----


def test_a_refusal_stays_whatever_was_observed_before_or_is_decided_again(begin):
    cycle_ = begin("apply", "rec", "other")
    window = cycle_.window(RUSH)
    observe(cycle_.conn, window, LIVE)
    cycle_.sql(SHRINKING)
    assert len(observe(cycle_.conn, window, LIVE).refused) == 1
    decide_all(cycle_.conn, window, LIVE)
    publish(cycle_.conn, window, LIVE, now=window.end + timedelta(seconds=3))
    assert cycle_.decision(RUSH, "rec")[1] == "refused"
    assert cycle_.decision(RUSH, "other")[1] == "published"


@pytest.mark.parametrize("mended", [SHRINKING, SHRINKING + "; delete from spillway.heartbeat where application = 'behind'"])
def test_a_refusal_stays_when_what_was_wrong_is_mended_too_late(begin, mended):
    cycle_ = begin()
    cycle_.sql(SHRINKING)
    cycle_.run(RUSH)
    found = cycle_.sql("select * from spillway.gate_result")
    assert found
    cycle_.sql(mended)
    steps = cycle_.run(RUSH)
    assert cycle_.decision(RUSH)[1] == "refused"
    assert cycle_.keeps() == {}
    assert steps[1] == Step()
    assert cycle_.sql("select * from spillway.gate_result") == found


def test_what_the_decision_gate_refused_is_refused_again(begin, monkeypatch):
    cycle_ = begin()
    with monkeypatch.context() as patched:
        patched.setattr(cycle, "keeps_before", lambda *_: {"rec.in:front": 1.0, "front:light": 1.0, "front:heavy": 0.1})
        cycle_.run(CALM)
    again = decide_all(cycle_.conn, cycle_.window(CALM), LIVE)
    assert cycle_.decision(CALM)[1] == "refused"
    assert len(again.refused) == 1, "and the step is red again"


def test_a_replay_that_is_repeated_forgets_what_its_gates_found_before(begin):
    cycle_, run = begin(), Run(origin=REPLAY, replay="again", policy=Policy())
    cycle_.sql(SHRINKING)
    cycle_.run(RUSH, run)
    assert cycle_.decision(RUSH)[1] == "refused"
    cycle_.sql(SHRINKING)
    cycle_.run(RUSH, run)
    assert cycle_.decision(RUSH)[1] == "decided"
    assert cycle_.sql("select count(*) from spillway.gate_result") == [(0,)]


# ---- what operators cost ----


def test_a_batch_that_is_not_finished_makes_no_operator_dearer(begin):
    """The CPU of a slice it ran in is known, its rows are not."""
    cycle_ = begin()
    window = cycle_.window(20)

    def dearest(operator: str) -> tuple[int, float]:
        cycle_.conn.rollback()
        found = read_samples(cycle_.conn, window, Policy(), ["rec"])["rec", operator]
        return len(found), max(s.cpu / s.kept for s in found)

    before = {operator: dearest(operator) for operator in ("front", "light", "heavy")}
    for table in ("batch_metric", "edge_metric"):
        cycle_.sql(
            f"delete from spillway.{table} where operator in ('light', 'heavy') and ended_at > %s",
            window.start - timedelta(seconds=40),
        )  # fmt: skip
    for operator, (count, cost) in before.items():
        assert dearest(operator) == (count - 3, pytest.approx(cost, rel=0.05)), operator


def test_what_two_drivers_used_while_one_followed_the_other_is_not_learned_from(begin):
    """Both used CPU for the same rows, as three executors that had one half of them each."""
    cycle_ = begin()
    window = cycle_.window(20)

    def known() -> int:
        cycle_.conn.rollback()
        return len(read_samples(cycle_.conn, window, Policy(), ["rec"])["rec", "heavy"])

    before = known()
    since = window.start - timedelta(seconds=2.5 * window.seconds)
    cycle_.sql(
        "update spillway.executor_cpu set spark_app = spark_app || '-next' where application = 'behind' and at > %s", since
    )
    assert known() == before - 1
