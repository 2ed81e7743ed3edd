"""Cycle after cycle: observe, decide, publish. The live cycle, with the engine in place of store and Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.decide.qod import decide
from spillway.model.qod import Cost, Decision, Move, Observation, Previous
from spillway.policy import Policy
from spillway.simulate.engine import Twin
from spillway.simulate.learning import Learner
from spillway.simulate.observation import floors, observation, warming
from spillway.simulate.watch import Watch, Window
from spillway.simulate.world import World

Controller = Callable[[Observation, Policy], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    window: Window
    decision: Decision | None
    """None: nobody decides."""
    moved: tuple[Move, ...] = ()
    """Moves of the decision that are carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    world: World
    policy: Policy
    cycles: tuple[Cycle, ...]
    twin: Twin
    """As it is at the end."""

    @property
    def moves(self) -> list[tuple[float, Move]]:
        """What was moved, and when."""
        return [(c.window.end_s, move) for c in self.cycles for move in c.moved]

    @property
    def infeasible(self) -> list[tuple[float, tuple[str, ...]]]:
        """When which queries could not be given their floor."""
        return [(c.window.end_s, c.decision.infeasible.queries) for c in self.cycles if c.decision and c.decision.infeasible]


class Loop:
    """A world and who decides on it; without a controller every edge keeps everything."""

    def __init__(self, world: World, policy: Policy, *, seed: int = 1, controller: Controller | None = decide) -> None:
        self.twin = Twin(world, policy, seed=seed)
        self._watch = Watch(self.twin, seed=seed)
        self._world, self._policy, self._controller = world, policy, controller
        self._floors = floors(world)
        self._learner = Learner(self.twin, policy) if policy.cpu_model == "affine" else None
        self._previous: Previous | None = None
        self._moved: int | None = None
        self._cycles = 0
        self._edge = {edge.name: number for number, edge in enumerate(world.edges)}
        self._operator = {operator.name: number for number, operator in enumerate(world.operators)}
        self._node = {node.name: number for number, node in enumerate(world.nodes)}

    def cycle(self) -> Cycle:
        """The world moves on by a cycle; then its window is observed and decided on."""
        self._cycles += 1
        self.twin.advance(self._cycles * self._policy.qod_cycle_s)
        window = self._watch.close()
        if self._controller is None:
            return Cycle(window=window, decision=None)
        warm = warming(window, self._floors, self._policy)
        seen = observation(self._world, window, warm, costs=self._costs(window), previous=self._previous)
        decision = self._controller(seen, self._policy)
        self._previous = decision.remember
        self.twin.publish({self._edge[edge.name]: edge.keep for edge in decision.edges if edge.published})
        return Cycle(window=window, decision=decision, moved=self._carry_out(decision.moves, warm))

    def _carry_out(self, moves: tuple[Move, ...], warm: NDArray[np.bool_]) -> tuple[Move, ...]:
        """The first one, when the instance that moved last has arrived and warmed up: one at a time, as on the live line."""
        if not moves or (self._moved is not None and (self._moved in self.twin.moving or warm[self._moved])):
            return ()
        first = moves[0]
        self._moved = int(self.twin.first[self._operator[first.operator]]) + first.instance
        self.twin.move(self._moved, self._node[first.target])
        return (first,)

    def _costs(self, window: Window) -> dict[int, Cost]:
        if self._learner is None:
            return {}
        self._learner.see(window)
        return self._learner.costs()


def play(world: World, policy: Policy, *, duration_s: float, seed: int = 1, controller: Controller | None = decide) -> Run:
    """Whole cycles, as many as begin within the duration."""
    loop = Loop(world, policy, seed=seed, controller=controller)
    count = max(1, round(duration_s / policy.qod_cycle_s))
    return Run(world=world, policy=policy, cycles=tuple(loop.cycle() for _ in range(count)), twin=loop.twin)
