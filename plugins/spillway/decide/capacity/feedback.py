"""Regulation of a capacity by measured latency (paper 002, algorithm 1 and section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spillway.policy import Policy

SECOND_MS = 1000.0


class Regulation(StrEnum):
    """What algorithm 1 did to a capacity."""

    NO_LOAD = "no_load"
    REDUCED = "reduced"
    HELD_AT_CARRIED = "held_at_carried"
    """It would have fallen below what was really carried."""
    ENLARGED = "enlarged"
    IN_BAND = "in_band"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regulated:
    capacity: float
    regulation: Regulation


def step(latency_ms: float, constraint_ms: float) -> float:
    """(12) to (14): `η = |1000/l − 1000/l_c|`, with l the mean latency and l_c its constraint, in milliseconds.

    >>> step(500.0, 250.0), step(100.0, 250.0)
    (2.0, 6.0)
    """
    return abs(SECOND_MS / latency_ms - SECOND_MS / constraint_ms)


def carried_within(flow: float, latency_ms: float, constraint_ms: float, before: float | None) -> float | None:
    """The largest flow that was carried within the constraint, this one included if it was; None: none was.

    >>> carried_within(290.0, 200.0, 250.0, before=270.0), carried_within(290.0, 300.0, 250.0, before=270.0)
    (290.0, 270.0)
    """
    if flow <= 0.0 or latency_ms > constraint_ms:
        return before
    return flow if before is None else max(before, flow)


def regulate(
    capacity: float,
    *,
    flow: float,
    latency_ms: float,
    constraint_ms: float,
    policy: Policy,
    threshold_ms: float | None = None,
    carried: float | None = None,
) -> Regulated:
    """Algorithm 1 for one edge: `l > θ and f ≤ c: c − η`; `l ≪ θ and f ≈ c: c + η`; without load nothing.

    θ is `threshold_ms`, or the constraint. `≪` is below `capacity_fast_share` of θ, `≈` within `capacity_near_share` of c.
    Beyond the paper a capacity never falls below a flow that was carried within the constraint, nor below 0: else a single slow
    window would say that the impossible had been done.

    >>> regulate(300.0, flow=290.0, latency_ms=500.0, constraint_ms=250.0, policy=Policy()).capacity
    298.0
    >>> regulate(300.0, flow=290.0, latency_ms=500.0, constraint_ms=250.0, carried=299.5, policy=Policy()).regulation
    <Regulation.HELD_AT_CARRIED: 'held_at_carried'>
    >>> regulate(300.0, flow=290.0, latency_ms=100.0, constraint_ms=250.0, policy=Policy()).capacity
    306.0
    """
    if flow <= 0.0:
        return Regulated(capacity=capacity, regulation=Regulation.NO_LOAD)
    theta = constraint_ms if threshold_ms is None else threshold_ms
    eta = step(latency_ms, constraint_ms)
    carried = carried_within(flow, latency_ms, constraint_ms, carried)
    least = 0.0 if carried is None else carried
    if latency_ms > theta and flow <= capacity:
        wanted, regulation = capacity - eta, Regulation.REDUCED
    elif latency_ms < policy.capacity_fast_share * theta and abs(flow - capacity) <= policy.capacity_near_share * capacity:
        wanted, regulation = capacity + eta, Regulation.ENLARGED
    else:
        wanted, regulation = capacity, Regulation.IN_BAND
    if wanted < least:
        return Regulated(capacity=least, regulation=Regulation.HELD_AT_CARRIED)
    return Regulated(capacity=max(wanted, 0.0), regulation=regulation)
