"""The pure parts of carrying out a plan: offsets in a row, how long a change was felt, and the jobs on state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from spillway.act.rescale.facts import Finding, State
from spillway.act.rescale.observed import Times, observed
from spillway.act.rescale.offline import Job, application, hook
from spillway.act.rescale.offsets import chain
from spillway.act.rescale.steps import STEPS
from spillway.decide.rescale import STEPS as DECLARED
from spillway.store.errors import Refused
from spillway.store.rescale_world import repartition_refused

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def part(batch: int, start: int | None, end: int, checkpoint: int = 1, partition: int = 0) -> dict[str, object]:
    return {
        "edge": "in:count", "partition": partition, "checkpoint": checkpoint, "batch_id": batch, "start_offset": start,
        "end_offset": end,
    }  # fmt: skip


# ---- offsets ----


def test_batches_that_follow_each_other_have_neither_gap_nor_overlap():
    found = chain([part(7, 0, 10), part(8, 10, 20), part(9, 20, 20), part(10, 20, 25)])
    assert [(j["gap"], j["overlap"]) for j in found.joints] == [(0, 0)] * 3
    assert not found.broken


@pytest.mark.parametrize(("start", "gap", "overlap"), [(12, 2, 0), (9, 0, 1)])
def test_what_is_skipped_and_what_is_read_twice_is_found(start, gap, overlap):
    found = chain([part(7, 0, 10), part(8, start, 20)])
    assert [(j["subject"], j["gap"], j["overlap"]) for j in found.joints] == [("in:count[0]", gap, overlap)]
    assert found.broken


def test_partitions_are_looked_at_one_by_one_and_a_new_one_is_no_gap():
    rows = [part(7, 0, 10), part(7, 5, 9, partition=1), part(8, 10, 20), part(8, 9, 12, partition=1), part(8, 3, 4, partition=2)]
    assert len(chain(rows).joints) == 2


def test_where_a_batch_was_not_reported_nothing_is_said():
    found = chain([part(7, 0, 10), part(9, 20, 30)])
    assert (found.joints, found.unknown) == ((), 1)


def test_the_batch_of_a_repartition_reads_nothing_and_is_not_missed():
    found = chain([part(7, 0, 10), part(9, 10, 30)])
    assert [(j["gap"], j["overlap"]) for j in found.joints] == [(0, 0)]


def test_what_a_shadow_repeats_muted_is_left_out_until_it_gets_beyond():
    rows = [part(7, 0, 10), part(0, 0, 6, checkpoint=2), part(1, 6, 10, checkpoint=2), part(2, 10, 15, checkpoint=2)]
    assert not chain(rows, from_checkpoint=1).broken
    assert chain(rows).broken


def test_a_shadow_that_begins_behind_or_beyond_the_old_one_is_found():
    for start, what in ((12, "gap"), (8, "overlap")):
        [joint] = chain([part(7, 0, 10), part(2, start, 15, checkpoint=2)], from_checkpoint=1).joints
        assert joint[what] == 2


# ---- how long it was felt ----


def batch(end_s: float, read_to: int | None, rows: int = 10) -> dict[str, object]:
    return {"ended_at": at(end_s), "read_to": read_to, "input_rows": rows}


TIMES = Times(begun=at(5.5), changed=at(20), settled=at(30))


def test_the_pause_is_the_longest_gap_across_the_change_and_the_steady_one_the_median_before_the_plan():
    ends = [1, 2, 3, 4, 5, 7, 9, 12, 14, 16, 19.5, 23.5, 24.5, 25.5, 60]
    found = observed([batch(e, 10 * n) for n, e in enumerate(ends)], TIMES)
    assert found["steady_s"] == 1.0
    assert found["beside_s"] == 3.5
    assert found["pause_s"] == 34.5, "also what came while it settled"
    early = observed([batch(e, 10 * n) for n, e in enumerate(ends[:-1])], TIMES)
    assert early["pause_s"] == 4.0
    assert early["rows_per_s"] == pytest.approx(10.0)


def test_a_batch_that_is_repeated_brings_no_new_rows():
    ends = [(18, 100), (19, 110), (22, 110), (24, 105), (25, 130)]
    assert observed([batch(e, r) for e, r in ends], TIMES)["pause_s"] == 6.0


def test_a_batch_without_rows_is_no_sign_of_life():
    assert observed([batch(19, 100), batch(21, 100, rows=0), batch(25, 120)], TIMES)["pause_s"] == 6.0


def test_without_offsets_rows_have_to_do():
    assert observed([batch(19, None), batch(22, None)], TIMES)["pause_s"] == 3.0


def test_what_too_few_batches_tell_is_not_known():
    assert set(observed([batch(19, 1)], TIMES).values()) == {None}
    assert observed([batch(1, 1), batch(2, 2)], TIMES)["steady_s"] is None


# ---- jobs, steps ----


def test_every_declared_step_is_there():
    assert {step.name for steps in DECLARED.values() for step in steps} == set(STEPS)


def test_a_job_is_submitted_beside_the_task_with_the_store_in_its_environment_only(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SPILLWAY_SPARK", "spark://spark%3A%2F%2F127.0.0.1:7077")
    job = Job(job="digest", pipeline="ads", operator="count", checkpoint=1, plan=7, checkpoint_to=2)
    made = hook(job, {"SPARK_LOCAL_IP": "127.0.0.1", "SPILLWAY_CHECKPOINTS": "file:/c"}, "postgresql://u:secret@h/d")
    assert made._application_args == [
        "digest", "--pipeline", "ads", "--operator", "count", "--checkpoint", "1", "--plan", "7", "--checkpoint-to", "2",
    ]  # fmt: skip
    assert made._env_vars == {"SPILLWAY_DSN_CONTROL": "postgresql://u:secret@h/d", "SPILLWAY_CHECKPOINTS": "file:/c"}
    assert made._conf["spark.port.maxRetries"] == "0"
    assert made._conf["spark.driver.host"] == "127.0.0.1"
    assert "secret" not in str(made._conf)


@pytest.mark.parametrize("master", ["yarn", "mesos%3A%2F%2F127.0.0.1:5050"])
def test_where_the_store_would_be_on_a_command_line_no_job_is_submitted(monkeypatch, master):
    monkeypatch.setenv("AIRFLOW_CONN_SPILLWAY_SPARK", f"spark://{master}")
    job = Job(job="digest", pipeline="ads", operator="count", checkpoint=1, plan=7)
    with pytest.raises(Refused, match="to a standalone cluster only, and the connection spillway_spark leads to"):
        hook(job, {"SPILLWAY_CHECKPOINTS": "file:/c"}, "postgresql://u:secret@h/d")


def test_the_program_of_a_job_lies_beside_the_drivers():
    assert application({}).endswith("spark_jobs/offline.py")
    assert application({"SPILLWAY_OFFLINE": "/x/y.py"}) == "/x/y.py"


def test_a_finding_says_its_state():
    assert (Finding.done("x", a=1).state, Finding.waits("x").state) == (State.DONE, State.WAITING)
    assert Finding.failed("x", stays=True, a=1) == Finding(state=State.FAILED, words="x", evidence={"a": 1}, stays=True)


@pytest.mark.parametrize("engine", ["4.2.0", "4.2.1.dev3", "4.10.0", "5.0.0"])
def test_engines_that_repartition(engine):
    assert repartition_refused(engine) is None


@pytest.mark.parametrize("engine", ["4.1.9", "3.5.1", "4"])
def test_engines_that_do_not(engine):
    assert engine in (repartition_refused(engine) or "")
