"""Cycles of Quality of Data beside a plan to rescale: its pause is nobody's fault, and its size is what should be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from spillway.model.window import Window
from spillway.observe.window import read_window
from spillway.observe.world import observation
from spillway.policy import Policy

from tests.support.cycles import RUSH, Cycle

pytestmark = pytest.mark.integration
POLICY = Policy()
BEHIND = ("rec", "behind")


def a_plan(cycle: Cycle, asked_s: float, *, ended_s: float | None = None, to: int = 2, **steps: float) -> int:
    """A plan for the application `behind`, which has one executor; `steps`: when each was done, in seconds of the recording."""

    def at(seconds: float | None) -> Any:
        return None if seconds is None else cycle.start + timedelta(seconds=seconds)

    [(number,)] = cycle.sql(
        "insert into spillway.rescale_plan (pipeline, application, operator, kind, state, executors_from, executors_to,"
        " buckets_from, buckets_to, node_from, node_to, checkpoint_from, checkpoint_to, generation_from, requested_by,"
        " requested_at, ended_at)"
        " values ('rec', 'behind', 'heavy', 'handover', %s, 1, %s, 8, 8, 'n2', 'n1', 0, 0, 1, 'test', %s, %s) returning id",
        "running" if ended_s is None else "done", to, at(asked_s), at(ended_s),
    )  # fmt: skip
    for ordinal, (step, seconds) in enumerate(steps.items()):
        cycle.sql(
            "insert into spillway.rescale_step (plan, ordinal, step, state, began_at, ended_at)"
            " values (%s, %s, %s, 'done', %s, %s)",
            number, ordinal, step, at(asked_s), at(seconds),
        )  # fmt: skip
    return int(number)


def seen(cycle: Cycle, number: int) -> Window:
    return read_window(cycle.conn, cycle.window(number), POLICY)


def executors(window: Window) -> tuple[int, int]:
    return next((o.declared, o.measured) for o in window.operators if o.operator == "heavy")


Begin = Callable[..., Cycle]


# ---- how many instances there should be ----


def test_what_a_plan_has_made_is_what_should_be_there(begin: Begin) -> None:
    cycle = begin()
    cycle.sql("update spillway.application set executors = 2 where application = 'behind'")
    assert executors(seen(cycle, RUSH)) == (2, 1)
    a_plan(cycle, 15.0 * RUSH + 30, ended_s=15.0 * RUSH + 60)
    assert executors(seen(cycle, RUSH)) == (1, 1), "before the plan there was to be one"
    assert executors(seen(cycle, RUSH + 3)) == (1, 1), "while it is under way, one or two"
    assert executors(seen(cycle, RUSH + 6)) == (2, 1)


def test_an_instance_too_many_is_no_mistake_while_a_plan_is_under_way(begin: Begin) -> None:
    cycle = begin()
    cycle.sql(
        "update spillway.executor_cpu set executor = '1' where spark_app = 'rec-2' and extract(second from at)::int % 10 < 5"
    )
    assert seen(cycle, RUSH).starting("rec") == []
    cycle.sql("update spillway.executor_cpu set executor = '0' where spark_app = 'rec-2'")
    a_plan(cycle, 15.0 * RUSH - 100, to=4)
    assert executors(seen(cycle, RUSH)) == (1, 1)


# ---- the pause ----


def test_a_cycle_that_saw_a_change_holds_what_is_in_force(begin: Begin) -> None:
    cycle = begin()
    cycle.run(RUSH)
    before = cycle.keeps()
    assert before["front:heavy"] < 1.0, "it is a rush"
    told = 15.0 * (RUSH + 1) + 5
    a_plan(cycle, told - 40, launch=told - 30, cutover=told, verify=told + 4)
    said = cycle.run(RUSH + 1)[0].said
    assert said == ("behind of rec is being rescaled",)
    _, status, reason, output = cycle.decision(RUSH + 1)
    assert (status, reason, output) == ("held", "behind of rec is being rescaled", None)
    assert cycle.keeps() == before
    cycle.run(RUSH + 2)
    assert cycle.decision(RUSH + 2)[1] == "published", "it had settled when this window began"


def test_a_gate_does_not_refuse_what_a_change_has_distorted(begin: Begin) -> None:
    cycle = begin()
    cycle.run(RUSH)
    told = 15.0 * (RUSH + 1) + 5
    a_plan(cycle, told - 40, cutover=told)
    window = cycle.window(RUSH + 1)
    cycle.sql("update spillway.executor_cpu set cpu_pct = 900 where spark_app = 'rec-2' and at > %s", window.start)
    assert cycle.run(RUSH + 1)[0].refused == ()
    cycle.sql("delete from spillway.rescale_plan")
    assert cycle.run(RUSH + 2)[0].refused != ()


def test_while_it_rehearses_everything_is_decided_but_the_application_stays(begin: Begin) -> None:
    cycle = begin()
    a_plan(cycle, 15.0 * RUSH - 60, launch=15.0 * RUSH - 30)
    window = seen(cycle, RUSH)
    assert (window.rescaled("rec"), window.unmoved) == ([], {BEHIND})
    world = observation(window, ["rec"], {}, {}, POLICY)
    assert {o.name: {i.movable for i in o.instances} for o in world.operators} == {
        "rec/front": {True}, "rec/light": {True}, "rec/heavy": {False},
    }  # fmt: skip
    cycle.run(RUSH)
    assert cycle.decision(RUSH)[1] == "published"


@pytest.mark.parametrize(("after_s", "held"), [(5.0, True), (POLICY.qod_warm_up_s - 1, True), (POLICY.qod_warm_up_s + 1, False)])
def test_a_change_that_does_not_settle_is_not_waited_for_forever(begin: Begin, after_s: float, held: bool) -> None:
    cycle = begin()
    a_plan(cycle, 60.0, cutover=15.0 * (RUSH + 1) - after_s)
    assert seen(cycle, RUSH).rescaled("rec") == (["behind"] if held else [])


def test_a_change_is_prepared_until_it_is_told_or_given_up(begin: Begin) -> None:
    cycle = begin()
    told = 15.0 * RUSH + 5
    plan = a_plan(cycle, told - 30, ended_s=told + 20, launch=told - 20, cutover=told)
    found = [seen(cycle, RUSH + n).preparing for n in (-3, -2, -1, 0, 1)]
    assert found == [frozenset(), {BEHIND}, {BEHIND}, frozenset(), frozenset()]
    cycle.sql("delete from spillway.rescale_step where plan = %s and step = 'cutover'", plan)
    assert seen(cycle, RUSH).preparing == {BEHIND}
    assert seen(cycle, RUSH + 1).preparing == frozenset(), "it has ended"


def test_a_plan_that_nobody_carries_out_holds_nothing_down(begin: Begin) -> None:
    """It was only asked for, or has gone on for longer than anything that is prepared takes CPU."""
    cycle = begin()
    plan = a_plan(cycle, 15.0 * (RUSH + 1) - POLICY.rescale_hold_s, launch=15.0 * RUSH)
    assert [bool(seen(cycle, RUSH + n).preparing) for n in (-1, 0, 1)] == [True, True, False]
    cycle.sql("delete from spillway.rescale_step where plan = %s", plan)
    assert not seen(cycle, RUSH).preparing, "nobody has begun it"


def test_a_plan_that_failed_and_went_back_has_settled(begin: Begin) -> None:
    cycle = begin()
    told = 15.0 * RUSH - 20
    a_plan(cycle, told - 30, ended_s=told + 10, cutover=told)
    assert seen(cycle, RUSH - 1).rescaled("rec") == ["behind"]
    assert seen(cycle, RUSH).rescaled("rec") == []


# ---- afterwards ----


def lag_of(window: Window, consumer: str) -> float | None:
    world = observation(window, ["rec"], {}, {}, POLICY)
    return next(e.lag for e in world.edges if e.consumer == consumer)


def test_what_a_pause_has_left_is_drained_later(begin: Begin) -> None:
    cycle = begin()
    told = 15.0 * RUSH - 30
    window = seen(cycle, RUSH)
    assert (lag_of(window, "rec/heavy") or 0) > 10_000
    a_plan(cycle, told - 30, ended_s=told + 8, cutover=told, verify=told + 4)
    after = seen(cycle, RUSH)
    assert (lag_of(after, "rec/heavy"), after.settling) == (0, {BEHIND})
    assert lag_of(after, "rec/light") == lag_of(window, "rec/light"), "of the others nothing is forgiven"
    assert next(e.lag for e in after.edges if e.consumer == "heavy") == next(e.lag for e in window.edges if e.consumer == "heavy")
    later = seen(cycle, RUSH + 3)
    assert (lag_of(later, "rec/heavy") or 0) > 10_000, "one that stays is no longer of the pause"


@pytest.mark.parametrize(
    ("to", "instead", "first"), [(2, "done", True), (1, "done", False), (2, "undone", False), (2, "failed", False)]
)
def test_only_the_first_window_after_more_executors_may_raise_at_once(begin: Begin, to: int, instead: str, first: bool) -> None:
    cycle = begin()
    told = 15.0 * (RUSH - 1) - 11
    plan = a_plan(cycle, told - 30, ended_s=told + 8, to=to, cutover=told, verify=told + 4)
    step = "verify" if instead == "failed" else "cutover"
    cycle.sql("update spillway.rescale_step set state = %s where plan = %s and step = %s", instead, plan, step)
    found = [seen(cycle, RUSH + n) for n in (-2, -1, 0, 1)]
    assert [w.rescaled("rec") for w in found] == [["behind"], [], [], []]
    assert [w.enlarged for w in found] == [frozenset(), {BEHIND} if first else frozenset(), frozenset(), frozenset()]


@pytest.mark.parametrize(("rehearsed", "batches", "warming"), [(1, 3, False), (1, 0, True), (2, 3, True), (None, 3, True)])
def test_a_driver_that_has_rehearsed_does_not_warm_up(begin: Begin, rehearsed: int | None, batches: int, warming: bool) -> None:
    """It is new, and its query gets less than it is promised. One that played nothing is cold, and if the successor died, so is
    whoever was launched in its place."""
    cycle = begin()
    cycle.sql("update spillway.heartbeat set started_at = %s where application = 'behind'", cycle.window(RUSH).start)
    cycle.sql("update spillway.edge_metric set rows_kept = rows_kept / 50 where edge = 'front:heavy'")
    assert any(o.warming for o in seen(cycle, RUSH).operators if o.application == "behind"), "without a plan it is cold"
    ago = 15.0 * RUSH
    plan = a_plan(cycle, ago - 60, ended_s=ago - 1, launch=ago - 30, rehearsed=ago - 4, cutover=ago - 2)
    cycle.sql("update spillway.rescale_plan set generation_to = %s where id = %s", rehearsed, plan)
    cycle.sql(
        "update spillway.rescale_step set evidence = jsonb_build_object('batches', %s) where plan = %s and step = 'rehearsed'",
        batches, plan,
    )  # fmt: skip
    assert any(o.warming for o in seen(cycle, RUSH).operators if o.application == "behind") is warming
    a_plan(cycle, ago)
    assert any(o.warming for o in seen(cycle, RUSH).operators if o.application == "behind") is warming, "whatever is asked next"


# ---- whose CPU it is ----


def test_what_rehearses_does_not_count_as_used(begin: Begin) -> None:
    cycle = begin()
    before = {n.node: n.cpu for n in seen(cycle, RUSH).nodes}
    cycle.sql(
        "insert into spillway.executor_cpu (node, spark_app, executor, at, cpu_pct, rss_bytes, window_s, written_at)"
        " select node, 'rehearses', '0', at, 5, 1, window_s, written_at from spillway.node_metric where node = 'n1'"
    )
    assert {n.node: n.cpu for n in seen(cycle, RUSH).nodes} == before, "whoever he is"
    a_plan(cycle, 15.0 * RUSH - 30, launch=15.0 * RUSH - 20)
    after = {n.node: n.cpu for n in seen(cycle, RUSH).nodes}
    assert (before["n1"] - after["n1"], before["n2"] - after["n2"]) == (pytest.approx(5.0), 0.0)


def test_nor_does_the_driver_that_rehearses_wherever_it_is(begin: Begin) -> None:
    """It holds no lease, so it goes by its name; that of the driver that runs counts."""
    cycle = begin()
    before = {n.node: n.cpu for n in seen(cycle, RUSH).nodes}
    for node, generation, cpu in (("n1", 2, 4.0), ("n2", 2, 3.0), ("n2", 1, 2.0)):
        cycle.sql(
            "insert into spillway.executor_cpu"
            " (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s, written_at)"
            " select node, %s, 'driver', 'rec', 'behind', at, %s, 1, window_s, written_at"
            " from spillway.node_metric where node = %s",
            f"spillway:rec:behind:{generation}", cpu, node,
        )  # fmt: skip
    plan = a_plan(cycle, 15.0 * RUSH - 30, launch=15.0 * RUSH - 20)
    assert {n.node: n.cpu for n in seen(cycle, RUSH).nodes} == before, "it has no number yet"
    cycle.sql("update spillway.rescale_plan set generation_to = 2 where id = %s", plan)
    after = {n.node: n.cpu for n in seen(cycle, RUSH).nodes}
    assert {node: before[node] - cpu for node, cpu in after.items()} == {"n1": pytest.approx(4.0), "n2": pytest.approx(3.0)}
