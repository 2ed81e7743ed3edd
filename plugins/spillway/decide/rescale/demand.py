"""What every operator should carry: the rates at the sources, passed forward through the selectivities of the edges.

An operator behind a bottleneck sees only what the bottleneck lets through, so what it carries says nothing about what it will
have to carry once that is wider. Passing the rate of the sources forward does: whoever would be the next bottleneck shows at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.model.rescale import Flow, OperatorLoad, RescaleWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Rows per second into each operator; one that is not known is absent."""

    needed: dict[str, float]
    """What arrives now, and what waits, spread over the drain horizon."""
    peak: dict[str, float]
    """The most that arrived within the window of the world."""


def demand(world: RescaleWorld, drain_horizon_s: float) -> Demand:
    """Forward propagation of the rates at the sources (as DS2 does it, Kalavri et al. 2018, equation 8), and of what waits.

        needed(o) = max(what the world says, Σ over its edges e: rows(e) + backlog(e) / horizon)
        rows(e)   = arrival(e) of a source, else selectivity(e) · needed(producer(e))

    Peaks of several sources are added up though they may not have come at the same time: a scaling down has to fit the worst.

    >>> from spillway.decide.rescale.examples import ads
    >>> found = demand(ads(), 600.0)
    >>> {name: round(rate) for name, rate in found.needed.items()}
    {'parse': 1560, 'count': 520}
    """
    into: dict[str, list[Flow]] = {o.name: [] for o in world.operators}
    for edge in world.edges:
        into[edge.consumer].append(edge)
    order = _producers_first(world, into)

    def forward(
        arriving: Callable[[Flow], float | None], said: Callable[[OperatorLoad], float | None], waits: bool
    ) -> dict[str, float]:
        found: dict[str, float] = {}
        for operator in order:
            total = _sum(_rows(edge, found, arriving, drain_horizon_s if waits else None) for edge in into[operator.name])
            known = [rate for rate in (total, said(operator)) if rate is not None]
            if known:
                found[operator.name] = max(known)
        return found

    return Demand(
        needed=forward(lambda e: e.arrival, lambda o: o.needed, True),
        peak=forward(lambda e: e.peak, lambda o: o.peak, False),
    )


def _rows(
    edge: Flow, found: dict[str, float], arriving: Callable[[Flow], float | None], drain_horizon_s: float | None
) -> float | None:
    rows: float | None
    if edge.producer is None:
        rows = arriving(edge)
    else:
        above = found.get(edge.producer)
        rows = None if above is None else edge.selectivity * above
    if rows is None:
        return None
    return rows + ((edge.backlog or 0.0) / drain_horizon_s if drain_horizon_s is not None else 0.0)


def _sum(parts: Iterable[float | None]) -> float | None:
    """None when one is not known, and when there are none."""
    known = list(parts)
    return sum(rate for rate in known if rate is not None) if known and None not in known else None


def _producers_first(world: RescaleWorld, into: Mapping[str, Sequence[Flow]]) -> list[OperatorLoad]:
    order: list[OperatorLoad] = []
    placed: set[str | None] = {None}
    waiting = list(world.operators)
    while waiting:
        ready = [o for o in waiting if all(e.producer in placed for e in into[o.name])]
        if not ready:
            raise ValueError("the edges form a cycle")
        order += ready
        placed |= {o.name for o in ready}
        waiting = [o for o in waiting if o.name not in placed]
    return order
