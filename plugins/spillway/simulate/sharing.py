"""The CPU of nodes, shared by the instances on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def sums(index: Ints, values: NDArray[Any], size: int) -> Floats:
    """The sum of the values that carry the same index."""
    return np.bincount(index, weights=values, minlength=size).astype(np.float64, copy=False)


def share(wanted: Floats, node: Ints, capacity: Floats) -> tuple[Floats, Floats]:
    """Processor sharing: an instance gets what it wants, or an equal part of what its node has left (max-min fairness).

    `wanted` and `node` are per instance, `capacity` per node, in CPU seconds. Returns what each instance gets, and per node
    the most that one instance could get (infinite where everybody got what they wanted).

    >>> got, level = share(np.array([0.1, 0.6, 0.9, 0.4]), np.array([0, 0, 0, 1]), np.array([1.0, 1.0]))
    >>> got.round(2).tolist(), level.round(2).tolist()
    ([0.1, 0.45, 0.45, 0.4], [0.45, inf])
    """
    nodes = len(capacity)
    level = np.full(nodes, np.inf)
    tight = sums(node, wanted, nodes) > capacity * (1 + 1e-12)
    if not tight.any():
        return wanted, level
    got = wanted.copy()
    open_ = np.flatnonzero(tight[node] & (wanted > 0))
    left = capacity.copy()
    while open_.size:
        where, want = node[open_], wanted[open_]
        level = np.where(tight, left / np.maximum(np.bincount(where, minlength=nodes), 1), np.inf)
        fits = want <= level[where]
        if not fits.any():
            got[open_] = level[where]
            break
        left -= sums(where[fits], want[fits], nodes)
        open_ = open_[~fits]
    return got, level
