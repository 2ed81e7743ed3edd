"""Rows on the way: what an operator has written was shed above it by the keeps of then, and meets those of now below it."""

from __future__ import annotations

import numpy as np

from spillway.decide.qod.fill import ALIKE
from spillway.decide.qod.propagate import downward, upward
from spillway.decide.qod.world import Flags, Floats, World

MOST = 1.25
"""So many times its accuracy a query gets for that at most: it may have no CPU for more."""


def for_rows_on_the_way(world: World, accuracy: Floats, in_force: Floats, may_rise: Flags, raise_limit: float) -> Floats:
    """By query: `accuracy`, or as much more as rows need that were written under the keeps in force, to stay above its floor.

    A row that operator p has written is one of `old(p)` of the source events, and p is to deliver `new(p)` from now on. Below p
    it meets keeps that are made for `new(p)`, so that query q gets `old(p) / new(p)` of its accuracy. Where more is delivered
    above than before, q needs `floor · new(p) / old(p)`. It gets that within what one cycle may raise and `MOST` times what it
    would have; not if it is below its floor anyway, or was. Rows that wait since an earlier decision are not looked at.

    B had its floor of 0.2 behind a union that kept 0.88. The union is to keep everything again, so B goes on with 0.23 of that:

    >>> from spillway.decide.qod.examples import fork
    >>> world, may_rise = fork(floors=(0.8, 0.2)), np.ones(2, dtype=bool)
    >>> in_force = np.array([0.88, 0.88, 1.0, 1.0, 1.0, 0.2 / 0.88])
    >>> for_rows_on_the_way(world, np.array([1.0, 0.2]), in_force, may_rise, 0.1).round(4).tolist()
    [1.0, 0.2273]
    """
    old, new = downward(world, in_force), upward(world, accuracy)
    before = old[world.query]
    above = world.pair_operator != world.query[world.pair_query]
    operator, query = world.pair_operator[above], world.pair_query[above]
    rise = np.zeros(len(accuracy))
    np.maximum.at(rise, query, np.divide(new, old, out=np.zeros_like(new), where=old > 0.0)[operator])
    needed = np.minimum(np.minimum(world.floor * rise, before + raise_limit), MOST * accuracy)
    kept = may_rise & (np.minimum(accuracy, before) >= world.floor - ALIKE)
    return np.where(kept & (needed > accuracy + ALIKE), np.minimum(needed, 1.0), accuracy)
