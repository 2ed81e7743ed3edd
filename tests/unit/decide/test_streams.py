from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway.decide.streams import (
    Actual,
    DesiredApplication,
    DriverStatus,
    Heartbeat,
    Kind,
    Reason,
    Stray,
    StreamAction,
    plan_streams,
)
from spillway.policy import Policy

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
POLICY = Policy()
KEY = ("taxi", "heavy")


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def app(**more: object) -> DesiredApplication:
    row = DesiredApplication(
        pipeline="taxi", application="heavy", running=True, desired_since=ago(3600), version=3, generation=4, handle="h4",
        launcher="standalone", launched_at=ago(600), attempts=0,
    )  # fmt: skip
    return replace(row, **more)


def beat(age_s: float = 1, *, state: str = "running", ran_s: float = 500, version: int | None = 3) -> Heartbeat:
    return Heartbeat(generation=4, state=state, at=ago(age_s), started_at=ago(age_s + ran_s), version=version)


def world(status: DriverStatus | None = DriverStatus.RUNNING, hb: Heartbeat | None = None, **more: object) -> Actual:
    return Actual(
        drivers={KEY: status} if status else {}, heartbeats={(*KEY, 4): hb} if hb else {}, store_up_since=ago(86400), **more
    )


def only(row: DesiredApplication, actual: Actual, now: datetime = NOON) -> StreamAction:
    [action] = plan_streams([row], actual, now, POLICY)
    return action


def said(action: StreamAction) -> tuple[Kind, Reason]:
    return action.kind, action.reason


def test_a_declared_application_that_never_ran_is_started_at_generation_one():
    action = only(app(generation=0, handle=None, launched_at=None), world(None))
    assert said(action) == (Kind.START, Reason.NEVER_LAUNCHED)
    assert (action.generation, action.attempts) == (1, 1)


def test_a_healthy_driver_is_left_alone():
    assert said(only(app(), world(hb=beat()))) == (Kind.NOTHING, Reason.HEALTHY)


def test_a_dead_driver_is_restarted_at_once_and_its_lease_released():
    action = only(app(), world(DriverStatus.FAILED, beat(3)))
    assert said(action) == (Kind.RESTART, Reason.DRIVER_DIED)
    assert (action.generation, action.release, action.attempts) == (5, 4, 1)
    assert action.words == "taxi/heavy generation 4 has ended (failed): starting generation 5."


def test_launches_that_do_not_become_healthy_are_spaced_and_the_lease_is_released_meanwhile():
    row = app(attempts=3, launched_at=ago(12))
    action = only(row, world(DriverStatus.FAILED, beat(2, ran_s=5)))
    assert said(action) == (Kind.WAIT, Reason.BACKING_OFF)
    assert action.release == 4
    assert "next one in 8 s" in action.words
    later = only(row, world(DriverStatus.FAILED, beat(2, ran_s=5)), NOON + timedelta(seconds=9))
    assert (later.kind, later.attempts) == (Kind.RESTART, 4)


def test_a_run_that_was_healthy_starts_again_without_a_pause():
    action = only(app(attempts=9, launched_at=ago(40)), world(DriverStatus.FAILED, beat(2, ran_s=31)))
    assert (action.kind, action.attempts) == (Kind.RESTART, 1)


def test_attempts_are_forgotten_once_it_is_healthy():
    assert said(only(app(attempts=2), world(hb=beat(ran_s=31)))) == (Kind.SETTLE, Reason.HEALTHY_AGAIN)
    assert said(only(app(attempts=2), world(hb=beat(ran_s=29)))) == (Kind.NOTHING, Reason.HEALTHY)


@pytest.mark.parametrize(("attempts", "words"), [(1, "runs and is healthy."), (2, "runs and is healthy again.")])
def test_only_what_failed_before_is_healthy_again(attempts, words):
    action = only(app(attempts=attempts), world(hb=beat(ran_s=31)))
    assert (action.kind, action.words) == (Kind.SETTLE, f"taxi/heavy generation 4 {words}")


@pytest.mark.parametrize("status", [DriverStatus.UNKNOWN, DriverStatus.FINISHED])
def test_what_was_stopped_on_purpose_is_started_without_a_word_of_silence(status):
    action = only(app(), world(status, beat(252, state="stopped")))
    assert said(action) == (Kind.START, Reason.WAS_STOPPED)
    assert (action.words, action.attempts) == ("taxi/heavy was stopped: starting generation 5.", 1)
    assert said(only(app(), world(DriverStatus.RUNNING, beat(1, state="stopped")))) == (Kind.WAIT, Reason.STOPPING)


def test_whoever_said_good_bye_has_nothing_to_write_to_a_store_that_comes_back():
    away = replace(world(DriverStatus.UNKNOWN, beat(46, state="stopped")), store_up_since=ago(5))
    assert said(only(app(), away)) == (Kind.START, Reason.WAS_STOPPED)
    soon = replace(world(DriverStatus.UNKNOWN, beat(44, state="stopped")), store_up_since=ago(5))
    assert said(only(app(), soon)) == (Kind.WAIT, Reason.STOPPING)


def test_a_silent_driver_whose_process_runs_is_killed_and_replaced_once_it_is_gone():
    action = only(app(), world(hb=beat(46)))
    assert said(action) == (Kind.KILL_THEN_START, Reason.HEARTBEAT_STALE)
    assert (action.handle, action.regardless) == ("h4", False)
    assert only(app(), world(hb=beat(121))).regardless


def test_silence_while_the_store_was_away_does_not_count():
    actual = replace(world(hb=beat(300)), store_up_since=ago(10))
    assert said(only(app(), actual)) == (Kind.NOTHING, Reason.HEALTHY)
    assert said(only(app(), replace(actual, store_up_since=ago(46)))) == (Kind.KILL_THEN_START, Reason.HEARTBEAT_STALE)


def test_a_new_version_is_launched_beside_the_old_one():
    action = only(app(version=7, attempts=5, launched_at=ago(1)), world(hb=beat(ran_s=0)))
    assert said(action) == (Kind.RESTART, Reason.VERSION_CHANGED)
    assert (action.generation, action.handle, action.release) == (5, None, None)


def test_another_node_is_a_hand_over_too():
    action = only(app(node="n2", moved=True, attempts=5, launched_at=ago(1)), world(hb=beat(ran_s=0)))
    assert said(action) == (Kind.RESTART, Reason.NODE_CHANGED)
    assert (action.generation, action.handle, action.release) == (5, None, None)
    assert action.words == "taxi/heavy should run on n2: handing over to generation 5."


@pytest.mark.parametrize("status", [DriverStatus.PENDING, DriverStatus.RUNNING])
def test_a_launch_that_did_not_come_up_on_its_node_is_ended_when_it_gets_another(status):
    action = only(app(node="n1", moved=True, launched_at=ago(200)), world(status))
    assert said(action) == (Kind.KILL_THEN_START, Reason.NODE_CHANGED)
    assert action.handle == "h4"


def test_no_heartbeat_within_the_launch_time_out_means_kill_and_retry():
    assert said(only(app(launched_at=ago(89)), world())) == (Kind.WAIT, Reason.STARTING)
    assert said(only(app(launched_at=ago(91)), world())) == (Kind.KILL_THEN_START, Reason.NO_HEARTBEAT_AFTER_START)


def test_a_hung_start_is_killed_even_while_the_next_launch_has_to_wait():
    action = only(app(launched_at=ago(91), attempts=9), world())
    assert said(action) == (Kind.KILL, Reason.NO_HEARTBEAT_AFTER_START)
    assert "in 209 s" in action.words


def test_a_submission_in_the_queue_is_waited_for_however_long():
    assert said(only(app(launched_at=ago(5000)), world(DriverStatus.PENDING))) == (Kind.WAIT, Reason.WAITING_FOR_RESOURCES)


@pytest.mark.parametrize("hb", [None, beat(500), beat(2, version=1)])
def test_nothing_is_launched_while_the_cluster_does_not_answer(hb):
    for row in (app(), app(handle=None), app(generation=0, handle=None, launched_at=None)):
        actual = replace(world(None, hb), reachable=False)
        assert said(only(row, actual)) == (Kind.WAIT, Reason.LAUNCHER_UNREACHABLE)


def test_a_cluster_that_forgot_a_driver_that_beats_changes_nothing():
    assert said(only(app(), world(DriverStatus.UNKNOWN, beat()))) == (Kind.NOTHING, Reason.HEALTHY)
    assert said(only(app(), world(DriverStatus.UNKNOWN, beat(46)))) == (Kind.RESTART, Reason.DRIVER_LOST)


def test_an_unrecorded_submission_is_adopted():
    stray = Stray(pipeline="taxi", application="heavy", generation=4, handle="found")
    for hb in (None, beat()):
        action = only(app(handle=None, launched_at=ago(20)), world(None, hb, strays=(stray,)))
        assert said(action) == (Kind.ADOPT, Reason.SUBMISSION_FOUND)
        assert (action.handle, action.generation) == ("found", 4)


def test_an_intent_without_a_driver_is_launched_anew_after_a_moment():
    row = app(handle=None, attempts=1, launched_at=ago(4))
    assert said(only(row, world(None))) == (Kind.WAIT, Reason.SUBMISSION_UNCERTAIN)
    row = app(handle=None, attempts=1, launched_at=ago(6))
    assert said(only(row, world(None, unidentified=1))) == (Kind.WAIT, Reason.SUBMISSION_UNCERTAIN)
    action = only(row, world(None))
    assert said(action) == (Kind.START, Reason.SUBMISSION_LOST)
    assert (action.generation, action.attempts) == (5, 2)
    assert said(only(app(handle=None, launched_at=ago(91)), world(None, unidentified=1))) == (Kind.START, Reason.SUBMISSION_LOST)


def test_a_stopping_driver_gets_its_grace_and_is_then_killed():
    row = app(running=False, desired_since=ago(59))
    assert said(only(row, world(hb=beat()))) == (Kind.WAIT, Reason.STOPPING)
    action = only(replace(row, desired_since=ago(61)), world(hb=beat()))
    assert (said(action), action.handle) == ((Kind.KILL, Reason.STOP_OVERDUE), "h4")
    assert said(only(row, world(DriverStatus.FINISHED, beat(state="stopped")))) == (Kind.NOTHING, Reason.STOPPED)
    assert only(row, world(DriverStatus.FINISHED, beat(state="stopped"))).release is None
    assert only(row, world(DriverStatus.FAILED, beat(state="running"))).release == 4
    assert said(only(row, world(DriverStatus.PENDING))) == (Kind.KILL, Reason.STOPPED_BEFORE_START)


def test_a_driver_that_said_good_bye_is_not_killed_before_its_process_ends():
    assert said(only(app(), world(hb=beat(5, state="failed")))) == (Kind.WAIT, Reason.STOPPING)
    assert said(only(app(), world(hb=beat(46, state="failed")))) == (Kind.KILL_THEN_START, Reason.HEARTBEAT_STALE)


@pytest.mark.parametrize(
    ("stray", "row", "reason"),
    [
        (("taxi", "heavy", 3), app(launched_at=ago(61)), Reason.SUPERSEDED),
        (("taxi", "heavy", 3), app(launched_at=ago(59)), None),
        (("taxi", "heavy", 9), app(), Reason.SUPERSEDED),
        (("taxi", "heavy", 4), app(), Reason.SUPERSEDED),
        (("taxi", "gone", 4), app(), Reason.UNDECLARED),
        (("taxi", "heavy", 4), app(running=False, handle=None), Reason.SUPERSEDED),
    ],
)
def test_strays_are_killed_unless_they_may_still_finish_their_batch(stray, row, reason):
    found = Stray(pipeline=stray[0], application=stray[1], generation=stray[2], handle="other")
    kills = [a for a in plan_streams([row], world(hb=beat(), strays=(found,)), NOON, POLICY) if a.kind is Kind.KILL]
    assert [(k.reason, k.handle) for k in kills] == ([(reason, "other")] if reason else [])


def test_the_recorded_driver_is_no_stray():
    found = Stray(pipeline="taxi", application="heavy", generation=4, handle="h4")
    assert said(only(app(), world(hb=beat(), strays=(found,)))) == (Kind.NOTHING, Reason.HEALTHY)


# ---- a driver that rehearses to take over ----


def rehearsing(**more: object) -> DesiredApplication:
    return app(planned=True, successor=5, successor_handle="h5", rehearses=True, **more)


def stray(generation: int, handle: str) -> Stray:
    return Stray(pipeline="taxi", application="heavy", generation=generation, handle=handle)


@pytest.mark.parametrize("recorded", ["h5", None])
def test_a_successor_is_no_stray_even_before_its_handle_is_recorded(recorded):
    row = replace(rehearsing(), successor_handle=recorded)
    assert said(only(row, world(hb=beat(), strays=(stray(5, "h5"),)))) == (Kind.NOTHING, Reason.HEALTHY)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (rehearsing(), stray(5, "another")),
        (rehearsing(), stray(6, "h5")),
        (replace(rehearsing(), planned=False, rehearses=False), stray(5, "h5")),
    ],
)
def test_what_is_not_the_successor_of_an_open_plan_is_killed(row, found):
    kill, _ = plan_streams([row], world(hb=beat(), strays=(found,)), NOON, POLICY)
    assert said(kill) == (Kind.KILL, Reason.SUPERSEDED)


def test_a_driver_that_dies_before_its_successor_takes_over_is_replaced_under_a_number_newer_than_both():
    action = only(rehearsing(), world(DriverStatus.FAILED, beat(3), strays=(stray(5, "h5"),)))
    assert said(action) == (Kind.RESTART, Reason.DRIVER_DIED)
    assert (action.generation, action.replaces, action.release) == (6, 4, 4)


def test_the_number_of_a_successor_that_was_withdrawn_is_not_given_again():
    action = only(app(successor=5, successor_handle="h5"), world(DriverStatus.FAILED, beat(3)))
    assert action.generation == 6


def test_where_a_plan_is_open_a_changed_node_is_left_to_it():
    moved = world(hb=beat())
    assert said(only(app(moved=True), moved)) == (Kind.RESTART, Reason.NODE_CHANGED)
    assert said(only(app(moved=True, planned=True), moved)) == (Kind.NOTHING, Reason.HEALTHY)


# ---- properties -----------------------------------------------------------------------------------------------------

seconds = st.floats(0, 700)
beats = st.builds(
    lambda age, ran, state, version: beat(age, ran_s=ran, state=state, version=version),
    seconds, seconds, st.sampled_from(["starting", "running", "stopping", "stopped", "failed", "fenced"]),
    st.sampled_from([None, 2, 3]),
)  # fmt: skip
rows = st.builds(
    lambda running, since, generation, handle, launched, attempts, name, moved, planned, successor: app(
        application=name, running=running, desired_since=ago(since), generation=generation, moved=moved and generation > 0,
        planned=planned, rehearses=planned and successor is not None, successor=successor,
        successor_handle=None if successor is None else f"stray-{name}-{successor}",
        handle=handle if generation else None, launched_at=ago(launched) if generation else None, attempts=attempts,
    ),
    st.booleans(), seconds, st.sampled_from([0, 4]), st.sampled_from([None, "h4"]), seconds, st.integers(0, 12),
    st.sampled_from(["heavy", "light"]), st.booleans(), st.booleans(), st.sampled_from([None, 3, 5]),
)  # fmt: skip
strays = st.builds(
    lambda name, generation: Stray(pipeline="taxi", application=name, generation=generation, handle=f"stray-{name}-{generation}"),
    st.sampled_from(["heavy", "light", "gone"]), st.integers(1, 6),
)  # fmt: skip


@st.composite
def worlds(draw):
    desired = draw(st.lists(rows, max_size=2, unique_by=lambda r: r.key))
    drivers, heartbeats = {}, {}
    for row in desired:
        if row.handle:
            drivers[row.key] = draw(st.sampled_from([s for s in DriverStatus if s is not DriverStatus.UNREACHABLE]))
        if row.generation and (hb := draw(st.none() | beats)):
            heartbeats[(*row.key, row.generation)] = hb
    return desired, Actual(
        reachable=draw(st.booleans()), store_up_since=ago(draw(seconds)), drivers=drivers, heartbeats=heartbeats,
        strays=tuple(draw(st.lists(strays, max_size=3, unique_by=lambda s: s.handle))), unidentified=draw(st.integers(0, 1)),
    )  # fmt: skip


def after(
    desired: list[DesiredApplication], actual: Actual, actions: tuple[StreamAction, ...]
) -> tuple[list[DesiredApplication], Actual]:
    """The state that carrying out the actions leads to: kills end what they name, launches run and have not spoken yet."""
    table = {row.key: row for row in desired}
    drivers, gone = dict(actual.drivers), set()
    for action in actions:
        key = (action.pipeline, action.application)
        if action.kind in (Kind.KILL, Kind.KILL_THEN_START):
            gone.add(action.handle)
            if key in table and table[key].handle == action.handle:
                drivers[key] = DriverStatus.FAILED
        if action.kind.launches:
            table[key] = replace(
                table[key],
                generation=action.generation,
                handle=f"new-{action.generation}",
                launched_at=NOON,
                attempts=action.attempts,
                moved=False,
            )
            drivers[key] = DriverStatus.RUNNING
        elif action.kind is Kind.ADOPT:
            table[key] = replace(table[key], handle=action.handle)
            drivers[key] = DriverStatus.RUNNING
        elif action.kind is Kind.SETTLE:
            table[key] = replace(table[key], attempts=0)
    strays = tuple(s for s in actual.strays if s.handle not in gone)
    return list(table.values()), replace(actual, drivers=drivers, strays=strays)


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_never_two_launches_and_never_one_that_was_not_asked_for(case):
    desired, actual = case
    launches = [a for a in plan_streams(desired, actual, NOON, POLICY) if a.kind.launches]
    assert len({(a.pipeline, a.application) for a in launches}) == len(launches)
    table = {row.key: row for row in desired}
    for action in launches:
        row = table[(action.pipeline, action.application)]
        assert row.running
        assert actual.reachable
        assert action.generation == max(row.generation, row.successor or 0) + 1
        assert action.replaces == row.generation


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_every_application_gets_exactly_one_word_besides_its_strays(case):
    desired, actual = case
    stray_handles = {s.handle for s in actual.strays}
    spoken = [
        a for a in plan_streams(desired, actual, NOON, POLICY) if not (a.kind is Kind.KILL and a.handle in stray_handles)
    ]  # fmt: skip
    assert sorted((a.pipeline, a.application) for a in spoken) == sorted(row.key for row in desired)


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_planning_again_after_acting_asks_for_no_launch_and_no_repeated_kill(case):
    desired, actual = case
    first = plan_streams(desired, actual, NOON, POLICY)
    second = plan_streams(*after(desired, actual, first), NOON, POLICY)
    acted = {(a.pipeline, a.application) for a in first if a.kind.launches}
    again = [a for a in second if a.kind.launches and (a.pipeline, a.application) in acted]
    assert again == []
    killed = {a.handle for a in first if a.kind in (Kind.KILL, Kind.KILL_THEN_START)}
    assert [a for a in second if a.kind is Kind.KILL and a.handle in killed] == []
    third = plan_streams(*after(*after(desired, actual, first), second), NOON, POLICY)
    assert [a for a in third if a.kind not in (Kind.NOTHING, Kind.WAIT)] == []


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_a_successor_of_an_open_plan_is_never_killed_as_a_stray(case):
    desired, actual = case
    own = {row.successor_handle for row in desired if row.rehearses} - {row.handle for row in desired}
    assert own.isdisjoint(a.handle for a in plan_streams(desired, actual, NOON, POLICY))


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_same_state_same_plan(case):
    desired, actual = case
    assert plan_streams(desired, actual, NOON, POLICY) == plan_streams(desired[::-1], actual, NOON, POLICY)
