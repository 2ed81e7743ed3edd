"""From the largest rate to a verdict: bottleneck, dispatch, or all is well (paper 002, algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spillway.decide.capacity import words
from spillway.decide.capacity.drain import drain
from spillway.decide.capacity.estimate import Capacities
from spillway.decide.capacity.largest import Largest
from spillway.decide.capacity.partition import Partition, narrowest
from spillway.decide.capacity.shares import Passed, inputs_of
from spillway.model.capacity import CapacityWorld, DrainPath, FlowEdge, Verdict
from spillway.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    verdict: Verdict
    reason: str
    bottlenecks: tuple[str, ...] = ()
    drain: tuple[DrainPath, ...] = ()


def judge(
    world: CapacityWorld, flows: Passed, parts: Sequence[Partition], most: Largest | None, missing: Sequence[str], policy: Policy
) -> Judged:
    """While there is room and rows wait, dispatch; when there is none, the first operators behind the cut are the bottleneck.

    What is missing can only make the truth smaller: a bottleneck is one all the same, room is not.
    """
    entries = entering(world, flows.source)
    present, arrival, waiting = admitted(entries), written(entries), waits(entries)
    if most is None or present is None:
        return Judged(verdict=Verdict.NOT_KNOWN, reason=words.not_known(missing, "how much fits"))
    backlog = (waiting or 0.0) > policy.capacity_backlog_ignored_s * present
    narrow = () if most.overfilled else narrowest(parts, most.value, policy)
    asked = present > 0.0 or backlog or bool(arrival)
    if asked and most.value - present <= _rounding(most, narrow, backlog, policy):
        behind = {*(world.edges[n].consumer for n in most.edges), *(p.operator for p in narrow)}
        first = tuple(n for n in flows.order if n in behind)
        if most.overfilled:
            return Judged(verdict=Verdict.BOTTLENECK, reason=words.overfilled(flows.source, first), bottlenecks=first)
        reason = words.bottleneck(flows.source, first, most.value, present, arrival)
        return Judged(verdict=Verdict.BOTTLENECK, reason=reason, bottlenecks=first)
    if missing:
        return Judged(verdict=Verdict.NOT_KNOWN, reason=words.not_known(missing, "how much fits"))
    if backlog and most.value > present:
        through = next(n for n in flows.order if n in {world.edges[e].consumer for e in most.edges})
        path = drain(world, flows, through, most.value - present)
        return Judged(verdict=Verdict.DISPATCH, reason=words.dispatch(flows.source, waiting or 0.0, path), drain=(path,))
    return Judged(verdict=Verdict.KEEPS_UP, reason=words.keeps_up(flows.source, present, most.value, waiting))


def _rounding(most: Largest, narrow: Sequence[Partition], backlog: bool, policy: Policy) -> float:
    """Room up to this is none, in rows at the source.

    A capacity is known to within what its confidence leaves open. While rows wait, room that small is believed to be the error of
    the measurement, though never more of it than λ leaves; while nothing waits, there is no reason to.
    """
    room = [policy.capacity_space_min * most.value]
    for part in narrow:
        unsure = min(1.0 - part.confidence, 1.0 - policy.capacity_lambda) if backlog or part.waiting > 0.0 else 0.0
        room.append(max(policy.capacity_space_min, unsure) * part.capacity / part.gain)
    return max(room)


def gaps(world: CapacityWorld, found: Capacities, flows: Passed) -> tuple[str, ...]:
    """What would have to be known to say how much fits."""
    missing = list(flows.missing)
    inputs_by_name = inputs_of(world)
    for name in flows.order:
        inputs = tuple(n for n in inputs_by_name[name] if flows.gain[n] > 0.0)
        if inputs and not found.known(name, inputs):
            missing.append(f"operators.{name}.capacity")
    entries = entering(world, flows.source)
    if admitted(entries) is None:
        missing += [f"edges.{e.name}.flow" for e in entries]
    return tuple(missing)


def entering(world: CapacityWorld, source: str) -> tuple[FlowEdge, ...]:
    """Edges from a topic outside."""
    return tuple(e for e in world.edges if e.producer is None and e.topic == source)


def admitted(entries: Iterable[FlowEdge]) -> float | None:
    """Rows per second that all readers of a source follow: as many as the slowest of them takes; None: not known."""
    return min((e.flow / e.share for e in entries if e.flow is not None and e.share > 0.0), default=None)


def written(entries: Iterable[FlowEdge]) -> float | None:
    return max((e.arrival for e in entries if e.arrival is not None), default=None)


def waits(entries: Iterable[FlowEdge]) -> float | None:
    """Rows of a source that wait for its slowest reader; None: not known."""
    known = [
        e.backlog if e.backlog is not None else math.fsum(e.partitions) for e in entries if e.backlog is not None or e.partitions
    ]
    return max(known, default=None)
