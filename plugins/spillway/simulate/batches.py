"""The bound of a batch and its shares per edge, for many operators at once: the rules of `spark_jobs/runtime/bound.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spillway.simulate.sharing import Floats, Ints

BAND = 0.25
"""Changes smaller than this share are not made."""
SHRINK = 4.0
"""At most by this factor at once."""
COLD_BATCHES = 2
"""The first batches of a run teach nothing."""
REMEMBERED = 50
"""Batches whose shortest tells what does not depend on the rows."""
CLEARLY_FEWER = 0.75
"""Batches with at most this share of another one's rows tell what rows cost."""
TRY_FEWER = 8
"""Batches in a row that were allowed to take longer, after which fewer rows are tried; twice as many where they are only late."""
TRY_FEWER_MOST = 128


def next_bounds(
    bound: Ints, rows: Ints, busy_s: Floats, fixed_s: Floats, target_s: Floats, cut: NDArray[np.bool_], *, least: int, most: int
) -> Ints:
    """The bounds after batches of `rows` rows that took `busy_s`; `cut`: there was more to read.

    >>> one = lambda *values: np.array(values)
    >>> next_bounds(one(2000), one(2000), one(1.0), one(0.3), one(4.0), one(True), least=10, most=10**6).tolist()
    [4000]
    >>> next_bounds(one(10000), one(10000), one(11.5), one(0.5), one(4.0), one(True), least=10, most=10**6).tolist()
    [3181]
    """
    fixed = np.minimum(fixed_s, 0.5 * target_s)
    per_row = np.maximum(busy_s - fixed, 1e-6) / np.maximum(rows, 1)
    wanted = (target_s - fixed) / per_row
    slow = (busy_s > 1.5 * target_s) & (wanted < bound)
    quick = cut & (busy_s < target_s)
    grown = np.minimum(np.maximum(wanted, bound), 2.0 * bound)
    new = np.where(slow, np.maximum(wanted, bound / SHRINK), np.where(quick, grown, bound))
    new = np.clip(new, least, most).astype(np.int64)
    moved = (np.abs(new - bound) > BAND * bound) | (new == least) | (new == most)
    return np.where((rows > 0) & (busy_s > 0) & (slow | quick) & moved, new, bound)


def least_s(known_s: Floats, slow_rows: Ints, slow_s: Floats, rows: Ints, busy_s: Floats) -> Floats:
    """What batches take whatever they read, 0 where nothing is known.

    >>> one = lambda *values: np.array(values)
    >>> least_s(one(0.0, 8.0), one(10_000, 10_000), one(12.0, 12.0), one(2_500, 9_000), one(9.0, 5.0)).tolist()
    [8.0, 0.0]
    """
    fewer = (rows > 0) & (rows <= CLEARLY_FEWER * slow_rows)
    told = busy_s - np.maximum(slow_s - busy_s, 0.0) / np.where(fewer, slow_rows - rows, 1) * rows
    return np.where(fewer, np.maximum(0.0, told), np.where((rows <= 0) | (known_s <= busy_s), known_s, 0.0))


def kept_bounds(learned: Ints, at: Floats, keep: Floats, *, least: int) -> Ints:
    """The bounds of batches that keep such a share of what they read, from those `learned` at the keeps `at`: see
    `BoundFollower.kept`.

    >>> kept_bounds(np.array([9000, 9000]), np.array([0.3, 1.0]), np.array([0.6, 0.3]), least=10).tolist()
    [4500, 9000]
    """
    less = np.maximum(np.divide(at, keep, out=np.ones_like(at), where=keep > at), 1.0 / SHRINK)
    return np.maximum(np.minimum(least, learned), (learned * less).astype(np.int64))


def admitted(waiting: Ints, bound: Floats, total: Floats, edges: Floats) -> Ints:
    """Rows a batch takes from each edge: the bound shared by the lag, an edge with little lag at least half an equal part.

    Everything is per edge; `bound`, `total` (rows waiting) and `edges` (their number) are those of its consumer.

    >>> admitted(np.array([9000, 1000]), np.full(2, 1000.0), np.full(2, 10000.0), np.full(2, 2.0)).tolist()
    [900, 250]
    """
    part = np.maximum(bound / (2 * edges), np.where(total > 0, bound * waiting / np.maximum(total, 1), bound))
    return np.minimum(waiting, np.maximum(part.astype(np.int64), 1))
