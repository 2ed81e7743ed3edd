"""The whole: what limits the source under study, which operators are close to it, and how much more could be admitted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spillway.decide.capacity.estimate import Capacities, by_edge, capacities
from spillway.decide.capacity.judge import admitted, entering, gaps, judge, written
from spillway.decide.capacity.largest import MaxFlow, largest
from spillway.decide.capacity.partition import Partition, partitions, potential
from spillway.decide.capacity.program import by_program
from spillway.decide.capacity.shares import Passed, fork, inputs_of, passed
from spillway.decide.capacity.study import studied
from spillway.decide.capacity.useful import NOTHING
from spillway.model.capacity import CapacityFinding, CapacityWorld, FlowEdge, OperatorLimit, Verdict
from spillway.policy import Policy


def detect(world: CapacityWorld, policy: Policy, *, max_flow: MaxFlow = by_program) -> CapacityFinding:
    """The bottleneck of a pipeline, the operators that may become one, and the drain plan, in rows at the source under study.

    `max_flow` is the linear program; `by_paths` and `by_library()` know no forks.

    >>> from spillway.decide.capacity.examples import chain
    >>> finding = detect(chain(), Policy())
    >>> finding.max_flow, finding.cut, finding.bottlenecks
    (900.0, (('parse', 'count'),), ('count',))
    >>> calm = detect(chain(flow=600.0), Policy())
    >>> calm.reason
    '50000 rows of ads wait, and 300 rows/s more fit through ads → parse → count'
    """
    found = capacities(world, policy)
    source = studied(world)
    if source is None:
        return _nothing(world, found)
    flows = passed(world, found, source)
    parts = partitions(world, found, flows)
    most = largest(world, found, flows, parts, policy, max_flow)
    missing = gaps(world, found, flows)
    judged = judge(world, flows, parts, most, missing, policy)
    close = {*(p.operator for p in potential(parts, policy)), *judged.bottlenecks}
    entries = entering(world, source)
    return CapacityFinding(
        max_flow=None if most is None else most.value,
        cut_value=None if most is None else most.cut_value,
        cut=() if most is None else tuple(_ends(world.edges[n]) for n in most.edges),
        bottlenecks=judged.bottlenecks,
        potential=tuple(n for n in flows.order if n in close),
        drain=judged.drain,
        verdict=judged.verdict,
        reason=judged.reason,
        source=source,
        present=admitted(entries),
        arrival=written(entries),
        operators=_limits(world, found, flows, parts),
        edges=by_edge(world, found),
        missing=missing,
    )


def _nothing(world: CapacityWorld, found: Capacities) -> CapacityFinding:
    return CapacityFinding(
        max_flow=None,
        cut_value=None,
        cut=(),
        bottlenecks=(),
        potential=(),
        drain=(),
        verdict=Verdict.NO_SOURCE,
        reason="no edge comes from outside, so there is no source to study",
        edges=by_edge(world, found),
    )


def _ends(edge: FlowEdge) -> tuple[str, str]:
    return (edge.producer if edge.producer is not None else edge.topic or "", edge.consumer)


def _limits(world: CapacityWorld, found: Capacities, flows: Passed, parts: Sequence[Partition]) -> tuple[OperatorLimit, ...]:
    """Of every operator: what it takes, what it could take, and the rate of the source that it can follow."""
    result = []
    inputs_by_name = inputs_of(world)
    limits_by_name: dict[str, list[float]] = {}
    shares: dict[str | None, list[float]] = {}
    for part in parts:
        if part.limit is not None:
            limits_by_name.setdefault(part.operator, []).append(part.limit)
    for edge in world.edges:
        shares.setdefault(edge.producer, []).append(edge.share)
    for operator in world.operators:
        name = operator.name
        inputs = inputs_by_name[name]
        measured = [world.edges[n].flow for n in inputs]
        whole = found.operator[name]
        alone = [found.edge[n] for n in inputs]
        own = whole if whole.capacity is not None or not alone else min(alone, key=lambda e: e.confidence, default=NOTHING)
        known = [e.capacity for e in alone if e.capacity is not None]
        together = math.fsum(known) if known and len(known) == len(alone) else None
        limits = limits_by_name.get(name)
        result.append(
            OperatorLimit(
                operator=name,
                parallelism=operator.parallelism,
                capacity=together if whole.capacity is None else whole.capacity,
                flow=None if None in measured or not measured else math.fsum(f for f in measured if f is not None),
                estimator=own.estimator,
                confidence=own.confidence,
                gain=flows.into[name][0],
                limit=max(0.0, min(limits)) if limits else None,
                fork=fork(shares.get(name, [])),
            )
        )
    return tuple(result)
