"""Do the floors fit? If not on a node, what moves where; if not with every node together, how many cores are missing.

The papers assume that somewhere there is room for what is moved. Here an instance moves only to a node that can hold its floor
beside the floors of all that is there; where there is none, the floors are infeasible, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.cpu import CORE
from spillway.decide.qod.reschedule import Candidate, choose
from spillway.decide.qod.schedule import estimate, place
from spillway.decide.qod.world import Flags, Floats, World, total

SLIVER = 1e-9


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

    def released(self, nodes: int) -> Floats:
        gone = np.zeros(nodes)
        for move in self.moves:
            gone[move.source] += move.required
        return gone


def relieve(world: World, required: Floats, available: Floats, rank: Floats, *, seed: int = 0) -> Plan:
    """Moves that make the floors fit; `required` is CPU of one instance at its min_accuracy, `rank` its priority, by operator."""
    quiet = ~warming(world)
    needed = total(world.node_of, required[world.operator_of], len(world.nodes))
    room = np.where(quiet & ~np.isnan(world.node_cpu), available - needed, -np.inf)
    unused = free(world)
    moves: list[Moved] = []
    short: dict[int, float] = {}
    over = np.flatnonzero(quiet & (needed > available + SLIVER))
    if not len(over):
        return Plan(moves=(), short={})
    by_node = np.argsort(world.node_of, kind="stable")
    begin = np.searchsorted(world.node_of[by_node], np.arange(len(world.nodes) + 1))
    for source in over.tolist():
        target = float(needed[source] - available[source])
        here = by_node[begin[source] : begin[source + 1]].tolist()
        candidates = [
            Candidate(float(required[o]), int(rank[o]), i) for i in here if required[o := int(world.operator_of[i])] > SLIVER
        ]
        placed = _place(world, candidates, target, source, room, unused, seed)
        for candidate, to in placed:
            moves.append(Moved(instance=candidate.instance, source=source, target=to, required=candidate.required, short=target))
            room[to] -= candidate.required
            unused[to] -= estimated(world, candidate.instance)
        if (left := target - sum(c.required for c, _ in placed)) > SLIVER:
            short[source] = left
    return Plan(moves=tuple(moves), short=short)


def _place(
    world: World, candidates: list[Candidate], target: float, source: int, room: Floats, unused: Floats, seed: int
) -> list[tuple[Candidate, int]]:
    """The paper's choice if all of it can be placed; else its choice among what fits somewhere; else whatever helps."""
    able = np.max(np.delete(room, source), initial=-np.inf)
    fitting = [c for c in candidates if c.required <= able + SLIVER]
    largest_first = sorted(fitting, key=lambda c: (c.priority, -c.required, c.instance))
    best: list[tuple[Candidate, int]] = []
    for choice in (choose(candidates, target), choose(fitting, target), largest_first):
        placed = _fit(world, choice, target, source, room.copy(), unused.copy(), seed)
        if sum(c.required for c, _ in placed) >= target - SLIVER:
            return placed
        best = max(best, placed, key=lambda p: sum(c.required for c, _ in p))
    return best


def _fit(
    world: World, choice: Iterable[Candidate], target: float, source: int, room: Floats, unused: Floats, seed: int
) -> list[tuple[Candidate, int]]:
    placed: list[tuple[Candidate, int]] = []
    for candidate in sorted(choice, key=lambda c: (-c.required, c.instance)):
        if target <= SLIVER:
            break
        room[source] = -np.inf
        nodes = np.flatnonzero(room >= candidate.required - SLIVER).tolist()
        cpu = estimated(world, candidate.instance)
        name = place(cpu, {world.nodes[n].name: float(unused[n]) for n in nodes}, seed=seed)
        if name is not None:
            to = next(n for n in nodes if world.nodes[n].name == name)
            placed.append((candidate, to))
            room[to] -= candidate.required
            unused[to] -= cpu
            target -= candidate.required
    return placed


def addition(world: World, required: Floats, available: Floats, rank: Floats, plan: Plan, *, seed: int = 0) -> dict[int, float]:
    """The smallest addition of CPU, by node, after which `relieve` makes every floor fit.

    What the nodes are short of always suffices. It may take less to make room elsewhere, for an instance larger than the gap it
    leaves to close: every instance of a short node is tried on the node with the most room.
    """
    best = dict(plan.short)
    quiet = ~warming(world) & ~np.isnan(world.node_cpu)
    needed = total(world.node_of, required[world.operator_of], len(world.nodes))
    for move in plan.moves:
        needed[move.source] -= move.required
        needed[move.target] += move.required
    room = np.where(quiet, available - needed, -np.inf)
    gone = {move.instance for move in plan.moves}
    for source, short in plan.short.items():
        others = room.copy()
        others[source] = -np.inf
        to = int(np.argmax(others)) if len(others) else source
        if not others[to] > 0.0:
            continue
        sizes = {float(required[world.operator_of[i]]) for i in np.flatnonzero(world.node_of == source).tolist() if i not in gone}
        for size in sorted(sizes, reverse=True):
            extra = {source: max(short - size, 0.0), to: max(size - float(others[to]), 0.0)}
            trial = {**best, source: extra[source], to: best.get(to, 0.0) + extra[to]}
            if sum(trial.values()) < sum(best.values()) - SLIVER:
                more = available.copy()
                for node, cpu in trial.items():
                    more[node] += cpu + SLIVER
                if not relieve(world, required, more, rank, seed=seed).short:
                    best = {node: cpu for node, cpu in trial.items() if cpu > SLIVER}
                    room[to] = available[to] - needed[to] + best.get(to, 0.0) - size
                    break
    return best


def warming(world: World) -> Flags:
    """Nodes that hold an instance whose figures mean nothing yet: nothing is moved off or onto them."""
    result = np.zeros(len(world.nodes), dtype=bool)
    result[world.node_of[world.warming]] = True
    return result


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
