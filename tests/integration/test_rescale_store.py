"""Plans from request to end on a real Postgres: every kind, what is refused, and a person who has other ideas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from psycopg2 import errors
from spillway.act.rescale.carry import RescaleStumbled
from spillway.decide.streams import Kind, Reason
from spillway.store import Refused, pipelines, rescale

from tests.support.database import Database
from tests.support.plans import AFTER, BEFORE, WANTED, streams
from tests.support.rescaling import STATE, Line

pytestmark = pytest.mark.integration

# ---- the way it should go ----


@pytest.mark.parametrize("kind", WANTED)
def test_every_kind_goes_from_request_to_done(line: Line, kind: str) -> None:
    asked = line.ask(**WANTED[kind])
    assert (asked.state, asked.step, {s.state for s in asked.steps}) == ("planned", "", {"waiting"})
    done = line.carry()
    assert (done.state, done.step) == ("done", "done"), done
    assert {s.state for s in done.steps} == {"done"}
    assert (line.application(), line.state()) == AFTER[kind]
    assert done.ended_at is not None
    assert done.observed["pause_s"] > 0
    assert line.events()[-1] == "rescaled"
    assert line.advance() == [], "nothing is left to do"


def test_each_step_leaves_what_shows_it(line: Line) -> None:
    line.ask(**WANTED["restart_buckets"])
    steps = {s.step: s for s in line.carry().steps}
    assert list(steps) == ["validate", "order", "stopped", "started", "verify", "digest", "done"]
    assert steps["validate"].evidence["rules"] == 9
    assert steps["order"].evidence["batch_id"] == steps["stopped"].evidence["stopped_batch"]
    assert steps["started"].evidence == {"incarnation": 1, "buckets": 4}
    verified = steps["verify"].evidence
    assert (verified["batches"], verified["joints_unknown"]) == (3, 0)
    assert verified["joints"] == 6, "three batches of two partitions, each beside the one before it"
    [state] = steps["digest"].evidence["state"]
    assert (state["buckets_before"], state["buckets_after"]) == (8, 4)
    assert state["rows_before"] == state["rows_after"] == sum(rows for _, rows, _ in STATE)
    assert state["same_checksum"] is True
    assert all(s.began_at and s.ended_at and s.began_at <= s.ended_at for s in steps.values())


def test_what_takes_over_was_launched_as_the_plan_says(line: Line) -> None:
    plan = line.ask(**WANTED["handover"])
    line.carry()
    spec = line.specs[-1]
    assert (spec.generation, spec.node, spec.executors, spec.max_executors, spec.successor) == (2, "n2", 3, 6, plan.id)
    assert spec.name == f"spillway:{line.name}:main:2"
    assert [d.over for d in line.drivers] == ["fenced", None]


def test_while_a_plan_is_open_streams_leave_its_successor_alone_and_afterwards_it_is_theirs(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.carry(until="cutover")
    assert [(a.kind, a.reason) for a in streams(line)] == [(Kind.NOTHING, Reason.HEALTHY)]
    assert line.carry().state == "done"
    line.cluster.kill(line.sql("select handle from spillway.application where pipeline = %s", line.name)[0][0])
    [action] = streams(line)
    assert (action.kind, action.reason, action.generation) == (Kind.RESTART, Reason.DRIVER_DIED, 3)


def test_an_operator_without_anything_to_read_is_verified_by_its_being_there(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.act.rescale.steps.QUIET_S", 0.0)
    line.ask(**WANTED["restart"])
    line.carry(until="verify")
    line.batch = lambda generation: None  # type: ignore[method-assign,assignment]
    assert line.carry(passes=8).step == "verify", "nobody has looked at its topic: that is no sign that nothing arrives"
    for _ in range(2):
        line.job("insert into spillway.topic_metric (topic, partition, at, end_offset) values (%s, 0, clock_timestamp(), 10)",
                 f"{line.name}.in")  # fmt: skip
    done = line.carry()
    assert done.state == "done"
    assert "and nothing more has arrived" in next(s for s in done.steps if s.step == "verify").detail


def test_a_policy_may_ask_for_no_comparison_of_state(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_digest="buckets")
    line.digest = lambda after=None: None  # type: ignore[method-assign,assignment]
    line.ask(**WANTED["executors"])
    assert line.carry().state == "done"
    line.ask(**WANTED["restart_buckets"])
    assert line.carry(passes=25).step == "digest"


# ---- what is refused ----


def test_an_operator_that_is_not_there_is_refused(line: Line) -> None:
    from spillway.model.rescale import OperatorLoad
    from spillway.model.rescale_plan import Reason as Why
    from spillway.model.rescale_plan import RescalePlan

    nobody = RescalePlan.no_change(OperatorLoad(name="cuont", application="main", parallelism=2), Why.WITHIN_BAND)
    with pytest.raises(Refused, match=rf"pipeline {line.name} has no operator cuont: its operators are count\."):
        rescale.request(line.conn, line.name, nobody, by="test")


def test_one_plan_at_a_time(line: Line) -> None:
    plan = line.ask(**WANTED["handover"])
    line.carry(until="rehearsed")
    planned = _planned(line)
    with pytest.raises(Refused) as raised:
        rescale.request(line.conn, line.name, planned, by="test")
    assert str(raised.value) == (
        f"plan {plan.id} (handover of {line.name}/count: executors 2 → 3, node n1 → n2) is under way, at step rehearsed: "
        f"wait for it, or take it back with `spillway rescale --cancel {plan.id}`."
    )
    with pytest.raises(errors.UniqueViolation):
        line.sql(
            "insert into spillway.rescale_plan (pipeline, application, operator, kind, executors_from, executors_to,"
            " buckets_from, buckets_to, checkpoint_from, checkpoint_to, generation_from, requested_by)"
            " values (%s, 'main', 'count', 'executors', 1, 1, 1, 1, 0, 0, 1, 'x')", line.name,
        )  # fmt: skip


def _planned(line: Line, **wanted: Any) -> Any:
    """A plan as it would be made if none were under way."""
    from spillway.decide.rescale import plan_request
    from spillway.model.rescale import Request
    from spillway.store.rescale_world import world

    with line.conn:
        [(now,)] = line.sql("select now()")
        found = replace(world(line.conn, line.name, now=now), running=())
    return plan_request(found, Request(operator="count", **{"to": 4, **wanted}), line.policy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("update spillway.application set desired = 'stopped' where pipeline = '{0}'", "should be stopped"),
        ("update spillway.heartbeat set state = 'starting' where pipeline = '{0}'", "does not run yet"),
        ("update spillway.application set executors = 5 where pipeline = '{0}'", "has changed since the plan was made"),
        ("update spillway.application set node = 'n3' where pipeline = '{0}'", "has changed since the plan was made"),
        ("update spillway.operator_state set checkpoint = 7 where pipeline = '{0}'", "no committed batch to go on from"),
        (
            "insert into spillway.reschedule (pipeline, application, source, target, reason, state) values"
            " ('{0}', 'main', 'n1', 'n2', '', 'moving')",
            "is moving to n2: wait until it has",
        ),
    ],
)
def test_a_request_that_no_longer_fits_is_refused_and_changes_nothing(line: Line, change: str, words: str) -> None:
    planned = _planned(line)
    line.sql(change.format(line.name))
    with pytest.raises(Refused, match=words):
        rescale.request(line.conn, line.name, planned, by="test")
    assert line.sql("select count(*) from spillway.rescale_plan where pipeline = %s", line.name) == [(0,)]
    line.sql("delete from spillway.reschedule where pipeline = %s", line.name)


def test_what_was_asked_for_may_no_longer_be_possible_when_it_is_begun(line: Line) -> None:
    line.ask(to=6, kind="executors")
    narrower = line.conn
    from tests.support.rescaling import YAML

    text = YAML.format(name=line.name).replace("max: 6", "max: 4")
    from spillway.topology import check_text

    spec, problems = check_text(text)
    assert spec is not None, problems
    pipelines.apply(narrower, spec, text, "test")
    failed = line.carry()
    assert (failed.state, failed.step) == ("failed", "validate")
    assert "executors_within_bounds" in failed.detail
    assert line.application() == BEFORE[0], "nothing was done"
    assert [s.state for s in failed.steps] == ["failed", *["waiting"] * 5]


# ---- a person, and others ----


def test_a_plan_that_was_not_begun_is_taken_back_at_once(line: Line) -> None:
    plan = line.ask(**WANTED["handover"])
    assert rescale.cancel(line.conn, plan.id, "cli:eve").state == "rolled_back"
    assert line.advance() == []
    with pytest.raises(Refused, match=r"is over \(rolled_back\): there is nothing to take back"):
        rescale.cancel(line.conn, plan.id, "cli:eve")
    with pytest.raises(Refused, match="there is no plan 999999"):
        rescale.cancel(line.conn, 999_999, "cli:eve")


@pytest.mark.parametrize("step", ["launch", "rehearsed", "cutover"])
def test_a_plan_is_taken_back_until_the_point_of_no_return(line: Line, step: str) -> None:
    plan = line.ask(**WANTED["handover"])
    line.carry(until=step)
    assert rescale.cancel(line.conn, plan.id, "cli:eve").state == "rolling_back"
    back = line.carry()
    assert (back.state, line.application()) == ("rolled_back", BEFORE[0])
    assert back.detail.startswith("taken back by cli:eve")


@pytest.mark.parametrize(("kind", "step"), [("handover", "taken_over"), ("restart", "stopped"), ("shadow", "verify")])
def test_behind_it_nothing_is_taken_back(line: Line, kind: str, step: str) -> None:
    plan = line.ask(**WANTED[kind])
    line.carry(until=step)
    with pytest.raises(Refused, match="from which on it only goes forward"):
        rescale.cancel(line.conn, plan.id, "cli:eve")
    assert line.carry().state == "done"


def test_executors_are_taken_back_at_any_time(line: Line) -> None:
    plan = line.ask(**WANTED["executors"])
    line.carry(until="verify")
    rescale.cancel(line.conn, plan.id, "cli:eve")
    assert line.carry().state == "rolled_back"
    assert line.application() == BEFORE[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("update spillway.application set desired = 'stopped' where pipeline = '{0}'", "was stopped meanwhile"),
        ("update spillway.application set node = 'n3' where pipeline = '{0}'", "was given the node n3 meanwhile"),
        ("update spillway.application set executors = 5 where pipeline = '{0}'", "was given 5 executors meanwhile"),
        ("update spillway.application set generation = 3 where pipeline = '{0}'", "was launched anew meanwhile, as generation 3"),
        (
            "update spillway.operator_state set buckets = 9 where pipeline = '{0}'",
            "was given checkpoint 0 with 9 buckets meanwhile",
        ),
    ],
)
@pytest.mark.parametrize("step", ["rehearsed", "cutover"])
def test_a_person_wins_over_a_plan(line: Line, step: str, change: str, words: str) -> None:
    line.ask(**WANTED["handover"])
    line.carry(until=step)
    line.sql(change.format(line.name))
    line.advance()
    plan = line.plan()
    assert plan.state == "rolling_back"
    assert words in plan.detail
    assert line.carry().state == "rolled_back"


def test_a_pipeline_that_is_stopped_after_the_order_keeps_what_was_ordered(line: Line) -> None:
    line.ask(**WANTED["executors"])
    line.carry(until="verify")
    pipelines.set_desired(line.conn, line.name, "stopped", "test")
    failed = line.carry()
    assert failed.state == "failed"
    assert "was stopped before executors 2 → 4 could be verified" in failed.detail
    assert line.application()[2] == 4


def test_a_pipeline_that_is_removed_takes_its_plans_along(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.carry(until="rehearsed")
    line.sql("delete from spillway.pipeline where pipeline = %s", line.name)
    assert line.advance() == []


def test_the_running_driver_dies_before_the_cut_over_streams_replace_it_and_the_plan_goes_back(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.carry(until="rehearsed")
    line.drivers[0].kill()
    [action] = streams(line)
    assert (action.kind, action.generation) == (Kind.RESTART, 3), "the successor is 2"
    back = line.carry()
    assert (back.state, line.application()) == ("rolled_back", (3, "n1", 2))
    assert [d.over for d in line.drivers] == ["killed", "stopped", None]


def test_the_running_driver_dies_at_a_restart_and_the_next_one_starts_as_ordered(line: Line) -> None:
    line.ask(**WANTED["restart_buckets"])
    line.carry(until="stopped")
    line.drivers[0].kill()
    streams(line)
    assert line.carry().state == "done"
    assert (line.application(), line.state()) == ((2, "n1", 2), (0, 4, 1))


# ---- what is remembered ----


def test_history_tells_what_was_changed_and_what_came_of_it(line: Line) -> None:
    line.ask(**WANTED["executors"])
    plan = line.carry()
    rescale.observe(line.conn, plan.id, {"rate": 900.0, "effective": True})
    line.ask(**WANTED["handover"])
    line.cluster.refuses = "no."
    line.carry()
    line.cluster.refuses = None
    cancelled = line.ask(to=2)
    rescale.cancel(line.conn, cancelled.id, "eve")
    [first, second] = rescale.history(line.conn, line.name, plan.requested_at - timedelta(seconds=1))
    assert (first.operator, first.executors_from, first.executors_to, first.outcome) == ("count", 2, 4, "done")
    assert (first.effective, first.observed_rate, first.decision) == (True, 900.0, None)
    assert first.pause_s == plan.observed["pause_s"]
    assert (second.outcome, second.kind) == ("rolled_back", "handover")


def test_numbers_of_a_plan_that_came_to_nothing_are_not_used_again(line: Line) -> None:
    plan = line.ask(**WANTED["shadow"])
    line.carry(until="caught_up")
    rescale.cancel(line.conn, plan.id, "eve")
    line.carry()
    second = line.ask(**WANTED["shadow"])
    assert (second.checkpoint_to, second.generation_to) == (2, 3)
    assert line.carry().state == "done"
    assert (line.application()[0], line.state()[:2]) == (3, (2, 16))


def test_a_step_that_raises_is_recorded_and_others_go_on(line: Line, migrated: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Line(migrated)
    other.ask(**WANTED["executors"])
    line.ask(**WANTED["executors"])
    line.carry(until="scaled")
    from spillway.act.rescale import carry, steps

    def broken(scene: Any) -> Any:
        if scene.plan.pipeline == line.name:
            raise ZeroDivisionError("a bug")
        return steps.scaled(scene)

    monkeypatch.setattr(carry, "STEPS", {**steps.STEPS, "scaled": broken})
    for _ in range(6):
        with pytest.raises(RescaleStumbled, match="ZeroDivisionError: a bug"):
            line.advance()
        other.tick()
    assert line.plan().steps[2].detail == "ZeroDivisionError: a bug"
    assert other.plan().step == "digest"
    monkeypatch.undo()
    assert line.carry().state == "done"
    other.close()


def test_two_passes_at_once_do_not_act_twice(line: Line) -> None:
    line.ask(**WANTED["executors"])
    line.sql("select pg_advisory_lock(hashtext('spillway.rescale'))")
    assert line.advance() == []
    line.sql("select pg_advisory_unlock(hashtext('spillway.rescale'))")
    assert line.advance() != []
