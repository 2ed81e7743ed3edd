"""What was measured and found, over several evaluations, → what a decision on the parallelism of a pipeline reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from spillway.model.capacity import Verdict
from spillway.model.capacity_window import CapacityWindow, EdgeFlow, OperatorFlow
from spillway.model.rescale import Flow, OperatorLoad, RescaleWorld
from spillway.model.topology import Operator, Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What evaluations up to this one have seen."""

    bottleneck_for: Mapping[str, int]
    """By operator: evaluations in a row that named it."""
    peaks: Mapping[str, float]
    """By edge from outside: the most that arrived."""
    window_s: float
    """How far back that goes without a gap."""
    floors: Sequence[Mapping[str, Any] | None] = ()
    """What cycles of Quality of Data said in the window of floors that cannot be met, the oldest first."""


def rescale_world(
    base: RescaleWorld, spec: Pipeline, found: CapacityWindow, finding: Mapping[str, Any], past: Past
) -> RescaleWorld:
    """`base` knows checkpoints, nodes, and what was changed before; everything that was measured is put into it.

    A change that was asked for after the window is none yet, so that a replay sees what could be seen then."""
    limits = {o["operator"]: o for o in finding["operators"]}
    short = _short(past.floors)
    return replace(
        base,
        operators=tuple(
            _load(base, spec.operator(o.operator), o, found, limits.get(o.operator, {}), past, short) for o in found.operators
        ),
        edges=tuple(_flow(e, found, past.peaks) for e in found.edges),
        history=tuple(c for c in base.history if c.at <= base.now),
        window_s=past.window_s,
        floors_infeasible=short is not None,
    )


def _load(
    base: RescaleWorld,
    declared: Operator,
    measured: OperatorFlow,
    found: CapacityWindow,
    limit: Mapping[str, Any],
    past: Past,
    short: Mapping[str, int] | None,
) -> OperatorLoad:
    name = measured.operator
    known = base.operator(name) or OperatorLoad(name=name, application=measured.application, parallelism=measured.declared)
    flows = [e.flow for e in found.edges if e.consumer == name]
    return replace(
        known,
        application=measured.application,
        parallelism=measured.declared,
        min=declared.parallelism.min,
        max=declared.parallelism.max,
        state_rows=known.state_rows if measured.state_rows is None else measured.state_rows,
        state_bytes=known.state_bytes if measured.state_bytes is None else measured.state_bytes,
        rate=None if None in flows else sum(f for f in flows if f is not None),
        capacity=limit.get("capacity"),
        utilisation=measured.busy_share,
        bottleneck_for=past.bottleneck_for.get(name, 0),
        instances_short=(short or {}).get(name, 0),
    )


def _flow(edge: EdgeFlow, found: CapacityWindow, peaks: Mapping[str, float]) -> Flow:
    share = found.operator(edge.producer).selectivity if edge.producer is not None else None
    return Flow(
        producer=edge.producer,
        topic=edge.topic,
        consumer=edge.consumer,
        selectivity=1.0 if share is None else share,
        arrival=edge.arrival if edge.producer is None else None,
        peak=_most(edge.arrival, peaks.get(edge.edge)) if edge.producer is None else None,
        backlog=edge.backlog,
    )


def _most(now: float | None, before: float | None) -> float | None:
    known = [rate for rate in (now, before) if rate is not None]
    return max(known, default=None)


def _short(floors: Sequence[Mapping[str, Any] | None]) -> Mapping[str, int] | None:
    """Instances that floors miss; None when floors can be met: the last cycle says so, or most of the window did.

    >>> _short([None, {"instances_needed": {"heavy": 1}}]), _short([{"instances_needed": {}}, None]), _short([])
    ({'heavy': 1}, None, None)
    """
    below = [one for one in floors if one]
    if not below or not floors[-1] or 2 * len(below) < len(floors):
        return None
    return dict(floors[-1].get("instances_needed", {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What one evaluation found."""

    at: datetime
    """End of its window."""
    verdict: str
    bottlenecks: tuple[str, ...]


def in_a_row(evaluations: Sequence[Evaluated], most_apart: timedelta, since: datetime | None = None) -> dict[str, int]:
    """By operator that the newest evaluation names: how many in a row did, the newest first.

    One that could not tell counts neither way. What was found before the pipeline was last changed is of another one, and after
    too long without an evaluation nobody knows.

    >>> noon, minute = datetime(2026, 5, 1, 12), timedelta(minutes=1)
    >>> named = [("bottleneck", ("a", "b")), ("not_known", ()), ("bottleneck", ("a",)), ("keeps_up", ()), ("bottleneck", ("a",))]
    >>> found = [Evaluated(at=noon - n * minute, verdict=v, bottlenecks=b) for n, (v, b) in enumerate(named)]
    >>> in_a_row(found, 3 * minute), in_a_row(found, 3 * minute, since=noon - minute)
    ({'a': 2, 'b': 1}, {'a': 1, 'b': 1})
    """
    counts: dict[str, int] = {}
    going: set[str] | None = None
    last: datetime | None = None
    for one in evaluations:
        if (last is not None and last - one.at > most_apart) or (since is not None and one.at <= since):
            break
        last = one.at
        if one.verdict == Verdict.NOT_KNOWN and not one.bottlenecks:
            continue
        going = set(one.bottlenecks) if going is None else going & set(one.bottlenecks)
        for name in going:
            counts[name] = counts.get(name, 0) + 1
        if not going:
            break
    return dict(sorted(counts.items()))


def peaks(
    arrivals: Mapping[datetime, Mapping[str, float]], end: datetime, most_apart: timedelta
) -> tuple[dict[str, float], float]:
    """The most that arrived on each edge from outside, by window, the newest first, and how many seconds that goes back.

    Behind a gap nobody knows what arrived in it, so that is where the past ends.

    >>> noon, minute = datetime(2026, 5, 1, 12), timedelta(minutes=1)
    >>> seen = {noon: {"t:a": 5.0}, noon - minute: {"t:a": 9.0}, noon - 60 * minute: {"t:a": 99.0}}
    >>> peaks(seen, noon, 10 * minute)
    ({'t:a': 9.0}, 60.0)
    """
    found: dict[str, float] = {}
    last = end
    for at, rates in arrivals.items():
        if last - at > most_apart:
            break
        last = at
        for edge, rate in rates.items():
            found[edge] = max(found.get(edge, rate), rate)
    return found, (end - last).total_seconds()


def evaluated(findings: Iterable[tuple[datetime, Mapping[str, Any]]]) -> list[Evaluated]:
    return [Evaluated(at=at, verdict=f["verdict"], bottlenecks=tuple(f["bottlenecks"])) for at, f in findings]
