"""Which window a run of the DAG stands for, and in whose name it decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from types import SimpleNamespace

import pytest
from spillway.act import live
from spillway.act.cycle import Step
from spillway.act.live import CycleStopped, OutOfOrder, all_went_well, in_order, last_window, run_of, window_of
from spillway.act.replay import compare, intervals, samples
from spillway.policy import Policy, PolicyError
from spillway.store.decisions import Run, Stored

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
STEP = timedelta(seconds=15)


def dag_run(kind="scheduled", start=NOON, end=NOON + STEP, conf=None, state="running"):
    return SimpleNamespace(
        run_type=kind, data_interval_start=start, data_interval_end=end, conf=conf, run_after=NOON + timedelta(seconds=40),
        state=state,
    )  # fmt: skip


def test_a_scheduled_run_has_its_window():
    found = window_of(dag_run(), 15.0)
    assert (found.start, found.end, found.seconds) == (NOON, NOON + STEP, 15.0)


@pytest.mark.parametrize("kind", ["scheduled", "backfill"])
@pytest.mark.parametrize(("off_s", "cycle_s"), [(7.0, 15.0), (15.0, 20.0), (14.999, 15.0)])
def test_windows_stay_aligned_where_intervals_do_not(kind, off_s, cycle_s):
    """After the length of a cycle changed, or in a backfill from an odd second: every window once, and those of live cycles."""
    cycle, off = timedelta(seconds=cycle_s), timedelta(seconds=off_s)
    found = [window_of(dag_run(kind, NOON + off + n * cycle, NOON + off + (n + 1) * cycle), cycle_s) for n in range(4)]
    assert [(w.start, w.end) for w in found] == [(NOON + n * cycle, NOON + (n + 1) * cycle) for n in range(4)]


@pytest.mark.parametrize("cycle_s", [10.1, 12.3, 17.7, 299.9])
def test_windows_of_an_odd_length_follow_each_other(cycle_s):
    ends = [datetime.fromtimestamp(round(n * cycle_s, 6), UTC) for n in range(170_000_000, 170_000_200)]
    found = [last_window(cycle_s, end).end for end in ends]
    assert all(abs((one - other).total_seconds()) < 1e-5 for one, other in zip(found, ends, strict=True))


@pytest.mark.parametrize(("start", "end"), [(None, None), (NOON + STEP / 2, NOON + STEP * 1.5)])
def test_a_triggered_run_takes_the_last_aligned_window_that_was_over(start, end):
    found = window_of(dag_run("manual", start, end), 15.0)
    assert (found.start, found.end) == (NOON + timedelta(seconds=15), NOON + timedelta(seconds=30))


def test_only_a_backfill_is_a_replay():
    assert run_of(dag_run(), Policy()) == Run(origin="live", policy=Policy())
    assert run_of(dag_run("manual"), Policy()).live
    replay = run_of(dag_run("backfill", conf={"replay": "bolder", "policy": {"qod_raise_limit": 0.5}}), Policy())
    assert (replay.origin, replay.replay, replay.policy.qod_raise_limit) == ("replay", "bolder", 0.5)
    assert replay.digest != Run(policy=Policy()).digest
    assert run_of(dag_run("backfill"), Policy()).replay == "backfill"


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"qod_speed": 1}, "unknown policy fields qod_speed"), ({"qod_cycle_s": 1}, "qod_cycle_s is 1, but must be")],
)
def test_a_wrong_policy_of_a_backfill_is_explained(changed, message):
    with pytest.raises(PolicyError, match=message):
        run_of(dag_run("backfill", conf={"policy": changed}), Policy())


@pytest.mark.parametrize("given", ["bolder.yaml", ["qod_raise_limit"], [], "", 5, True])
def test_a_policy_of_a_backfill_that_is_no_mapping_is_refused(given):
    with pytest.raises(PolicyError) as told:
        run_of(dag_run("backfill", conf={"policy": given}), Policy())
    assert str(told.value) == (
        f"the backfill's configuration has the policy {given!r}, but it must be a mapping of policy fields, "
        'such as {"qod_raise_limit": 0.3}'
    )
    assert run_of(dag_run("backfill", conf={"policy": None}), Policy()).policy == Policy()


def check(monkeypatch, *, decided=False, run=None, **before):
    """Whether a window may go on from the one before, of which the replay `r` decided something or not."""
    asked = []

    def span(_, run, start, end):
        asked.append((run.replay, start, end))
        return ["a decision"] if decided else []

    monkeypatch.setattr("spillway.store.decisions.span", span)
    own = {"conf": {"replay": "r"}, "kind": "backfill"}
    previous = dag_run(**{"start": NOON - STEP, "end": NOON, **own, **before})
    in_order(None, run or dag_run(**own), previous, Policy())
    return asked


class State(str, Enum):  # noqa: UP042
    """As Airflow's client for tasks has it: its text is not its value."""

    SUCCESS, FAILED = "success", "failed"


@pytest.mark.parametrize("state", ["running", "queued"])
def test_a_replay_waits_for_nobody_and_goes_on_from_nothing(monkeypatch, state):
    with pytest.raises(OutOfOrder, match=f"is {state} and has decided nothing, .* --max-active-runs 1"):
        check(monkeypatch, state=state, decided=True)


def test_a_replay_needs_a_decision_on_the_window_before(monkeypatch):
    assert check(monkeypatch, state="success") == []
    assert check(monkeypatch, state=State.SUCCESS) == []
    with pytest.raises(CycleStopped, match="decide failed"):
        all_went_well({"observe": State.SUCCESS, "decide": State.FAILED})
    assert check(monkeypatch, state="failed", decided=True) == [("r", NOON - STEP, NOON)], "a gate refused a pipeline"
    with pytest.raises(OutOfOrder, match="is failed and has decided nothing"):
        check(monkeypatch, state="failed")


def test_windows_of_a_replay_are_compared_as_they_are_aligned(monkeypatch):
    odd = timedelta(seconds=7)
    with pytest.raises(OutOfOrder):
        run = dag_run("backfill", NOON + odd, NOON + STEP + odd, {"replay": "r"})
        check(monkeypatch, run=run, start=NOON - STEP + odd, end=NOON + odd)


def test_the_first_window_of_a_replay_needs_none_before(monkeypatch):
    in_order(None, dag_run("backfill"), None, Policy())
    check(monkeypatch, kind="scheduled")
    check(monkeypatch, conf={"replay": "another"})
    check(monkeypatch, conf={"replay": "r", "policy": {"qod_raise_limit": 0.5}})
    check(monkeypatch, start=NOON - 3 * STEP, end=NOON - 2 * STEP)


def test_a_run_is_as_red_as_its_tasks():
    fine = {"observe": "success", "decide": "success", "publish": "success"}
    all_went_well(fine)
    with pytest.raises(CycleStopped, match=r"^observe and publish failed for at least one pipeline"):
        all_went_well({**fine, "observe": "failed", "publish": "failed"})


# ---- cycles in one process ----


def stay(monkeypatch, connect, act, cycles):
    """So many cycles of 5 s with one step, and no waiting."""
    monkeypatch.setattr(live, "STEPS", {"observe": act})
    monkeypatch.setattr(live, "settle", lambda *_: None)
    passes = [NOON + n * STEP / 3 for n in range(cycles + 1)]
    clock = SimpleNamespace(now=lambda _: passes.pop(0), fromtimestamp=datetime.fromtimestamp)
    monkeypatch.setattr(live, "datetime", clock)
    monkeypatch.setattr(live.time, "sleep", lambda _: None)
    return live.resident(connect, Policy(qod_cycle_s=5.0), NOON + cycles * STEP / 3)


class Connection:
    def close(self):
        pass


def test_cycles_that_all_went_well_are_green(monkeypatch):
    assert stay(monkeypatch, Connection, lambda *_: Step(), 6) == 6


def test_a_refused_cycle_is_told_at_the_end_and_ends_nothing(monkeypatch):
    seen = []

    def act(*_):
        seen.append(1)
        return Step(refused=("the observation gate refused rec: no rate",))

    with pytest.raises(CycleStopped) as told:
        stay(monkeypatch, Connection, act, 3 * live.IN_A_ROW)
    assert len(seen) == 60
    assert str(told.value) == (
        "60 of 60 cycles failed or were refused (see the log, and `spillway why`), the last at observe: "
        "the observation gate refused rec: no rate"
    )


def test_cycles_that_stop_again_and_again_are_told_at_once(monkeypatch):
    seen = []

    def act(*_):
        seen.append(1)
        if len(seen) != 5:
            raise ArithmeticError("divided\nby zero")
        return Step()

    with pytest.raises(CycleStopped) as told:
        stay(monkeypatch, Connection, act, 100)
    assert len(seen) == 5 + live.IN_A_ROW
    assert str(told.value).startswith("24 of 25 cycles failed or were refused (")
    assert str(told.value).endswith(", the last at observe: ArithmeticError: divided by zero")


def test_cycles_in_one_process_outlive_the_store(monkeypatch):
    """Postgres is away for two cycles, and once more in the middle of one."""
    away, done, closed = [1, 2], [], []

    class Connection:
        def close(self):
            closed.append(self)

    def connect():
        if away:
            raise OSError(f"away {away.pop()}")
        return Connection()

    def act(conn, interval, run):
        done.append(conn)
        if len(done) == 2:
            away.append(3)
            raise OSError("gone")
        return Step()

    with pytest.raises(CycleStopped, match=r"^4 of 6 cycles failed or were refused .*, the last at connect: OSError: away 3$"):
        stay(monkeypatch, connect, act, 6)
    assert len(done) == 3, "two cycles without a store, two with it, one without, one with it again"
    assert closed == [done[0], done[2]] and done[0] is done[1]


# ---- replays beside what was ----


def decided(at: datetime, keep: float, status: str = "published", pipeline: str = "taxi", accuracy: float = 1.0) -> Stored:
    output = {
        "edges": [{"name": "union:heavy", "to": "heavy", "keep": keep, "reason": f"keeps {keep}"}],
        "queries": {"heavy": {"desired": accuracy, "floor": 0.3}},
    }
    return Stored(
        id=1, pipeline=pipeline, interval_start=at - STEP, interval_end=at, origin="live", replay="", mode="apply", version=1,
        policy="x", observation=1, status=status, reason="", output=output, expected=None, verified=None, decided_at=at,
        published_at=None,
    )  # fmt: skip


def test_windows_are_aligned_and_whole():
    found = list(intervals(NOON + timedelta(seconds=1), NOON + timedelta(seconds=61), 15.0))
    assert [i.start for i in found] == [NOON + STEP, NOON + 2 * STEP, NOON + 3 * STEP]
    assert list(intervals(NOON, NOON + timedelta(seconds=14), 15.0)) == []


def test_differences_are_those_of_windows_both_decided():
    was = [decided(NOON, 1.0), decided(NOON + STEP, 0.5, accuracy=0.5), decided(NOON + 2 * STEP, 0.5)]
    would = [decided(NOON, 1.0), decided(NOON + STEP, 0.7, accuracy=0.7), decided(NOON + 3 * STEP, 0.5)]
    found = compare(was, would)
    assert [(d.at, d.edge, d.was, d.would_be, d.reason) for d in found.differences] == [
        (NOON + STEP, "union:heavy", 0.5, 0.7, "keeps 0.7")
    ]
    assert (found.only_historic, found.only_replayed) == (1, 1)
    assert found.kept == {"taxi/heavy": (0.75, 0.85)}


@pytest.mark.parametrize("status", ["refused", "failed"])
def test_a_decision_that_came_to_nothing_kept_nothing_of_its_own(status):
    was = [decided(NOON, 0.5, status=status, accuracy=0.2), decided(NOON + STEP, 0.6, accuracy=0.6)]
    would = [decided(NOON, 0.5, accuracy=0.5), decided(NOON + STEP, 0.7, accuracy=0.7)]
    found = compare(was, would)
    assert [(d.was, d.would_be) for d in found.differences] == [(None, 0.5), (0.6, 0.7)]
    assert found.kept == {"taxi/heavy": (0.6, 0.7)}, "means are of windows that both decided"
    assert {(s.t_s, s.value) for s in samples(NOON, was, []) if s.run == "as it was"} == {(15.0, 0.6)}
    assert {(s.t_s, s.value) for s in samples(NOON, [], was) if s.run == "replayed"} == {(15.0, 0.6)}


def test_a_figure_names_pipelines_only_where_there_are_several():
    one = samples(NOON, [decided(NOON, 0.5)], [decided(NOON + STEP, 0.7)])
    assert {s.name for s in one} == {"union:heavy", "heavy"}
    assert {s.run for s in one} == {"as it was", "replayed", ""}
    two = samples(NOON, [], [decided(NOON, 0.5), decided(NOON, 0.5, pipeline="ads")])
    assert {s.name for s in two} == {"taxi/union:taxi/heavy", "ads/union:ads/heavy", "taxi/heavy", "ads/heavy"}
