"""How much of its demand every operator manages at present: equations 3 and 4 of the paper, with the backlog in the demand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spillway.decide.qod.world import OUTSIDE, Floats, World, or_zero, total

HARDLY = 1e-6
"""Of what waits, the share that counts as arriving, so that work on it is catching up also where nothing arrives."""


def demand(world: World, drain_horizon_s: float | None, lag_ignored_s: float = 0.0) -> Floats:
    """Rows per second every edge has to carry: what arrives, and what waits, spread over the drain horizon.

    The paper takes arrivals only (None), and lags grow from what it forgets. An unknown lag adds nothing here; the raise of
    whatever depends on it is refused elsewhere.

    >>> from spillway.decide.qod.examples import single
    >>> demand(single(out_rate=100.0, lag=600.0), 30.0).tolist(), demand(single(out_rate=100.0, lag=600.0), None).tolist()
    ([120.0], [100.0])
    """
    if drain_horizon_s is None:
        return world.out_rate
    backlog = or_zero(world.lag) - lag_ignored_s * world.out_rate
    return world.out_rate + np.maximum(backlog, 0.0) / drain_horizon_s


def steady(world: World) -> Floats:
    """Rows per second every edge has to carry once nothing waits: what floors are promised of.

    >>> from spillway.decide.qod.examples import single
    >>> steady(single(out_rate=100.0, lag=600.0)).tolist()
    [100.0]
    """
    return np.maximum(world.out_rate, HARDLY * or_zero(world.lag))


def local(world: World, demanded: Floats, *, most: float = 1.0) -> Floats:
    """(4) `local(t) = min_i in_rate(i) / (Σ demand of its inputs / instances(t))`, in [0, 1]; 1 when nothing is asked of it.

    An accuracy is no more than 1. What the CPU was used for is: who works off a backlog does more than is asked (`most`).

    Two instances of which the slower does 40 of 50 rows per second:

    >>> from spillway.decide.qod.examples import single
    >>> world = single(out_rate=100.0, in_rates=(50.0, 40.0))
    >>> local(world, world.out_rate).tolist()
    [0.8]
    >>> local(world, world.out_rate / 4.0).tolist(), local(world, world.out_rate / 4.0, most=np.inf).tolist()
    ([1.0], [3.2])
    """
    slowest = slowest_rate(world)
    asked = total(world.consumer, demanded, len(world.operators)) / world.instances
    return np.minimum(np.maximum(np.divide(slowest, asked, out=np.ones_like(asked), where=asked > 0.0), 0.0), most)


def telling_rate(world: World) -> Floats:
    """The in_rate of every instance; NaN of one that warms up beside others that do not, for its own says nothing yet."""
    if not world.warming.any():
        return world.in_rate
    settled = np.bincount(world.operator_of, ~world.warming, len(world.operators)) > 0
    return np.where(world.warming & settled[world.operator_of], np.nan, world.in_rate)


def slowest_rate(world: World) -> Floats:
    """The smallest in_rate of every operator; 0 while all its instances are so new that nothing was measured."""
    return or_zero(np.fmin.reduceat(telling_rate(world), world.first_instance)) if len(world.in_rate) else world.in_rate


def upstream(world: World, of_itself: Floats) -> Floats:
    """The least current accuracy directly upstream of every operator; rows from outside have 1."""
    inner = world.producer != OUTSIDE
    least = np.ones(len(world.operators))
    least[world.consumer[inner]] = np.inf
    least[world.consumer[~inner]] = 1.0
    for begin, end in pairwise(world.steps):
        layer = world.inner[begin:end]
        above = world.producer[layer]
        np.minimum.at(least, world.consumer[layer], of_itself[above] * least[above])
    return least


def current(world: World, demanded: Floats, *, most: float = 1.0) -> Floats:
    """(3) `current(t) = local(t) · min over upstream current`; a source has its local accuracy. `most` is that of `local`.

    The interchange example: the union does 100 of 120, the bill behind it 80 of the union's 100:

    >>> from spillway.decide.qod.examples import chain
    >>> world = chain()
    >>> current(world, world.out_rate).round(3).tolist()
    [0.833, 0.667]
    """
    of_itself = local(world, demanded, most=most)
    return of_itself * upstream(world, of_itself)
