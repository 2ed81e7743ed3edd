"""Plans that take too long, or whose change does not hold: what was ordered is taken back, on a real Postgres."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from spillway.decide.streams import Kind
from spillway.store import rescale

from tests.support.plans import BEFORE, WANTED, streams
from tests.support.rescaling import STATE, Line

pytestmark = pytest.mark.integration


def _wait_for_uptime(line: Line, seconds: float) -> None:
    """Ages count only while the server was up."""
    line.sql("select pg_sleep(greatest(0, %s - extract(epoch from now() - pg_postmaster_start_time())))", seconds)


@pytest.mark.parametrize(
    ("kind", "step", "shape"),
    [
        ("executors", "scaled", {"obeys": False}),
        ("restart", "stopped", {"obeys": False}),
        ("restart_buckets", "started", {"fails": "the state cannot be repartitioned"}),
    ],
)
def test_a_driver_that_does_not_do_as_told_has_its_order_taken_back(
    a_line: Callable[..., Line], kind: str, step: str, shape: dict[str, Any]
) -> None:
    line = a_line(rescale_scale_timeout_s=1.0, rescale_stop_timeout_s=1.0, rescale_start_timeout_s=1.0)
    line.ask(**WANTED[kind])
    driver = line.drivers[0]
    for name, value in shape.items():
        setattr(driver, name, value)
    line.carry(until=step)
    for _ in range(12):
        line.late()
        line.advance()
        line.tick()
        if line.plan().state == "rolling_back":
            break
    assert line.plan().state == "rolling_back", line.plan()
    driver.obeys, driver.fails = True, None
    back = line.carry()
    assert back.state == "rolled_back", back
    assert (line.application(), line.state()[:2]) == BEFORE
    states = {s.step: s.state for s in back.steps}
    assert (states["validate"], states["order"], states[step]) == ("done", "undone", "failed")
    assert line.events()[-1] == "rescale_failed"


def test_a_step_between_two_states_is_given_its_time_three_times(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_stop_timeout_s=1.0)
    line.ask(**WANTED["restart"])
    line.drivers[0].obeys = False
    line.carry(until="stopped")
    seen = []
    for _ in range(3):
        line.late()
        line.advance()
        plan = line.plan()
        seen.append((plan.state, next(s.attempts for s in plan.steps if s.step == "stopped")))
    assert seen == [("running", 2), ("running", 3), ("rolling_back", 3)]


@pytest.mark.parametrize(("kind", "stuck"), [("handover", "cloning"), ("shadow", "repartitioning"), ("shadow", "catching_up")])
def test_a_successor_that_gets_nowhere_is_withdrawn(a_line: Callable[..., Line], kind: str, stuck: str) -> None:
    line = a_line(rescale_rehearse_timeout_s=1.0, rescale_repartition_timeout_s=1.0, rescale_catch_up_timeout_s=1.0)
    line.ask(**WANTED[kind])
    line.cluster.shape = {"stuck_at": stuck}
    for _ in range(9):
        line.advance()
        line.tick()
    at = line.plan().step
    assert at == {"cloning": "rehearsed", "repartitioning": "repartitioned", "catching_up": "caught_up"}[stuck]
    line.late()
    back = line.carry()
    assert back.state == "rolled_back", back
    assert "not within" in back.detail
    assert "has withdrawn" in back.detail
    assert (line.application(), line.state()) == (BEFORE[0], (0, 8, 0))
    assert [d.over for d in line.drivers] == [None, "stopped"]


@pytest.mark.parametrize("dies_at", ["starting", "cloning", "catching_up", "ready"])
def test_a_successor_that_dies_before_it_takes_over_ends_the_plan(a_line: Callable[..., Line], dies_at: str) -> None:
    line = a_line(heartbeat_s=0.5)
    line.ask(**WANTED["handover"])
    line.cluster.shape = {"dies_at": dies_at}
    for _ in range(8):
        line.advance()
        line.tick()
    line.sql("update spillway.successor set at = at - interval '3 seconds', launched_at = launched_at - interval '3 seconds'"
             " where pipeline = %s", line.name)  # fmt: skip
    back = line.carry()
    assert (back.state, line.application()) == ("rolled_back", BEFORE[0]), back
    assert "has ended" in back.detail


def test_a_successor_that_does_not_withdraw_is_killed(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_rehearse_timeout_s=1.0, stop_timeout_s=5.0)
    line.ask(**WANTED["handover"])
    line.cluster.shape = {"stuck_at": "cloning"}
    line.carry(until="rehearsed")
    line.drivers[-1].deaf = True
    line.late()
    line.advance()
    assert line.plan().state == "rolling_back"
    _wait_for_uptime(line, 6.0)
    line.late(10.0)
    assert "it is killed" in line.advance()[0].words
    assert line.drivers[-1].over == "killed"
    assert line.carry().state == "rolled_back"


def test_a_launch_that_is_refused_ends_the_plan(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.cluster.refuses = "the cluster has no node n2."
    back = line.carry()
    assert back.state == "rolled_back"
    assert "the cluster has no node n2" in back.detail


def test_while_the_cluster_is_away_a_launch_waits(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.cluster.away = True
    for _ in range(4):
        line.advance()
        line.tick()
    assert line.plan().step == "launch"
    line.cluster.away = False
    assert line.carry().state == "done"
    assert len(line.specs) == 2


@pytest.mark.parametrize("kind", ["handover", "shadow"])
def test_a_launch_lets_shedding_work_off_what_waits(a_line: Callable[..., Line], kind: str) -> None:
    """What starts takes the CPU that the operator needs for that."""
    line = a_line(rescale_calm_s=60.0)
    line.sql("update spillway.pipeline set mode = 'apply' where pipeline = %s", line.name)
    _behind(line, 25)
    line.ask(**WANTED[kind])
    waits = line.carry(passes=8)
    assert (waits.step, len(line.specs)) == ("launch", 1)
    assert next(s for s in waits.steps if s.step == "launch").detail == (
        "25 rows wait for count, more than its last batch of 20: shedding comes first"
    )
    _behind(line, 20)
    assert line.carry().state == "done"


@pytest.mark.parametrize(("mode", "calm_s"), [("advise", 60.0), ("off", 60.0), ("apply", 0.2)])
def test_a_launch_waits_only_for_shedding_and_not_for_long(a_line: Callable[..., Line], mode: str, calm_s: float) -> None:
    line = a_line(rescale_calm_s=calm_s)
    line.sql("update spillway.pipeline set mode = %s where pipeline = %s", mode, line.name)
    _behind(line, 10_000)
    line.ask(**WANTED["handover"])
    assert line.carry().state == "done", "what cannot be worked off is why it is rescaled"


def _behind(line: Line, rows: int) -> None:
    """From now on every batch leaves so many rows behind."""
    commit = type(line).batch

    def batch(generation: int) -> None:
        commit(line, generation)
        line.job(
            "insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read, rows_kept,"
            " keep, keep_source, lag_rows) select pipeline, operator, %s, checkpoint, batch_id, ended_at, 20, 20, 1.0,"
            " 'default', %s from spillway.batch_metric where pipeline = %s and checkpoint = %s and batch_id = %s",
            f"{line.name}.in:count", rows, line.name, line.checkpoint, line.batch_id,
        )  # fmt: skip

    line.batch = batch  # type: ignore[method-assign]
    line.tick()


def test_a_successor_that_never_comes_to_run_after_the_cut_over_is_healed_by_streams_and_the_plan_goes_on(line: Line) -> None:
    line.ask(**WANTED["handover"])
    line.carry(until="cutover")
    line.advance()
    assert line.plan().step == "taken_over"
    line.drivers[-1].kill()
    line.tick()
    [action] = streams(line)
    assert (action.kind, action.generation) == (Kind.RESTART, 3)
    assert line.carry().state == "done"
    assert line.application() == (3, "n2", 3)


def test_who_does_not_come_up_on_the_other_node_at_all_goes_back(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_take_over_timeout_s=1.0)
    line.ask(**WANTED["handover"])
    line.carry(until="cutover")
    line.advance()
    line.drivers[-1].kill()
    for _ in range(3):
        line.late()
        line.advance()
    assert line.plan().state == "rolling_back"
    for _ in range(6):
        line.advance()
        streams(line)
        line.tick()
    back = line.plan()
    assert (back.state, line.application()) == ("rolled_back", (3, "n1", 2)), back


def test_a_shadow_does_not_go_back_to_a_state_that_is_older_than_what_was_written(a_line: Callable[..., Line]) -> None:
    line = a_line()
    line.ask(**WANTED["shadow"])
    line.carry(until="digest")
    line.digest(after=[(bucket, 1, 1) for bucket in range(16)])
    failed = line.carry()
    assert failed.state == "failed"
    assert "state_rows_to_be_equal" in failed.detail and "its 16 buckets stay" in failed.detail
    assert line.state() == (1, 16, 0)


@pytest.mark.parametrize(("kind", "ends"), [("executors", "rolled_back"), ("restart", "rolled_back"), ("handover", "failed")])
def test_state_that_differs_takes_a_change_back(line: Line, kind: str, ends: str) -> None:
    """All that can be taken back: where another checkpoint was gone on from, what was written since is in no other."""
    line.ask(**WANTED[kind])
    line.carry(until="digest")
    line.digest(after=[*STATE[:-1], (7, 107, 4)])
    for _ in range(8):
        line.advance()
        line.tick()
        streams(line)
    back = line.plan()
    assert back.state == ends, back
    assert ("its state stays as it is in checkpoint 1" in back.detail) == (ends == "failed")
    assert "state_checksum_to_be_equal" in back.detail
    assert "state_rows_to_be_equal" not in back.detail
    assert line.application()[1:] == BEFORE[0][1:]


def test_state_that_cannot_be_counted_takes_nothing_back(line: Line) -> None:
    line.ask(**WANTED["executors"])
    line.carry(until="digest")
    line.digest = lambda after=None: None  # type: ignore[method-assign,assignment]
    plan = line.plan()
    rescale.note(line.conn, plan, plan.steps[-2], "", {"tries": 3, "error": "no memory"})
    line.conn.commit()
    failed = line.carry()
    assert (failed.state, line.application()[2]) == ("failed", 4)
    assert "the state of count was not compared: no memory" in failed.detail


@pytest.mark.parametrize(("shift", "rule"), [(5, "offsets_without_gap"), (-5, "offsets_without_overlap")])
def test_offsets_that_do_not_follow_take_a_change_back(line: Line, shift: int, rule: str) -> None:
    line.ask(**WANTED["executors"])
    line.carry(until="verify")
    line.read += shift
    back = line.carry()
    assert back.state == "rolled_back"
    assert rule in back.detail
    assert next(s for s in back.steps if s.step == "verify").evidence["broken"]


def test_batches_that_stay_away_though_rows_arrive_take_a_change_back(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_verify_timeout_s=1.0)
    line.ask(**WANTED["executors"])
    line.carry(until="verify")
    line.batch = lambda generation: None  # type: ignore[method-assign,assignment]
    for offset in (10, 500):
        line.job("insert into spillway.topic_metric (topic, partition, at, end_offset) values (%s, 0, clock_timestamp(), %s)",
                 f"{line.name}.in", offset)  # fmt: skip
    line.late()
    back = line.carry()
    assert back.state == "rolled_back"
    assert "first_batches_to_commit" in back.detail


@pytest.mark.parametrize(("kind", "ends"), [("shadow", "rolled_back"), ("handover", "done")])
def test_a_shadow_does_not_take_over_where_rows_were_shed_while_it_followed(line: Line, kind: str, ends: str) -> None:
    """It repeats batches by the keeps of now; one that goes on from the same checkpoint repeats nothing."""
    line.ask(**WANTED[kind])
    line.carry(until="cutover")
    line.job(
        "insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read, rows_kept, keep,"
        " keep_source) values (%s, 'count', 'shed', 0, 999, clock_timestamp(), 10, 5, 0.5, 'setting')", line.name,
    )  # fmt: skip
    ended = line.carry()
    assert ended.state == ends
    if kind == "shadow":
        assert "shed kept 0.5 of its rows meanwhile, which a shadow cannot repeat" in ended.detail
        assert (line.application(), line.state()[:2]) == BEFORE
    else:
        told = next(s.detail for s in ended.steps if s.step == "cutover")
        assert told.endswith("and loads the state anew: shed kept 0.5 of its rows meanwhile")
        assert (ended.checkpoint_to, line.state()[0], line.checkpoint) == (0, 0, 0)
        assert line.ask(kind="shadow", buckets=4).checkpoint_to == 2, "a number is never given again"


def test_a_hand_over_loads_the_state_where_rows_are_about_to_be_shed(line: Line) -> None:
    """No batch has told yet, but what follows may have repeated one by the new keep."""
    line.ask(**WANTED["handover"])
    line.carry(until="cutover")
    _sheds(line)
    ended = line.carry()
    assert (ended.state, ended.checkpoint_to, line.state()[0]) == ("done", 0, 0)
    assert "is to keep less than all of its rows" in next(s.detail for s in ended.steps if s.step == "cutover")


def test_a_hand_over_goes_on_from_what_followed(line: Line) -> None:
    line.ask(**WANTED["handover"])
    ended = line.carry()
    assert (ended.state, ended.checkpoint_to, line.state()[0], line.checkpoint) == ("done", 1, 1, 1)
    assert line.ask(kind="handover", node="n1").checkpoint_to == 2


def test_a_hand_over_that_could_not_follow_goes_on_from_where_it_runs(line: Line) -> None:
    line.cluster.shape = {"follows": False}
    line.ask(**WANTED["handover"])
    ended = line.carry()
    assert (ended.state, ended.checkpoint_to, line.state()[0]) == ("done", 0, 0)
    assert next(s.detail for s in ended.steps if s.step == "cutover").endswith("loads the state anew: it could not follow")


def _sheds(line: Line) -> None:
    line.sql(
        "insert into spillway.edge_setting (pipeline, edge, keep, decision_id, issued_by) values (%s, %s, 0.5, 7, 'test')",
        line.name, f"{line.name}.in:count",
    )  # fmt: skip


@pytest.mark.parametrize("how", ["is to keep less", "kept less lately", "kept less long ago"])
def test_a_hand_over_does_not_begin_to_follow_where_rows_are_shed(line: Line, how: str) -> None:
    if how == "is to keep less":
        _sheds(line)
    else:
        line.job(
            "insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read, rows_kept,"
            " keep, keep_source) values (%s, 'count', 'shed', 0, 999, clock_timestamp() - %s * interval '1 s', 10, 5, 0.5,"
            " 'setting')", line.name, 300 if "long" in how else 5,
        )  # fmt: skip
    assert line.ask(**WANTED["handover"]).follows == ("long" in how)


def test_state_that_nobody_counts_in_time_takes_nothing_back(a_line: Callable[..., Line]) -> None:
    line = a_line(rescale_digest_timeout_s=1.0)
    line.digest = lambda after=None: None  # type: ignore[method-assign,assignment]
    line.ask(**WANTED["executors"])
    line.carry(until="digest")
    changed = line.application()
    line.late()
    failed = line.carry()
    assert (failed.state, line.application()) == ("failed", changed) and changed != BEFORE[0]
    assert "not within" in failed.detail


SHORTER = (
    "update spillway.partition_metric set end_offset = end_offset {} 5 where pipeline = %s and checkpoint = 0"
    " and batch_id = (select max(batch_id) from spillway.partition_metric where pipeline = %s and checkpoint = 0)"
)


def test_the_last_word_of_a_driver_that_was_taken_over_from_is_waited_for(line: Line) -> None:
    """It gives its lease back before its last metrics are written: as if it had got less far."""
    line.ask(**WANTED["shadow"])
    line.carry(until="verify")
    line.sql(SHORTER.format("-"), line.name, line.name)
    assert line.carry(passes=8).step == "verify"
    assert "may not have reported its last batch yet" in next(s for s in line.plan().steps if s.step == "verify").detail
    line.sql(SHORTER.format("+"), line.name, line.name)
    assert line.carry().state == "done"


def test_a_shadow_that_skipped_something_is_found_once_the_last_word_is_said(line: Line) -> None:
    line.ask(**WANTED["shadow"])
    line.carry(until="verify")
    line.sql(SHORTER.format("-"), line.name, line.name)
    _wait_for_uptime(line, 12.0)
    line.sql("update spillway.heartbeat set at = at - interval '1 hour' where pipeline = %s and generation = 1", line.name)
    failed = line.carry()
    assert (failed.state, line.state()[:2]) == ("failed", (1, 16))
    assert "offsets_without_gap" in failed.detail


def test_what_a_driver_that_was_killed_read_last_is_left_to_the_digest(line: Line) -> None:
    line.ask(**WANTED["shadow"])
    line.carry(until="cutover")
    line.drivers[0].kill()
    line.carry(until="verify")
    line.sql(SHORTER.format("-"), line.name, line.name)
    assert line.carry().state == "done"
