"""The one who keeps a query alive: restarts when told, goes on when refused, tries again when it dies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.runtime import keeper as keeping
from spark_jobs.runtime.checkpoint import Head
from spark_jobs.runtime.keeper import Keeper, LostToAnother
from spark_jobs.runtime.orders import Actual, OperatorOrder
from spark_jobs.runtime.repartition import Unsupported
from spark_jobs.runtime.site import State


class Query:
    """Does what a query does, and writes down what is done with it."""

    def __init__(self) -> None:
        self.operator = SimpleNamespace(name="op")
        self.state = State(checkpoint=0, buckets=4, max_rows=None)
        self.done: list[str] = []
        self.alive = self.working = self.in_flight = False
        self.finished = 0
        self.found, self.position, self.started_at = Head(planned=-1, committed=-1), (3, {"t": {0: 7}}), None
        self.failures: list[Exception] = []
        self.spark = SimpleNamespace(
            sparkContext=SimpleNamespace(setJobGroup=lambda *_, **__: None, cancelJobGroup=self.done.append)
        )
        self.why, self.away = "", False
        self.checkpoint = SimpleNamespace(last_commit=lambda: 3, buckets=lambda _: 4, committed_at=lambda _: datetime.now(UTC))

    def prepare(self, _: Any, state: State | None = None) -> Any:
        if self.away:
            raise RuntimeError("Kafka does not answer")
        self.done.append("prepare")
        return SimpleNamespace(state=state or self.state)

    def start(self, _: Any, prepared: Any = None) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.state = prepared.state if prepared else self.state
        self.done.append(f"start with {self.state.buckets}")
        self.alive = self.working = True

    def rest(self, _: float) -> Any:
        self.done.append("rest")
        self.alive = False
        return SimpleNamespace(batch_id=9, at=datetime.now(UTC))

    def collect(self) -> int:
        finished, self.finished = self.finished, 0
        return finished

    def failure(self) -> str:
        return self.why


class Control:
    def __init__(self) -> None:
        self.reports: list[Actual] = []
        self.events: list[str] = []

    def report(self, actual: Actual) -> None:
        if not self.reports or self.reports[-1] != actual:
            self.reports.append(actual)

    def event(self, _: str, kind: str, __: str) -> None:
        self.events.append(kind)

    @property
    def phases(self) -> list[str]:
        return [r.phase.value for r in self.reports]


class Kept:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.query, self.control, self.now = Query(), Control(), 100.0
        self.settled: list[int] = []
        self.refusal: str | None = None
        self.meanwhile = lambda: None
        monkeypatch.setattr(keeping, "settle", self.settle)
        monkeypatch.setattr(keeping, "refuses", lambda *_: self.refusal)
        query: Any = self.query
        control: Any = self.control
        nothing: Any = None
        self.keeper = Keeper(query, nothing, control, clock=lambda: self.now)

    def settle(self, query: Query, _: Any, say: Any) -> None:
        self.settled.append(query.state.buckets)
        if query.state.buckets != 4:
            say(keeping.Phase.REPARTITIONING)
        self.meanwhile()

    def look(self, incarnation: int = 0, buckets: int = 4, checkpoint: int = 0) -> None:
        self.keeper.look(OperatorOrder(checkpoint=checkpoint, buckets=buckets, incarnation=incarnation))
        if self.keeper._shift is not None:
            self.keeper._shift.join(5)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    made = Kept(monkeypatch)
    made.keeper.start()
    made.look()
    made.query.done.clear()
    made.control.reports.clear()
    return made


def test_a_new_incarnation_stops_at_a_batch_and_starts_with_what_is_told(kept: Kept) -> None:
    kept.look(incarnation=1, buckets=8)
    kept.look(incarnation=1, buckets=8)
    assert kept.query.done == ["prepare", "rest", "start with 8"], "what can be done before the stop is done before it"
    assert kept.control.phases == ["stopping", "stopped", "repartitioning", "starting", "running"]
    assert [r.buckets for r in kept.control.reports] == [4, 4, 8, 8, 8]
    assert kept.control.reports[-1].incarnation == 1 and kept.control.reports[-1].stopped_batch == 9
    kept.look(incarnation=1, buckets=8)
    assert len(kept.query.done) == 3, "once"


@pytest.mark.parametrize(
    ("running", "watermarked", "anew"), [("a query", True, True), ("a query", False, False), (None, True, False)]
)
def test_one_that_followed_another_is_started_anew_once_it_is_idle_if_windows_end_by_time(
    monkeypatch: pytest.MonkeyPatch, running: str | None, watermarked: bool, anew: bool
) -> None:
    kept = Kept(monkeypatch)
    ready: Any = SimpleNamespace(state=kept.query.state, running=running, watermarked=watermarked, muted=10)
    kept.keeper.start(ready)
    for _ in range(9):
        kept.query.finished, kept.now = 1, kept.now + 4.0
        kept.look()
    kept.query.in_flight, kept.now = True, kept.now + 60.0
    kept.look()
    assert kept.query.done == ["start with 4"], "while it has anything to do it would be felt"
    kept.query.in_flight, kept.now = False, kept.now + 1.0
    kept.look()
    kept.look()
    expected = ["start with 4", "prepare", "rest", "start with 4"] if anew else ["start with 4"]
    assert kept.query.done == expected


def test_one_that_is_raised_again_meanwhile_is_carried_out_after_that(kept: Kept) -> None:
    for incarnation, buckets in ((1, 8), (2, 2), (2, 2)):
        kept.look(incarnation=incarnation, buckets=buckets)
    assert kept.query.done == ["prepare", "rest", "start with 8", "prepare", "rest", "start with 2"]
    assert kept.query.state == State(checkpoint=0, buckets=2, max_rows=None, incarnation=2)


def test_what_cannot_be_done_leaves_the_query_as_it_is(kept: Kept) -> None:
    kept.refusal = "no"
    for _ in range(3):
        kept.look(incarnation=1, buckets=8)
    assert kept.query.done == [] and kept.query.alive
    assert kept.control.phases == ["failed"] and kept.control.reports[0].detail == "incarnation 1 was refused: no"
    assert (kept.control.reports[0].incarnation, kept.control.reports[0].buckets) == (0, 4)
    assert kept.control.events[-1] == "restart_refused"
    kept.refusal = None
    kept.look(incarnation=2, buckets=4)
    kept.look(incarnation=2, buckets=4)
    assert kept.control.phases[-1] == "running" and kept.query.state.incarnation == 2


def test_what_cannot_be_prepared_now_is_done_when_it_can(kept: Kept) -> None:
    """Kafka is away when a plan orders a restart, and still is when the plan goes back: what is ordered last is done at last."""
    kept.query.away = True
    kept.look(incarnation=1, buckets=8)
    kept.look(incarnation=2, buckets=4)
    assert kept.query.done == [] and kept.query.alive
    assert kept.control.phases == ["running"] and kept.control.events == []
    assert kept.control.reports[-1].detail == "incarnation 1 waits: Kafka does not answer"
    kept.now += 1.1
    kept.look(incarnation=2, buckets=4)
    assert kept.control.reports[-1].detail == "incarnation 2 waits: Kafka does not answer"
    kept.query.away = False
    kept.look(incarnation=2, buckets=4)
    assert kept.query.done == [], "it was just tried"
    kept.now += 2.1
    kept.look(incarnation=2, buckets=4)
    kept.look(incarnation=2, buckets=4)
    assert kept.query.done == ["prepare", "rest", "start with 4"] and kept.query.state.incarnation == 2
    assert kept.control.phases[-1] == "running" and kept.control.reports[-1].detail == ""


def test_an_order_for_another_checkpoint_is_not_for_this_driver(kept: Kept) -> None:
    kept.look(incarnation=5, buckets=8, checkpoint=1)
    assert kept.query.done == []


def test_a_restart_that_fails_is_tried_again_as_told(kept: Kept) -> None:
    kept.query.failures = [RuntimeError("Kafka is away"), RuntimeError("still away")]
    kept.look(incarnation=1, buckets=8)
    kept.look(incarnation=1, buckets=8)
    assert kept.control.phases[-1] == "failed" and kept.control.reports[-1].detail == "Kafka is away"
    for _ in range(3):
        kept.now += 31
        kept.look(incarnation=1, buckets=8)
    assert kept.query.done[-1] == "start with 8" and kept.query.state.incarnation == 1
    kept.look(incarnation=1, buckets=8)
    assert kept.control.phases[-1] == "running"


def test_it_is_not_started_again_once_the_driver_ends(kept: Kept) -> None:
    kept.meanwhile = lambda: kept.keeper._ending.set()
    kept.look(incarnation=1, buckets=8)
    assert kept.query.done == ["prepare", "rest"] and not kept.query.alive


def test_a_start_whose_state_cannot_be_changed_goes_on_with_what_there_is(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise Unsupported("not this one")

    monkeypatch.setattr(keeping, "settle", refuse)
    kept.query.state = replace(kept.query.state, buckets=8, incarnation=3)
    kept.keeper.start()
    assert kept.query.done == ["start with 4"] and kept.control.events[-1] == "restart_refused"
    kept.query.done.clear()
    kept.look(incarnation=3, buckets=8)
    assert kept.query.done == []


def test_a_query_that_dies_is_started_again_with_patience_and_not_for_ever(kept: Kept) -> None:
    kept.query.alive, kept.query.why = False, "out of memory"
    kept.look()
    kept.look()
    assert kept.query.done == [] and kept.control.phases[-1] == "failed", "not at once"
    kept.now += 1.1
    kept.look()
    assert kept.query.done == ["start with 4"]
    with pytest.raises(RuntimeError, match="op failed 6 times in a row: out of memory"):
        for _ in range(10):
            kept.query.alive = False
            kept.look()
            kept.now += 31
            kept.look()


def test_whoever_loses_a_batch_to_another_driver_lets_go(kept: Kept) -> None:
    kept.query.alive, kept.query.why = False, "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log"
    with pytest.raises(LostToAnother, match="another driver writes the checkpoint of op"):
        kept.look()
