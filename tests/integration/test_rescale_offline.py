"""Which jobs on state are due, what their failures leave behind, and how long a task stays with plans."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.act.rescale import offline
from spillway.act.rescale.resident import carry_out
from spillway.store import Refused, pipelines

from tests.support.plans import WANTED
from tests.support.rescaling import POLICY, Line

pytestmark = pytest.mark.integration


def due(line: Line) -> list[offline.Job]:
    with line.conn:
        return [job for job in offline.due(line.conn, line.policy) if job.pipeline == line.name]


@pytest.mark.parametrize(
    ("kind", "checkpoint_to", "batch"), [("executors", None, False), ("restart_buckets", None, True), ("shadow", 1, False)]
)
def test_a_digest_is_due_when_a_plan_has_come_to_it(line: Line, kind: str, checkpoint_to: int | None, batch: bool) -> None:
    plan = line.ask(**WANTED[kind])
    line.carry(until="verify")
    assert due(line) == []
    at = line.carry(until="digest")
    [job] = due(line)
    assert (job.job, job.plan, job.operator, job.checkpoint, job.checkpoint_to) == ("digest", plan.id, "count", 0, checkpoint_to)
    stop = next((s.evidence["stopped_batch"] for s in at.steps if s.step == "stopped"), None)
    assert (job.batch, job.buckets) == ((stop, plan.buckets_to) if batch else (None, None))
    line.digest()
    assert due(line) == []
    assert line.carry().state == "done"


def test_what_failed_is_tried_three_times_and_says_why(line: Line) -> None:
    line.ask(**WANTED["executors"])
    line.carry(until="digest")
    for tries in (1, 2, 3):
        [job] = due(line)
        offline.begin(line.conn, job)
        assert offline.failed(line.conn, job, RuntimeError("no\nmemory")) == f"{job.name} failed: no memory"
        step = line.plan().steps[-2]
        assert (step.evidence["tries"], step.detail) == (tries, f"{job.name} failed: no memory")
    assert due(line) == []
    line.advance()
    assert (line.plan().state, line.application()[2]) == ("failed", 4)


def test_a_job_whose_plan_has_ended_meanwhile_is_nobodys(line: Line) -> None:
    line.ask(**WANTED["executors"])
    line.carry(until="digest")
    [job] = due(line)
    pipelines.set_desired(line.conn, line.name, "stopped", "test")
    line.sql("update spillway.rescale_plan set state = 'failed' where pipeline = %s", line.name)
    offline.begin(line.conn, job)
    offline.failed(line.conn, job, RuntimeError("x"))
    assert "tries" not in line.plan().steps[-2].evidence


# ---- what a person asks for ----


def asked(line: Line, **conf: Any) -> list[offline.Job]:
    with line.conn:
        named = {"pipeline": line.name, "operator": "count", **conf}
        return offline.asked(line.conn, named, line.policy, "file:///checkpoints")


def test_a_repair_is_for_what_is_stopped(line: Line) -> None:
    assert asked(line) == []
    with pytest.raises(Refused, match="still runs, and repairs itself: stop it first with `spillway stop"):
        asked(line, job="repair")
    pipelines.set_desired(line.conn, line.name, "stopped", "test")
    line.tick()
    line.sql("update spillway.application set launched_at = now() - interval '1 hour' where pipeline = %s", line.name)
    [job] = asked(line, job="repair")
    assert job.arguments == ["repair", "--pipeline", line.name, "--operator", "count", "--checkpoint", "0"]


def test_a_copy_needs_a_place_and_a_number(line: Line) -> None:
    with pytest.raises(Refused, match="give `to` and `buckets`"):
        asked(line, job="repartition")
    [job] = asked(line, job="repartition", to="file:/copy", buckets=16)
    assert job.arguments[-4:] == ["--to", "file:/copy", "--buckets", "16"]


@pytest.mark.parametrize("place", ["file:/checkpoints/ads/count/0", "/checkpoints", "file:///copies/../checkpoints/x"])
def test_a_copy_does_not_go_among_the_checkpoints(line: Line, place: str) -> None:
    with pytest.raises(Refused, match="among the checkpoints of pipelines, which lie below file:///checkpoints: give another"):
        asked(line, job="repartition", to=place, buckets=16)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"job": "digest"}, "digest is no job to ask for: give repair or repartition"),
        ({"job": "repair", "operator": "cuont"}, "has no operator cuont: its operators are count"),
        ({"job": "repair", "pipeline": "nowhere"}, "there is no pipeline nowhere"),
    ],
)
def test_what_is_no_job_is_refused(line: Line, conf: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        asked(line, **conf)


# ---- how long a task stays ----


class Turns:
    """A clock that goes on with every sleep, while drivers go on too."""

    def __init__(self, line: Line) -> None:
        self.line, self.now = line, 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.line.tick()


def stay(line: Line, most_s: float = 120.0) -> tuple[list[str], float]:
    turns = Turns(line)
    said = carry_out(line.conn, line.cluster, POLICY, most_s=most_s, sleep=turns.sleep, clock=turns.clock)
    return [words for words in said if line.name in words], turns.now


def test_without_a_plan_it_does_not_stay(line: Line) -> None:
    assert stay(line) == ([], 0.0)


def test_it_stays_while_a_plan_moves_and_leaves_when_state_is_to_be_counted(line: Line) -> None:
    line.ask(**WANTED["handover"])
    said, stayed = stay(line)
    assert line.plan().step == "digest"
    assert stayed < 30.0
    assert [words.split("), ")[1].split(":")[0] for words in said] == [
        "validate", "launch", "rehearsed", "cutover", "taken_over", "verify", "digest",
    ]  # fmt: skip
    line.digest()
    stay(line)
    assert line.plan().state == "done"


def test_it_leaves_a_plan_that_takes_its_time_to_the_next_run(line: Line) -> None:
    line.cluster.shape = {"stuck_at": "cloning"}
    line.ask(**WANTED["handover"])
    said, stayed = stay(line, most_s=10.0)
    assert 10.0 <= stayed < 11.0
    assert line.plan().step == "rehearsed"
    assert "cloning" in said[-1]


def test_a_plan_that_stumbles_holds_up_no_other_and_is_told_at_the_end(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.act.rescale import carry, steps

    other = Line(line.database)
    for one in (line, other):
        one.ask(**WANTED["executors"])

    def broken(scene: Any) -> Any:
        if scene.plan.pipeline == other.name:
            raise ZeroDivisionError("a bug")
        return steps.order(scene)

    monkeypatch.setattr(carry, "STEPS", {**steps.STEPS, "order": broken})
    with pytest.raises(carry.RescaleStumbled, match="ZeroDivisionError: a bug"):
        stay(line)
    assert (line.plan().step, other.plan().step) == ("digest", "order")
    other.close()
