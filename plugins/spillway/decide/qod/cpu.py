"""What an accuracy costs: the CPU of one instance of every operator as a straight line.

`cpu(t) = fixed(t) + own(t)·min(a, floor) + extra(t)·max(a − floor, 0) + Σ over inputs read(e)·accuracy(producer(e))`, where a is
the accuracy of t. In the papers' model (`proportional`) only `own = extra = cpu(t)/current(t)` is not zero. A micro-batch also
costs when all of its rows are shed, and so does reading them: `affine` takes the learned `Cost` of an operator that has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.accuracy import slowest_rate, telling_rate
from spillway.decide.qod.world import OUTSIDE, Floats, World, lowest, or_zero, total

CORE = 100.0
"""One full core; what a task that runs can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    fixed: Floats
    own: Floats
    extra: Floats
    read: Floats
    """By edge; the rest is by operator."""
    idle: Floats
    """Of `fixed`, what an instance costs however few rows it gets."""


def measured(world: World) -> Floats:
    """(6) `cpu(t)` = CPU of the instance with the smallest in_rate; of the first one among equals.

    >>> from spillway.decide.qod.examples import single
    >>> measured(single(in_rates=(50.0, 40.0), cpu=30.0)).tolist()
    [30.0]
    """
    slowest = np.flatnonzero(telling_rate(world) == slowest_rate(world)[world.operator_of])[::-1]
    chosen = world.first_instance.copy()
    chosen[world.operator_of[slowest]] = slowest
    return or_zero(world.cpu[chosen]) if len(world.cpu) else world.cpu


def spent_on(world: World) -> Floats:
    """Of the rows that came in, the share that the CPU was used for, by operator: less than 1 while load rises and many of them
    are still in flight. What they cost is cpu(t) by the rows that were done.

    >>> from dataclasses import replace
    >>> from spillway.decide.qod.examples import single
    >>> spent_on(replace(single(in_rates=(300.0,)), done_rate=np.array([150.0]))).tolist()
    [0.5]
    """
    share = np.divide(world.done_rate, world.in_rate, out=np.ones_like(world.in_rate), where=world.in_rate > 0.0)
    known = share > 0.0  # nothing done says nothing of what a row costs; nor does what is not known
    return lowest(world.operator_of, np.where(known, share, 1.0), len(world.operators), 1.0)


def proportional(world: World, current: Floats, floor: Floats) -> Load:
    """(8) `required(t, a) = a·cpu(t)/current(t)`. Nothing gets through at present (current = 0): a full core is the best bet.

    `current` may be more than 1: whoever works off a backlog uses CPU that it will not need. Where load rises, cpu(t) is that of
    the rows that were done (`spent_on`).

    The bet is reserved whole for a floor; without a floor the way from nothing to everything is a straight line to that core,
    where (11) would promise everything for the first percent of it.

    >>> from spillway.decide.qod.examples import single
    >>> load = proportional(single(cpu=50.0), np.array([0.5]), np.array([0.2]))
    >>> load.own.tolist(), load.extra.tolist()
    ([100.0], [100.0])
    >>> load = proportional(single(cpu=50.0), np.array([0.0]), np.array([0.2]))
    >>> load.own.tolist(), load.extra.tolist()          # 0.2 · 500 = one core for the floor, nothing more above it
    ([500.0], [0.0])
    """
    stalled = current <= 0.0
    slope = np.divide(measured(world), current * spent_on(world), out=np.zeros_like(current), where=~stalled)
    core = _at_best(world)
    bet = np.divide(core, floor, out=np.zeros_like(floor), where=floor > 0.0)
    return Load(
        fixed=np.zeros_like(current),
        own=np.where(stalled, bet, slope),
        extra=np.where(stalled, np.where(floor > 0.0, 0.0, core), slope),
        read=np.zeros(len(world.edges)),
        idle=np.zeros_like(current),
    )


def _at_best(world: World) -> Floats:
    """By operator, a full core, or an even share of an executor that has fewer cores than instances."""
    share = CORE * world.executor_cores / in_executors(world, np.ones(len(world.operators)))
    return lowest(world.member_operator, share[world.member_executor], len(world.operators), CORE)


def affine(world: World, current: Floats, demanded: Floats, floor: Floats) -> Load:
    """`cpu = fixed + per_arrived · rows read + per_kept · rows kept`, where an operator has a learned cost; else proportional.

    Rows read follow the accuracy of the producers, rows kept the operator's own. An operator whose producers stand still has no
    known demand and stays proportional.

    >>> from dataclasses import replace
    >>> from spillway.decide.qod.examples import single
    >>> from spillway.model.qod import Cost
    >>> world = single(out_rate=100.0)
    >>> world = replace(world, operators=(replace(world.operators[0], cost=Cost(fixed=10.0, per_arrived=0.2, per_kept=0.4)),))
    >>> load = affine(world, np.array([0.5]), world.out_rate, np.array([0.0]))
    >>> load.fixed.tolist(), load.own.tolist()           # 10 + 0.2·100 whatever is kept, 0.4·100 for all of it
    ([30.0], [40.0])
    """
    plain = proportional(world, current, floor)
    outside = world.producer == OUTSIDE
    arriving = np.where(outside, 1.0, current[world.producer])
    at_full = np.divide(demanded, arriving, out=np.full_like(demanded, np.inf), where=arriving > 0.0)
    at_full = np.where(demanded > 0.0, at_full, 0.0) / world.instances[world.consumer]
    rows = total(world.consumer, at_full, len(world.operators))
    known = np.array([o.cost is not None for o in world.operators], dtype=bool) & np.isfinite(rows)
    costs = [(c.fixed, c.per_arrived, c.per_kept) if (c := o.cost) else (0.0, 0.0, 0.0) for o in world.operators]
    fixed, per_arrived, per_kept = np.array(costs, dtype=np.float64).reshape(-1, 3).T
    reading = np.where(known[world.consumer], per_arrived[world.consumer] * np.where(np.isfinite(at_full), at_full, 0.0), 0.0)
    kept = per_kept * np.where(known, rows, 0.0)
    return Load(
        fixed=np.where(known, fixed + total(world.consumer, np.where(outside, reading, 0.0), len(rows)), plain.fixed),
        own=np.where(known, kept, plain.own),
        extra=np.where(known, kept, plain.extra),
        read=np.where(outside, 0.0, reading),
        idle=np.where(known, fixed, 0.0),
    )


def required(world: World, load: Load, accuracy: Floats, floor: Floats) -> Floats:
    """(8) CPU of one instance when every operator has its accuracy; uncapped, so that a need beyond one core is seen.

    >>> from spillway.decide.qod.examples import single
    >>> load = proportional(single(cpu=50.0), np.array([0.5]), np.array([0.2]))
    >>> required(single(), load, np.array([0.8]), np.array([0.2])).tolist()
    [80.0]
    """
    reading = total(world.consumer, load.read * np.where(world.producer == OUTSIDE, 0.0, accuracy[world.producer]), len(floor))
    return load.fixed + reading + load.own * np.minimum(accuracy, floor) + load.extra * np.maximum(accuracy - floor, 0.0)


def available(world: World) -> Floats:
    """`available(n) = 100·cores(n) − cpu(n) + Σ cpu(i) on n`: what the operators may use, no more than the node has.

    >>> from spillway.decide.qod.examples import chain
    >>> available(chain()).tolist()
    [95.0]
    """
    ours = total(world.node_of, or_zero(world.cpu), len(world.nodes))
    whole = CORE * world.cores
    used = np.minimum(or_zero(world.node_cpu), whole)  # a measurement may say a little more
    return whole - np.maximum(used - ours, 0.0)


def on_nodes(world: World, of_operator: Floats) -> Floats:
    """A figure per instance of every operator, summed over the instances of each node."""
    return total(world.node_of, of_operator[world.operator_of], len(world.nodes))


def in_executors(world: World, of_operator: Floats) -> Floats:
    """A figure per instance of every operator, summed over the instances of one executor of every kind."""
    return total(world.member_executor, world.member_count * of_operator[world.member_operator], len(world.executor_cores))


def capped(world: World, of_operator: Floats) -> Floats:
    """CPU per instance of every operator, all members of an executor cut alike where that has too few cores.

    >>> from spillway.decide.qod.examples import chain
    >>> capped(chain(), np.array([40.0, 130.0])).tolist()
    [40.0, 100.0]
    """
    used = in_executors(world, of_operator)
    most = CORE * world.executor_cores
    share = np.divide(most, used, out=np.ones_like(most), where=used > most)
    return of_operator * lowest(world.member_operator, share[world.member_executor], len(world.operators))
