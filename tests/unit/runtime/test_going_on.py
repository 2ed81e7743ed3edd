"""A query that has followed another one goes on in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.runtime import operator
from spark_jobs.runtime.operator import OperatorQuery


class Limits:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def attach(self, admission: Any, *, held: bool) -> None:
        self._said.append("attached")

    def open(self) -> bool:
        self._said.append("opened")
        return True


class Reader:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def skip(self) -> None:
        self._said.append("skipped")


def test_it_admits_nothing_before_it_reads_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger in between would take what is there at that moment for the end of the stream, and fail with the next rows."""
    said: list[str] = []
    monkeypatch.setattr(operator, "ProgressReader", lambda query: Reader(said))
    monkeypatch.setattr(operator, "Admission", lambda *_: None)
    made: Any = OperatorQuery.__new__(OperatorQuery)
    nothing = SimpleNamespace(setLocalProperty=lambda *_: None, set=lambda *_: None)
    made.spark = SimpleNamespace(sparkContext=nothing, conf=nothing)
    made.operator, made.site, made.state = SimpleNamespace(name="o"), SimpleNamespace(pipeline=SimpleNamespace(name="p")), None
    made.state = SimpleNamespace(buckets=4)
    made.edges, made.trigger_s, made._reader, made._limits = (), 1.0, None, Limits(said)
    running = SimpleNamespace(query=object(), go_on=lambda trigger_s, muted: said.append(f"goes on after {muted}"))
    made._begin(SimpleNamespace(running=running, held=False, muted=7))
    assert said == ["attached", "skipped", "goes on after 7", "opened"]
    assert made.query is running.query
