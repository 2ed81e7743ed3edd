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
CLEARLY_FEWER, HARDLY_SHORTER, IN_VAIN = 0.75, 0.8, 2
"""So many batches with at most this share of the rows that still took this share of the time: the bound is given back."""
SPARED, HARDLY_LONGER, MUCH_LONGER, DOUBLED = 20, 1.2, 2.0, (12, 6)
"""For so many batches, unless one takes so many times as long; and it is doubled so many before their end."""


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


class Spared:
    """Bounds that are not made smaller where that is no help: see `BoundFollower._unless_in_vain`. Few ever are, so they are
    looked at one by one."""

    def __init__(self, operators: int, *, least: int, start: int) -> None:
        self._least, self._start = least, start
        self._shrunk: list[tuple[int, int, float, int] | None] = [None] * operators
        """Bound before it was made smaller, rows and seconds of the batch that did, batches in vain since then."""
        self._left = np.zeros(operators, np.int64)
        self._spared_s, self._given = [0.0] * operators, [0] * operators
        self._watched = np.zeros(operators, bool)

    def forget(self, which: NDArray[np.bool_]) -> None:
        """Another share of what is read is kept."""
        for operator in np.flatnonzero(which & self._watched):
            self._shrunk[operator], self._left[operator], self._watched[operator] = None, 0, False

    def bounds(
        self, which: Ints, before: Ints, wanted: Ints, rows: Ints, busy_s: Floats, target_s: Floats, cut: NDArray[np.bool_]
    ) -> Ints:
        """Those that are `wanted` after batches of these operators, unless they were made smaller in vain."""
        late = busy_s > 1.5 * target_s
        found = wanted.copy()
        for i in np.flatnonzero((rows > 0) & (late | self._watched[which])):
            operator = int(which[i])
            found[i] = self._bound(
                operator, int(before[i]), int(wanted[i]), int(rows[i]), float(busy_s[i]), late=bool(late[i]), cut=bool(cut[i])
            )
            self._watched[operator] = self._shrunk[operator] is not None or self._left[operator] > 0
        return found

    def _bound(self, o: int, before: int, wanted: int, rows: int, busy_s: float, *, late: bool, cut: bool) -> int:
        if self._left[o] and late and busy_s <= MUCH_LONGER * self._spared_s[o]:
            self._left[o] -= 1
            if busy_s > HARDLY_LONGER * self._spared_s[o]:
                return self._given[o]
            doubles = cut and self._left[o] in DOUBLED and before < self._start
            return min(2 * before, self._start) if doubles else before
        self._left[o] = 0
        if not late:
            self._shrunk[o] = None
            return wanted
        shrunk = self._shrunk[o]
        if shrunk is None:
            if wanted < before or before <= self._least:
                self._shrunk[o] = (before, rows, busy_s, 0)
            return wanted
        bound, slow_rows, slow_s, in_vain = shrunk
        if busy_s >= HARDLY_SHORTER * slow_s and (rows <= CLEARLY_FEWER * slow_rows or before <= self._least):
            self._shrunk[o] = (bound, slow_rows, slow_s, in_vain + 1)
            if in_vain + 1 >= IN_VAIN:
                self._shrunk[o], self._left[o] = None, SPARED
                self._spared_s[o], self._given[o] = max(slow_s, busy_s), max(before, bound)
                return self._given[o]
        elif busy_s < HARDLY_SHORTER * slow_s:
            self._shrunk[o] = (before, rows, busy_s, 0)
        return wanted


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
