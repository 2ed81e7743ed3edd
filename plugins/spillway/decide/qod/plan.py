"""One cycle of the controller: from columns to the accuracy every query can have (algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod import floors, shed
from spillway.decide.qod.accuracy import current, demand, steady
from spillway.decide.qod.cpu import CORE, Load, affine, available, capped, in_executors, on_nodes, proportional, required
from spillway.decide.qod.fill import ALIKE, NOTHING, Filled
from spillway.decide.qod.propagate import upward
from spillway.decide.qod.uses import Uses, uses
from spillway.decide.qod.world import Flags, Floats, Ints, World, highest
from spillway.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """Instances that floors need beyond those there are, whose cores do not suffice."""

    instances: dict[int, int]
    """By operator."""
    cpu: float
    """CPU they need and no node has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    possible: Floats
    """By query: the accuracy the CPU allows."""
    most: Floats
    """By query: the accuracy it may have at best; below 1 while a node it runs on warms up."""
    limit: Ints
    """By query: the resource that is used up (see `Uses`), or NOTHING."""
    available: Floats
    """By node: what floors may use."""
    usable: Floats
    """By resource (see `Uses`): what may be used above the floors."""
    load: Load
    floor: Floats
    """By operator."""
    moves: tuple[floors.Moved, ...]
    below_floor: Ints
    """Queries whose floor cannot be met, by number."""
    addition: dict[int, float]
    """CPU by node whose addition would make all floors fit."""
    more: Further


def plan(world: World, policy: Policy, before: Floats | None = None) -> Plan:
    """`before`: by query, the accuracy that the keeps in force deliver; None: everything."""
    floor = upward(world, world.floor)
    demanded = demand(world, policy.qod_drain_horizon_s, policy.qod_lag_ignored_s)
    load = _load(world, demanded, floor, policy)
    offered = available(world)
    broken = np.zeros(len(world.query), dtype=bool) if before is None else before < world.floor - ALIKE
    promise = keep_floors(world, _load(world, steady(world), floor, policy), floor, policy.qod_seed, Backlog(load, broken))
    most = shed.ceiling(world, floor)
    begun = upward(world, promise.start)
    slope = np.where(begun < floor - ALIKE, np.maximum(load.own, load.extra), load.extra)
    share = 1.0 - policy.qod_headroom
    above = uses(world, load, slope, floor, share)
    usable = np.concatenate([offered - policy.qod_headroom * CORE * world.cores, share * CORE * world.executor_cores])
    left = usable - _used(world, load, floor, promise.start)  # below 0 where floors use the headroom, or a backlog is for later
    capacity = np.maximum(left, 0.0) + above.at(begun, len(left))
    filled = shed.distribute(world, above, capacity, promise.start, most, shed.pace(world, load, slope))
    return Plan(
        possible=filled.accuracy,
        most=most,
        limit=np.where(promise.limit == NOTHING, filled.limit, promise.limit),
        available=offered,
        usable=usable,
        load=load,
        floor=floor,
        moves=promise.moves,
        below_floor=promise.below,
        addition=promise.addition,
        more=promise.more,
    )


def _load(world: World, demanded: Floats, floor: Floats, policy: Policy) -> Load:
    present = current(world, demanded, most=np.inf)
    if policy.cpu_model == "affine":
        return affine(world, present, demanded, floor)
    return proportional(world, present, floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    start: Floats
    """By query: its floor; less where that cannot be met."""
    limit: Ints
    below: Ints
    moves: tuple[floors.Moved, ...]
    addition: dict[int, float]
    more: Further


@dataclass(frozen=True, slots=True)
class Backlog:
    load: Load
    """With what waits in the demand."""
    broken: Flags
    """Queries that are below their floor already."""


def keep_floors(world: World, load: Load, floor: Floats, seed: int, backlog: Backlog | None = None) -> Promise:
    """Do the floors fit, perhaps after some moves? Else they are honoured from the highest priority down.

    `load` is that of what arrives: no floor is given up, and nothing moved, for what merely waits. Only a query whose floor is
    broken and stays so gives way to the `backlog` too, which else would never be worked off.

    Floors are judged as they are after the moves: none is given up for an instance that is about to leave its node, also where
    others do not fit. What is shared above them is for the world as it is, and has nothing of what a move will release before the
    instance is seen elsewhere.
    """
    at_floors = required(world, load, floor, floor)
    needed = capped(world, at_floors)
    rank = upward(world, world.rank.astype(float))
    offered = available(world)
    relief = floors.relieve(world, needed, offered, rank, seed=seed)
    slow = in_executors(world, shed.slowed(world).astype(float)) > 0.0
    most = np.where(slow, np.inf, CORE * world.executor_cores)
    cramped = in_executors(world, at_floors) > most + ALIKE
    start, limit = world.floor, np.full(len(world.query), NOTHING)
    addition: dict[int, float] = {}
    if relief.short or cramped.any():
        nodes = np.where(floors.warming(world), np.inf, offered + relief.released(len(offered)))
        filled = _floors_by_priority(world, load, floor, nodes, most)
        start, limit = filled.accuracy, filled.limit
        if backlog is not None and backlog.broken.any():
            drained = np.minimum(start, _floors_by_priority(world, backlog.load, floor, nodes, most).accuracy)
            start = np.where(backlog.broken & (start < world.floor - ALIKE), drained, start)
        addition = floors.addition(world, needed, offered, rank, relief, seed=seed)
    return Promise(
        start=start,
        limit=limit,
        below=np.flatnonzero(start < world.floor - ALIKE),
        moves=relief.moves,
        addition=addition,
        more=_further(world, load, at_floors, cramped, offered, addition) if cramped.any() else Further(instances={}, cpu=0.0),
    )


def _further(world: World, load: Load, at_floors: Floats, cramped: Flags, offered: Floats, addition: dict[int, float]) -> Further:
    """Instances enough that no executor needs more cores than it has. They share the rows of those there are; each costs
    `idle` anew.

    Where the floors of the others and the addition leave CPU unused, on whichever node, it is theirs.
    """
    anyway, most = in_executors(world, load.idle), CORE * world.executor_cores
    helps = cramped & (anyway < most)
    times = np.divide(in_executors(world, at_floors) - anyway, most - anyway, out=np.ones_like(most), where=helps)
    times = highest(world.member_operator, np.where(helps, times, 0.0)[world.member_executor], len(world.operators))
    helped, needed = np.flatnonzero(times > 0.0), capped(world, at_floors)
    idle, count = load.idle[helped], world.instances[helped]
    enough = np.ceil(times[helped] * count - ALIKE)
    wanted = float(np.sum((at_floors[helped] - idle - needed[helped]) * count + idle * enough))
    unused = (offered - on_nodes(world, needed))[floors.usable(world)].sum() + sum(addition.values())
    return Further(
        instances=dict(zip(helped.tolist(), (enough - count).astype(int).tolist(), strict=True)),
        cpu=max(wanted - float(unused), 0.0),
    )


def _used(world: World, load: Load, floor: Floats, accuracy: Floats) -> Floats:
    """By resource, at an accuracy of the queries."""
    of_instance = required(world, load, upward(world, accuracy), floor)
    return np.concatenate([on_nodes(world, of_instance), in_executors(world, of_instance)])


def _floors_by_priority(world: World, load: Load, floor: Floats, nodes: Floats, cores: Floats) -> Filled:
    """Floors that do not all fit are honoured from the highest priority down."""
    rows: Uses = uses(world, load, load.own, floor)
    capacity = np.concatenate([nodes - on_nodes(world, load.fixed), cores - in_executors(world, load.fixed)])
    zero = np.zeros(len(world.query))
    return shed.distribute(world, rows, capacity, zero, world.floor, shed.pace(world, load, load.own))
