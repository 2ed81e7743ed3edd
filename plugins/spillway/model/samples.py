"""What a run looked like over time, as a plain table: the same rows from the twin, from a live run and from a replay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Measure(StrEnum):
    OFFERED = "offered"
    """Events per second that producers write to the topics above an operator; named by operator."""
    PROCESSED = "processed"
    """Events per second that an operator takes after its shedders; named by operator."""
    LAG = "lag"
    """Seconds of traffic that wait on the edges into an operator; named by operator."""
    KEEP = "keep"
    """Share of events an edge keeps; named by edge, `producer:consumer` or `topic:consumer`."""
    ACCURACY = "accuracy"
    """Share of the source events an operator sees; named by operator."""
    FLOOR = "floor"
    """The accuracy a query was promised; named by operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    t_s: float
    """Seconds since the beginning."""
    measure: Measure
    name: str
    value: float | None
    """None: not known at that moment."""
    run: str = ""
    """Which of several runs, where one figure compares them: `with control`, `as it was`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at a moment."""

    t_s: float
    text: str
