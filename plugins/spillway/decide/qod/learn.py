"""What an operator costs, learned from its own recent batches: `cpu = fixed + per_arrived · read + per_kept · kept`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from spillway.decide.qod.world import Floats
from spillway.model.qod import Cost, CostSample
from spillway.policy import Policy


def learn(samples: Sequence[CostSample], policy: Policy) -> Cost | None:
    """The non-negative least-squares fit; None when it cannot be told, and the papers' proportional model has to do.

    It cannot be told from too few batches, from batches whose rates or keeps hardly differ (read and kept rows then go up and
    down together, and either could be what costs), or when the line does not fit.

    >>> def batch(arrived: float, keep: float) -> CostSample:
    ...     return CostSample(arrived=arrived, kept=arrived * keep, cpu=12.0 + 0.02 * arrived + 0.05 * arrived * keep)
    >>> batches = [batch(arrived, keep) for arrived in (200.0, 500.0, 900.0) for keep in (1.0, 0.6, 0.3)]
    >>> cost = learn(batches, Policy())
    >>> round(cost.fixed, 6), round(cost.per_arrived, 6), round(cost.per_kept, 6)
    (12.0, 0.02, 0.05)
    >>> learn(batches[:3], Policy()) is None, learn([batch(a, 1.0) for a in range(100, 900, 50)], Policy()) is None
    (True, True)
    """
    values = np.array([(s.arrived, s.kept, s.cpu) for s in samples], dtype=np.float64).reshape(-1, 3)
    values = values[np.all(np.isfinite(values) & (values >= 0.0), axis=1)]
    if len(values) < policy.learn_batches_min or not np.all(values.mean(axis=0) > 0.0):
        return None
    rates, cpu = values[:, :2], values[:, 2]
    if _least_spread(rates) < policy.learn_spread_min:
        return None
    design = np.column_stack([np.ones(len(cpu)), rates])
    found = _non_negative(design, cpu)
    if np.mean(np.abs(design @ found - cpu)) > policy.learn_error_most * cpu.mean():
        return None
    fixed, per_arrived, per_kept = found.tolist()
    return Cost(fixed=fixed, per_arrived=per_arrived, per_kept=per_kept)


def _least_spread(rates: Floats) -> float:
    """Standard deviation, as a share of the mean, in the direction in which the rates differ least."""
    scaled = rates / rates.mean(axis=0) - 1.0
    return float(np.linalg.svd(scaled, compute_uv=False)[-1]) / float(np.sqrt(len(rates)))


def _non_negative(design: Floats, cpu: Floats) -> Floats:
    """The best non-negative coefficients: with three of them, the best of the plain fits whose coefficients all are."""
    best, error = np.zeros(design.shape[1]), float(np.sum(cpu**2))
    scale = design.mean(axis=0)
    for size in range(design.shape[1], 0, -1):
        for chosen in combinations(range(design.shape[1]), size):
            columns = list(chosen)
            fit = np.linalg.lstsq(design[:, columns] / scale[columns], cpu, rcond=None)[0] / scale[columns]
            if np.all(fit >= 0.0):
                left = float(np.sum((design[:, columns] @ fit - cpu) ** 2))
                if left < error:
                    best, error = np.zeros(design.shape[1]), left
                    best[columns] = fit
    return best
