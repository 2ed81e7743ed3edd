"""Which source events a query's output should hold, and which it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from spillway.model.topology import Edge, Pipeline

Ends = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    written: int
    """Good source events of the run that are in the output."""
    lost: int
    """Good events that are not there; of a query that was shed, how many fewer are there than its shedders let through."""
    doubled: int
    """Output records that repeat a source event."""
    strange: int
    """Source events in the output that are garbage or not of this run."""


def good_events(topics: Iterable[str], start: Ends, end: Ends, garbage: Set[str]) -> frozenset[str]:
    """The lineage of every event between two moments, without those that became dead letters.

    >>> sorted(good_events(["t"], {"t": {0: 7}}, {"t": {0: 9, 1: 2}}, {"t-1-0"}))
    ['t-0-7', 't-0-8', 't-1-1']
    """
    return frozenset(
        event
        for topic in topics
        for partition, stop in end[topic].items()
        for offset in range(start[topic].get(partition, 0), stop)
        if (event := f"{topic}-{partition}-{offset}") not in garbage
    )


def edges_before(pipeline: Pipeline, operator: str) -> tuple[Edge, ...]:
    """Every edge whose rows can reach an operator."""
    found: dict[str, Edge] = {}
    ahead = list(pipeline.inputs(operator))
    while ahead:
        edge = ahead.pop()
        if edge.name not in found:
            found[edge.name] = edge
            ahead += pipeline.inputs(edge.producer) if edge.producer else ()
    return tuple(found.values())


def compare(seen: Mapping[str, int], good: Set[str], *, shed: bool, kept: int) -> Compared:
    """An output, as how often each source event is in it, against the good events of the run.

    Where everything was kept, event by event: one that is lost and one that is wrong do not cancel. Where rows were shed nobody
    knows from outside which ones, so `kept`, the shedders' own count, has to do.
    """
    there = good & seen.keys()
    return Compared(
        written=len(there),
        lost=kept - len(there) if shed else len(good) - len(there),
        doubled=sum(n - 1 for n in seen.values()),
        strange=len(seen) - len(there),
    )
