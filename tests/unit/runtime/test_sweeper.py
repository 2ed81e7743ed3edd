"""The thread that collects garbage: what it looks for at its start, and what comes after that."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.model.topology import Application, Edge, Operator, Pipeline

from spark_jobs.runtime import deadletter
from spark_jobs.runtime.deadletter import Sweeper
from spark_jobs.sinks.kafka import KafkaSink

OPERATOR = Operator(name="op", function="m:f", schema="n bigint")
EDGE = Edge(name="t:op", topic="t", producer=None, consumer="op", partitions=1)
PIPELINE = Pipeline(name="p", operators=(OPERATOR,), edges=(EDGE,), applications=(Application(name="a", operators=("op",)),))


class Log:
    """A checkpoint whose query goes on committing."""

    def __init__(self, committed: int, mark: int, oldest: int = 0) -> None:
        self.committed, self.mark, self.oldest = committed, str(mark), oldest

    def last_commit(self) -> int:
        return self.committed

    def read_text(self, _: str) -> str:
        return self.mark

    def write_text(self, _: str, text: str) -> None:
        self.mark = text

    def offsets(self, batch: int) -> dict[str, dict[int, int]] | None:
        return {"t": {0: 10 * (batch + 1)}} if batch >= self.oldest else None

    def oldest_offsets(self) -> dict[str, dict[int, int]]:
        return self.offsets(self.oldest) or {}

    def first_offsets(self, _: int) -> dict[str, dict[int, int]]:
        return {"t": {0: 0}}


def report(batch: int) -> dict[str, Any]:
    """A batch with garbage."""
    return {
        "batchId": batch,
        "observedMetrics": {"t:op": {"bad": 1, "setting": {"keep": 1.0}}},
        "sources": [
            {"description": "Kafka[t]", "startOffset": {"t": {"0": 10 * batch}}, "endOffset": {"t": {"0": 10 * batch + 10}}}
        ],
    }


class Swept:
    """What was swept, and failures to come before that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[int, int, int]] = []
        self.failures: list[Exception] = []
        self.meanwhile = lambda: None
        self.lost: list[str] = []
        self.fenced: list[str] = []
        monkeypatch.setattr(deadletter, "fence", lambda _sink, writer: self.fenced.append(writer))
        monkeypatch.setattr(deadletter, "last_epoch", lambda *_: max((epoch for epoch, *_ in self.done), default=-1))
        monkeypatch.setattr(deadletter, "garbage", lambda _s, _p, _o, sweep, *_: Frame(sweep))
        monkeypatch.setattr(deadletter, "collect", self.collect)
        monkeypatch.setattr(deadletter.time, "sleep", lambda _: None)

    def collect(self, frame: Frame, _: Any, epoch: int, __: int) -> int:
        if self.failures:
            self.meanwhile()
            raise self.failures.pop(0)
        if any(epoch < done for done, *_ in self.done):
            pytest.fail("a sink refuses this batch for ever: its marker is newer")
        self.done.append((epoch, frame.sweep.start[0], frame.sweep.end[0]))
        return 1

    def run(self, log: Log, *batches: int) -> None:
        sink = KafkaSink(bootstrap="nowhere", writer_id="w", topics=("d",), marker_topics=("m",), by_source=False)
        no: Any = None
        sweeper = Sweeper(no, PIPELINE, OPERATOR, log, sink, {}, lambda *_: None, self.lost.append)  # type: ignore[arg-type]
        for batch in batches:
            sweeper.batch(report(batch))
        sweeper._queue.put(None)
        sweeper.run()


class Frame:
    def __init__(self, sweep: deadletter.Sweep) -> None:
        self.sweep = sweep

    def where(self, _: Any) -> Frame:
        return self


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Swept:
    return Swept(monkeypatch)


def test_batches_that_commit_while_the_past_is_swept_come_after_it(swept: Swept) -> None:
    """The second try must not take the new batches for the past: their own turn would meet a marker that is newer."""
    log = Log(committed=4, mark=1)
    swept.failures = [RuntimeError("Kafka is away")]
    swept.meanwhile = lambda: setattr(log, "committed", 7)
    swept.run(log, 5, 6, 7)
    assert swept.done == [(4, 20, 50), (5, 50, 60), (6, 60, 70), (7, 70, 80)]
    assert log.mark == "7"


def test_offsets_that_are_gone_are_told(swept: Swept) -> None:
    swept.run(Log(committed=300, mark=1, oldest=200))
    assert swept.done == [(300, 2010, 3010)]
    assert len(swept.lost) == 1 and "offsets of batch 1 of op are gone" in swept.lost[0]


def test_one_dead_letter_too_large_does_not_take_the_others_along(swept: Swept, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[Any] = []
    monkeypatch.setattr(Frame, "where", lambda frame, condition: cut.append(condition) or frame)
    monkeypatch.setattr(deadletter.F, "length", lambda _: 0)
    swept.failures = [RuntimeError("MSG_SIZE_TOO_LARGE")]
    swept.run(Log(committed=0, mark=0), 1, 2)
    assert [epoch for epoch, *_ in swept.done] == [1, 2]
    assert cut == [True] and "900,000 bytes" in swept.lost[0]


def test_a_broker_that_takes_even_less_does_not_hold_up_the_next_batch(swept: Swept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletter.F, "length", lambda _: 0)
    swept.failures = [RuntimeError("MSG_SIZE_TOO_LARGE"), RuntimeError("MSG_SIZE_TOO_LARGE")]
    swept.run(Log(committed=0, mark=0), 1, 2)
    assert [epoch for epoch, *_ in swept.done] == [2]
    assert len(swept.lost) == 2 and "all of these stay" in swept.lost[1]
