"""Do the floors fit? If not on a node, what moves where; if not with every node together, how many cores are missing.

The papers assume that somewhere there is room for what is moved. Here an instance moves only to a node that can hold its floor
beside the floors of all that is there; where there is none, the floors are infeasible, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.cpu import CORE
from spillway.decide.qod.repack import MOST_ITEMS, MOST_PACKED, SLIVER, repack
from spillway.decide.qod.reschedule import Candidate, choose
from spillway.decide.qod.schedule import estimate, place
from spillway.decide.qod.world import Flags, Floats, World, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    instance: int
    """Position in the world."""
    source: int
    target: int
    required: float
    short: float
    """What the floors on `source` are short of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    moves: tuple[Moved, ...]
    short: Mapping[int, float]
    """Nodes whose floors still do not fit, and by how many percent of a core."""
    missing: Floats | None = None
    """By node: the least that any placement was found to be short of; None when none was looked for."""

    def released(self, nodes: int) -> Floats:
        gone = np.zeros(nodes)
        for move in self.moves:
            gone[move.source] += move.required
        return gone


def relieve(world: World, required: Floats, available: Floats, rank: Floats, *, seed: int = 0) -> Plan:
    """Moves that make the floors fit; `required` is CPU of one instance at its min_accuracy, `rank` its priority, by operator."""
    able = usable(world)
    size = required[world.operator_of]
    needed = total(world.node_of, size, len(world.nodes))
    over = np.flatnonzero(able & (needed > available + SLIVER))
    if not len(over):
        return Plan(moves=(), short={})
    room, unused = np.where(able, available - needed, -np.inf), free(world)
    home, short = world.node_of.copy(), {}
    by_node = np.argsort(world.node_of, kind="stable")
    begin = np.searchsorted(world.node_of[by_node], np.arange(len(world.nodes) + 1))
    for source in over.tolist():
        here = by_node[begin[source] : begin[source + 1]]
        here = here[world.movable[here]]
        candidates = [
            Candidate(need, priority, i)
            for need, priority, i in zip(
                size[here].tolist(), rank[world.operator_of[here]].astype(int).tolist(), here.tolist(), strict=True
            )
        ]
        target = float(needed[source] - available[source])
        placed = _place(world, candidates, target, source, room, unused, seed)
        for candidate, to in placed:
            home[candidate.instance] = to
            room[to] -= candidate.required
            unused[to] -= estimated(world, candidate.instance)
        if (left := target - sum(c.required for c, _ in placed)) > SLIVER:
            short[source] = left
    missing: Floats | None = None
    hopeless = needed[able].sum() > available[able].sum() + SLIVER
    if short and len(size) <= (MOST_PACKED if hopeless else MOST_ITEMS):
        free_to, stays = world.movable, ~world.movable
        capacity = np.where(able, available - total(world.node_of[stays], size[stays], len(available)), -np.inf)
        elsewhere, missing = repack(size[free_to], world.node_of[free_to], capacity, seed=seed)
        if not missing.any():
            home, short = world.node_of.copy(), {}
            home[free_to] = elsewhere
    moves = tuple(
        Moved(
            instance=i,
            source=(source := int(world.node_of[i])),
            target=int(home[i]),
            required=float(size[i]),
            short=max(float(needed[source] - available[source]), 0.0),
        )
        for i in np.flatnonzero(home != world.node_of).tolist()
    )
    return Plan(moves=moves, short=short, missing=missing)


def _place(
    world: World, candidates: list[Candidate], target: float, source: int, room: Floats, unused: Floats, seed: int
) -> list[tuple[Candidate, int]]:
    """The paper's choice if all of it can be placed, else its choice among what fits somewhere."""
    able = max(np.max(room[:source], initial=-np.inf), np.max(room[source + 1 :], initial=-np.inf)) + SLIVER
    fitting = [c for c in candidates if c.required <= able]
    first = choose(candidates, target)
    best: list[tuple[Candidate, int]] = []
    for choice in (first if all(c.required <= able for c in first) else [], choose(fitting, target)):
        placed = _fit(world, choice, source, room.copy(), unused.copy(), seed)
        if sum(c.required for c, _ in placed) >= target - SLIVER:
            return placed
        best = max(best, placed, key=lambda p: sum(c.required for c, _ in p))
    return best


def _fit(
    world: World, choice: Iterable[Candidate], source: int, room: Floats, unused: Floats, seed: int
) -> list[tuple[Candidate, int]]:
    placed: list[tuple[Candidate, int]] = []
    room[source] = -np.inf
    for candidate in sorted(choice, key=lambda c: (-c.required, c.instance)):
        fits = np.flatnonzero(room >= candidate.required - SLIVER)
        most = fits[unused[fits] == np.max(unused[fits], initial=-np.inf)].tolist()
        nodes = {world.nodes[n].name: n for n in most}
        cpu = estimated(world, candidate.instance)
        name = place(cpu, {name: float(unused[n]) for name, n in nodes.items()}, seed=seed)
        if name is not None:
            placed.append((candidate, nodes[name]))
            room[nodes[name]] -= candidate.required
            unused[nodes[name]] -= cpu
    return placed


def addition(world: World, required: Floats, available: Floats, rank: Floats, plan: Plan, *, seed: int = 0) -> dict[int, float]:
    """The smallest addition of CPU, by node, after which `relieve` makes every floor fit.

    What the nodes are short of always suffices. It may take less to add it elsewhere, where an instance then has room to go to;
    in small worlds the least a search over placements came to is taken, if `relieve` finds its way there.
    """
    plain = {n: math.ceil(cpu * 1e4 - SLIVER) / 1e4 for n, cpu in plan.short.items()}  # up, so that it still suffices
    if plan.missing is not None and len(world.node_of) <= MOST_PACKED:
        missing = np.ceil(plan.missing * 1e4 - SLIVER) / 1e4
        if missing.sum() < sum(plain.values()) and not relieve(world, required, available + missing, rank, seed=seed).short:
            return {n: float(missing[n]) for n in np.flatnonzero(missing).tolist()}
    return plain


def warming(world: World) -> Flags:
    """Nodes that hold an instance whose figures mean nothing yet: nothing is moved off or onto them."""
    result = world.node_warming.copy()
    result[world.node_of[world.warming]] = True
    return result


def usable(world: World) -> Flags:
    """Nodes that something may be moved off or onto."""
    return ~warming(world) & ~np.isnan(world.node_cpu)


def free(world: World) -> Floats:
    """`100·cores − cpu − Σ estimates of instances that have no metrics yet`, by node."""
    unused = CORE * world.cores - np.nan_to_num(world.node_cpu)
    for instance in np.flatnonzero(np.isnan(world.cpu)).tolist():
        unused[world.node_of[instance]] -= estimated(world, instance)
    return unused


def estimated(world: World, instance: int) -> float:
    operator = world.operators[world.operator_of[instance]]
    own = world.cpu[instance]
    return estimate(None if np.isnan(own) else float(own), [i.cpu for i in operator.instances])
