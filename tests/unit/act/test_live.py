"""Which window a run of the DAG stands for, and in whose name it decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from spillway.act.live import OutOfOrder, in_order, run_of, window_of
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


def before(**values):
    found = dag_run("backfill", NOON - STEP, NOON, **values)
    return SimpleNamespace(get_previous_dagrun=lambda: found)


def test_a_replay_needs_the_window_before_to_be_done():
    window = window_of(dag_run("backfill"), 15.0)
    for state in ("running", "queued"):
        with pytest.raises(OutOfOrder, match=f"is {state}, .* --max-active-runs 1"):
            in_order(before(state=state), window)
    for state in ("success", "failed"):
        in_order(before(state=state), window)
    in_order(SimpleNamespace(get_previous_dagrun=lambda: None), window)
    live = dag_run("scheduled", NOON - STEP, NOON)
    in_order(SimpleNamespace(get_previous_dagrun=lambda: live), window)
    earlier = dag_run("backfill", NOON - 3 * STEP, NOON - 2 * STEP)
    in_order(SimpleNamespace(get_previous_dagrun=lambda: earlier), window)


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


def test_a_refused_decision_kept_nothing_of_its_own():
    found = compare([decided(NOON, 0.5, status="refused")], [decided(NOON, 0.5)])
    assert [(d.was, d.would_be) for d in found.differences] == [(None, 0.5)]


def test_a_figure_names_pipelines_only_where_there_are_several():
    one = samples(NOON, [decided(NOON, 0.5)], [decided(NOON + STEP, 0.7)])
    assert {s.name for s in one} == {"union:heavy", "heavy"}
    assert {s.run for s in one} == {"as it was", "replayed", ""}
    two = samples(NOON, [], [decided(NOON, 0.5), decided(NOON, 0.5, pipeline="ads")])
    assert {s.name for s in two} == {"taxi/union:taxi/heavy", "ads/union:ads/heavy", "taxi/heavy", "ads/heavy"}
