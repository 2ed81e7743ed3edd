"""The papers' cycle word for word (algorithms 1 to 3, thesis algorithm 3.1), for comparison: `--policy paper`.

Only algorithm 2 is as its worked example has it (see reschedule.py). A moved instance runs at its min_accuracy, as everything
that warms up does. Symbols as in the paper: `rCpu` required, `obtAc` obtained, `aCpu` available, `cAc` current accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from spillway.decide.qod import shed
from spillway.decide.qod.accuracy import current
from spillway.decide.qod.cpu import CORE, measured, proportional
from spillway.decide.qod.fill import NOTHING
from spillway.decide.qod.floors import Moved, estimated, free, warming
from spillway.decide.qod.plan import Plan, keep_floors
from spillway.decide.qod.propagate import upward
from spillway.decide.qod.reschedule import Candidate, choose
from spillway.decide.qod.schedule import place
from spillway.decide.qod.world import World, total


def required(current: float, cpu: float, accuracy: float) -> float:
    """(8)

    >>> required(0.5, 50.0, 0.8), required(0.5, 90.0, 0.8), required(0.0, 50.0, 0.0), required(0.0, 50.0, 0.1)
    (80.0, 100.0, 0.0, 100.0)
    """
    if current == 0.0:
        return 0.0 if accuracy == 0.0 else CORE
    return min(accuracy * cpu / current, CORE)


def obtained(current: float, cpu: float, given: float) -> float:
    """(11)

    >>> obtained(0.5, 50.0, 80.0), obtained(0.5, 50.0, 200.0)
    (0.8, 1.0)
    >>> obtained(0.0, 50.0, 0.0), obtained(0.0, 50.0, 1.0), obtained(0.5, 0.0, 0.0), obtained(0.5, 0.0, 1.0)
    (0.0, 1.0, 0.5, 1.0)
    """
    if current == 0.0:
        return 0.0 if given == 0.0 else 1.0
    if cpu == 0.0:
        return current if given == 0.0 else 1.0
    return min(current * given / cpu, 1.0)


@dataclass(slots=True)
class _Cycle:
    """What algorithm 1 changes while it runs."""

    desired: list[float]
    limit: list[int]
    available: list[float]
    here: dict[int, list[int]]
    """Instances by node; moved ones are gone."""


class Literal:
    def __init__(self, world: World) -> None:
        self.world = world
        self.current = current(world, world.out_rate).tolist()
        self.cpu = measured(world).tolist()
        self.floor = upward(world, world.floor).tolist()
        self.priority = [int(p) for p in upward(world, world.rank.astype(float)).tolist()]
        self.of = world.operator_of.tolist()
        self.below: list[list[int]] = [[] for _ in world.operators]
        for operator, query in zip(world.pair_operator.tolist(), world.pair_query.tolist(), strict=True):
            self.below[operator].append(query)
        self.least = [required(self.current[t], self.cpu[t], self.floor[t]) for t in range(len(world.operators))]

    def wants(self, state: _Cycle, operator: int) -> float:
        """(12) `max_required − min_required`, with (5) and (10)."""
        most = max(state.desired[q] for q in self.below[operator])
        return required(self.current[operator], self.cpu[operator], most) - self.least[operator]

    def slack(self, state: _Cycle, node: int, instances: list[int]) -> float:
        """(7, 13)"""
        share = state.available[node] / len(instances)
        return sum(self.wants(state, self.of[i]) - share for i in instances)

    def distribute(self, state: _Cycle, node: int, instances: list[int]) -> None:
        """Algorithm 3."""
        order = sorted(instances, key=lambda i: (self.wants(state, self.of[i]), i))
        for number, instance in enumerate(order):
            t = self.of[instance]
            given = max(min(self.wants(state, t), state.available[node] / (len(order) - number)), 0.0)
            accuracy = min(1.0, obtained(self.current[t], self.cpu[t], given) + self.floor[t])
            for q in self.below[t]:
                if accuracy < state.desired[q]:
                    state.desired[q], state.limit[q] = accuracy, node
            state.available[node] -= given


def plan(world: World, *, seed: int = 0) -> Plan:
    """Algorithm 1.

    >>> from spillway.decide.qod.examples import chain
    >>> plan(chain()).possible.round(4).tolist()     # 0.7724 is possible: what the union took too much is lost
    [0.7233]
    """
    world = replace(world, done_rate=world.in_rate)  # the papers know one rate
    literal = Literal(world)
    offered = (
        CORE * world.cores - np.nan_to_num(world.node_cpu) + total(world.node_of, np.nan_to_num(world.cpu), len(world.nodes))
    )
    here: dict[int, list[int]] = {n: [] for n in range(len(world.nodes))}
    for instance, node in enumerate(world.node_of.tolist()):
        here[node].append(instance)
    most = shed.ceiling(world, np.array(literal.floor))
    state = _Cycle(most.tolist(), [NOTHING] * len(world.query), offered.tolist(), here)
    moves = _make_room(literal, state, seed)
    for priority in sorted(set(literal.priority), reverse=True):
        on_node = {n: [i for i in instances if literal.priority[literal.of[i]] == priority] for n, instances in here.items()}
        on_node = {n: instances for n, instances in on_node.items() if instances}
        for node in sorted(on_node, key=lambda n: (-literal.slack(state, n, on_node[n]), n)):
            literal.distribute(state, node, on_node[node])
    floor = np.array(literal.floor)
    load = proportional(world, np.array(literal.current), floor)
    promise = keep_floors(world, load, floor, seed)
    return Plan(
        possible=np.array(state.desired),
        most=most,
        limit=np.array(state.limit, dtype=np.intp),
        available=offered,
        usable=np.concatenate([offered, CORE * world.executor_cores]),
        load=load,
        floor=floor,
        moves=tuple(moves),
        below_floor=promise.below,
        addition=promise.addition,
        more=promise.more,
    )


def _make_room(literal: Literal, state: _Cycle, seed: int) -> list[Moved]:
    """Algorithm 1, lines 7 to 14, and where the moved instances go."""
    world, moves, unused = literal.world, [], free(literal.world)
    slow = warming(world).tolist()
    names = {node.name: number for number, node in enumerate(world.nodes)}
    for node, instances in state.here.items():
        short = sum(literal.least[literal.of[i]] for i in instances) - state.available[node]
        released = 0.0
        if short > 0.0 and not slow[node]:
            free_to = (i for i in instances if world.movable[i])
            candidates = [Candidate(literal.least[literal.of[i]], literal.priority[literal.of[i]], i) for i in free_to]
            for candidate in choose(candidates, short):
                cpu = estimated(world, candidate.instance)
                target = place(
                    cpu,
                    {name: float(unused[n]) for name, n in names.items() if not slow[n]},
                    avoid=(world.nodes[node].name,),
                    seed=seed,
                )
                if target is None:
                    continue
                to, t = names[target], literal.of[candidate.instance]
                unused[to] -= cpu
                released += candidate.required
                instances.remove(candidate.instance)
                for q in literal.below[t]:
                    state.desired[q] = min(state.desired[q], literal.floor[t])
                moves.append(Moved(instance=candidate.instance, source=node, target=to, required=candidate.required, short=short))
        state.available[node] = released - short
    return moves
