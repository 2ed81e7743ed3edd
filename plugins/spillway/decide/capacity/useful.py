"""Capacity as it is measured directly: rows over the time in which they were worked on. Beyond the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spillway.model.capacity import Busy, Estimator

ERRORS = 3.0
"""Standard errors by which the truth may be off."""
ONE_SAMPLE = 0.85
"""Confidence in what was measured once: nothing says how much it scatters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    capacity: float | None
    """Rows per second; None: nothing says it."""
    estimator: Estimator
    confidence: float
    """1 less the share of the capacity by which the truth may be off."""


NOTHING = Estimate(capacity=None, estimator=Estimator.NONE, confidence=0.0)


def useful_rate(batches: Sequence[Busy]) -> Estimate:
    """Rows ÷ busy time over the batches of an operator, and how sure that is.

    A ratio of sums, `R = Σ rows / Σ busy`, whose standard error is `√(n/(n−1) · Σ (rows − R·busy)²) / Σ busy` (Cochran 1977,
    linearised ratio). Batches of an operator are as long as its slowest task, so this has the skew of its keys in it.

    >>> even = useful_rate([Busy(rows=900.0, busy_s=3.0), Busy(rows=300.0, busy_s=1.0)])
    >>> even.capacity, even.confidence
    (300.0, 1.0)
    >>> uneven = useful_rate([Busy(rows=300.0, busy_s=1.1), Busy(rows=300.0, busy_s=0.9)] * 4)
    >>> uneven.capacity, round(uneven.confidence, 2)
    (300.0, 0.89)
    """
    worked = [b for b in batches if b.rows > 0.0 and b.busy_s > 0.0]
    if not worked:
        return NOTHING
    busy = math.fsum(b.busy_s for b in worked)
    rate = math.fsum(b.rows for b in worked) / busy
    return _measured(rate, [(b.rows - rate * b.busy_s) / busy for b in worked])


def of_instances(instances: Sequence[Busy], skew: float | None = None) -> Estimate:
    """The sum of what the instances manage; of a keyed operator divided by its skew, for the fullest bucket is not shared.

    An instance that did nothing counts like the slowest of the others.

    >>> two = [Busy(rows=500.0, busy_s=1.0), Busy(rows=1000.0, busy_s=2.0)]
    >>> of_instances(two).capacity, of_instances(two, skew=1.25).capacity
    (1000.0, 800.0)
    >>> of_instances([*two, Busy(rows=0.0, busy_s=0.0)]).capacity
    1500.0
    """
    rates = [i.rows / i.busy_s for i in instances if i.rows > 0.0 and i.busy_s > 0.0]
    if not rates:
        return NOTHING
    idle = len(instances) - len(rates)
    whole = math.fsum([*rates, idle * min(rates)]) / (1.0 if skew is None else skew)
    mean = math.fsum(rates) / len(rates)
    estimate = _measured(mean, [(rate - mean) / len(rates) for rate in rates])
    return replace(estimate, capacity=whole)


def skew_of(bucket_rows: Sequence[float]) -> float | None:
    """Share of the rows in the fullest bucket, times the number of buckets; None when there are no rows.

    >>> skew_of([100.0, 100.0, 300.0, 100.0]), skew_of([5.0, 5.0]), skew_of([0.0, 0.0])
    (2.0, 1.0, None)
    """
    whole = math.fsum(bucket_rows)
    return max(bucket_rows) / whole * len(bucket_rows) if whole > 0.0 else None


def _measured(rate: float, off: Sequence[float]) -> Estimate:
    """`off`: what each sample adds to the error of the rate."""
    if len(off) < 2:
        return Estimate(capacity=rate, estimator=Estimator.USEFUL_RATE, confidence=ONE_SAMPLE)
    error = math.sqrt(len(off) / (len(off) - 1) * math.fsum(o * o for o in off))
    confidence = max(0.0, 1.0 - ERRORS * error / rate)
    return Estimate(capacity=rate, estimator=Estimator.USEFUL_RATE, confidence=confidence)
