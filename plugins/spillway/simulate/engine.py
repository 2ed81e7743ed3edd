"""The state of a world as arrays, moved on step by step.

An operator runs one batch at a time. A batch begins at a trigger, or at once when the one before took longer; it reads what its
bound admits, sheds with the keep in force at that moment, is planned by its driver, waits, computes on all instances and ends
with the slowest; then its output arrives on the edges below. Rows are whole numbers throughout, so that none is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillway.inject.profiles import Profile
from spillway.policy import Policy
from spillway.simulate.batches import COLD_BATCHES, REMEMBERED, Spared, admitted, kept_bounds, next_bounds
from spillway.simulate.sharing import Floats, Ints, share, sums
from spillway.simulate.world import World

_DONE_S = 1e-9
"""Work below this is finished."""


class Ended(NamedTuple):
    """Batches that ended in one step."""

    operator: Ints
    began: Floats
    ended: Floats
    read: Ints
    kept: Floats


class Twin:
    """Arrays are per operator, per instance, per edge or per node, in the order of the world; instances by operator.

    Counters only grow; `watch.py` takes differences.
    """

    def __init__(self, world: World, policy: Policy, *, seed: int = 1) -> None:
        self.world, self.physics, self.steps = world, world.physics, 0
        self._policy, self._random = policy, np.random.default_rng(seed)
        self.warm_up_s = policy.qod_warm_up_s
        self._place()
        self._connect()
        operators, instances, edges = len(world.operators), len(self.owner), len(world.edges)
        # edges
        self.keep: Floats = np.ones(edges)
        self.arrived, self.read, self.processed, self.shed = (np.zeros(edges, np.int64) for _ in range(4))
        """Rows that came, that a batch has read, and that a batch which ended has let through or dropped."""
        self.ended_arrived: Ints = np.zeros(edges, np.int64)
        """Rows that had come when the last batch which ended was planned."""
        self._taken, self._kept = (np.zeros(edges, np.int64) for _ in range(2))
        self.lag: Ints = np.zeros(edges, np.int64)
        """Rows that the last batch which ended had left behind."""
        self._planned: Ints = np.zeros(edges, np.int64)
        # operators
        self.running = np.zeros(operators, bool)
        self.batches, self.written = (np.zeros(operators, np.int64) for _ in range(2))
        self.last_start: Floats = np.array([o.from_s for o in world.operators])
        """Of the last batch that ended."""
        self.last_over: Floats = np.zeros(operators)
        """What it took longer than a trigger."""
        self.bound: Ints = np.full(operators, policy.batch_rows_first)
        self._learned: Ints = self.bound.copy()
        """The bound as a batch has last changed or confirmed it,"""
        self._learned_at: Floats = np.ones(operators)
        """and what was kept of what is read at that time,"""
        self._bound_keep: Floats = np.ones(operators)
        """and is now."""
        self._next: Floats = self.last_start.copy()
        self._began, self._ready, self._plan = (np.zeros(operators) for _ in range(3))
        self._rows: Ints = np.zeros(operators, np.int64)
        self._cut = np.zeros(operators, bool)
        self._recent: Floats = np.full((operators, REMEMBERED), np.inf)
        self._spared = Spared(operators, least=policy.batch_rows_min, start=policy.batch_rows_first)
        # instances
        self.cpu_s: Floats = np.zeros(instances)
        self.started: Floats = self.last_start[self.owner]
        self.up_at: Floats = self.started.copy()
        self._youngest = float(self.up_at.max())
        self._left: Floats = np.zeros(instances)
        self._moving: dict[int, int] = {}
        # nodes
        self.node_s: Floats = np.zeros(len(world.nodes))
        """CPU seconds of the instances that are or were there."""
        self._pending: list[tuple[float, Ints, Floats]] = []
        self._log: list[Ended] | None = None

    @property
    def now(self) -> float:
        return self.steps * self.physics.step_s

    def advance(self, until_s: float) -> None:
        """Whole steps, up to the one that reaches `until_s`."""
        last = round(until_s / self.physics.step_s)
        while self.steps < last:
            self._step()

    def log(self) -> list[Ended]:
        """Batches that end from now on; whoever asked takes them out."""
        self._log = []
        return self._log

    def publish(self, keeps: Mapping[int, float]) -> None:
        """Keeps by edge; batches that begin after the delay use them."""
        if keeps:
            edges, values = np.array(list(keeps)), np.array(list(keeps.values()), float)
            self._pending.append((self.now + self.physics.delay_s, edges, values))

    def move(self, instance: int, node: int) -> None:
        """At the end of the operator's batch the instance leaves, and comes up on the node a while later."""
        self._moving[instance] = node

    @property
    def moving(self) -> Sequence[int]:
        """Instances that were asked to move and have not left yet."""
        return tuple(self._moving)

    @property
    def live(self) -> NDArray[np.bool_]:
        """Operators that run at this moment."""
        return (self._from <= self.now + 1e-9) & (self.now < self._to)

    @property
    def joined(self) -> NDArray[np.bool_]:
        """Nodes that are there at this moment."""
        return self._joins <= self.now + 1e-9

    @property
    def queued(self) -> Ints:
        """Rows on each edge that wait, or are in a batch that has not ended."""
        return self.arrived - self.read + self._taken

    # ---- one step

    def _step(self) -> None:
        now, end = self.now, (self.steps + 1) * self.physics.step_s
        while self._pending and self._pending[0][0] <= now + 1e-9:
            _, edges, values = self._pending.pop(0)
            self.keep[edges] = values
        if self._moving:
            self._leave(now)
        waiting = ~self.running & (self._next <= now + 1e-9) & (now < self._to)
        if waiting.any():
            self._begin(waiting, now)
        if self.running.any():
            self._compute(now, end)
        self._arrive(end)
        self.steps += 1

    def _arrive(self, end: float) -> None:
        due = np.array([profile.events(end) for profile in self._profiles])
        sent = np.floor(due[self._profile] * self._times + 1e-6).astype(np.int64)
        self.arrived[self.outer] = sent[self.topic]

    def _begin(self, waiting: NDArray[np.bool_], now: float) -> None:
        up = self.up_at <= now + 1e-9
        present = sums(self.owner, up, len(self.running))
        edges = np.flatnonzero(waiting[self.consumer])
        consumer = self.consumer[edges]
        rows = self.arrived[edges] - self.read[edges]
        total = sums(consumer, rows, len(self.running))
        starts = waiting & (total > 0) & (present > 0)
        idle = waiting & ~starts
        self._next[idle] = self._tick(now)[idle]
        if not starts.any():
            return
        chosen = starts[consumer]
        edges, consumer, rows = edges[chosen], consumer[chosen], rows[chosen]
        mean = sums(consumer, self.keep[edges], len(self.running)) / np.maximum(self._inputs, 1)
        self._spared.forget(starts & (mean != self._bound_keep))
        self._bound_keep = np.where(starts, mean, self._bound_keep)
        self.bound = kept_bounds(self._learned, self._learned_at, self._bound_keep, least=self._policy.batch_rows_min)
        taken = admitted(rows, self.bound[consumer].astype(float), total[consumer], self._inputs[consumer])
        kept = taken.copy()
        sheds = np.flatnonzero(self.keep[edges] < 1.0)
        if sheds.size:
            kept[sheds] = self._random.binomial(taken[sheds], self.keep[edges[sheds]])
        self.read[edges] += taken
        self._taken[edges], self._kept[edges] = taken, kept
        self._planned[edges] = self.arrived[edges]
        read = sums(consumer, taken, len(self.running))
        work = self._fixed + self._per_arrived * read + self._per_kept * sums(consumer, kept, len(self.running))
        mine = np.flatnonzero(starts[self.owner] & up)
        owner = self.owner[mine]
        self._left[mine] = work[owner] / present[owner] * self._cold(mine, now)
        began = np.maximum(self._next, now - self.physics.step_s)
        self._began[starts] = began[starts]
        self._plan[starts] = (self._driver * self._cold(self.first, now))[starts]
        self._ready[starts] = np.where(self._plan > 0, np.inf, began + self._wait)[starts]
        self._rows[starts] = read[starts].astype(np.int64)
        self._cut[starts] = (read < total)[starts]
        self.running |= starts

    def _cold(self, instances: Ints, now: float) -> Floats | float:
        if self.physics.cold_s <= 0 or now - self._youngest >= self.physics.cold_s:
            return 1.0
        age = (now - self.up_at[instances]) / self.physics.cold_s
        return 1.0 + (self.physics.cold_factor - 1.0) * np.clip(1.0 - age, 0.0, 1.0)

    def _compute(self, now: float, end: float) -> None:
        step = self.physics.step_s
        open_s = np.where(self.running, np.clip(end - self._ready, 0.0, step), 0.0)[self.owner]
        wanted = np.minimum(self._left, self.slots * open_s)
        planning = self.running & (self._plan > 0)
        if planning.any():
            got, level = self._plan_beside(wanted, planning, now, end)
        else:
            got, level = share(wanted, self.node, self._capacity)
        self._left -= got
        self.cpu_s += got
        self.node_s += sums(self.node, got, len(self.node_s))
        busy = np.add.reduceat((self._left > _DONE_S).astype(np.int64), self.first)
        ended = self.running & (busy == 0) & (self._ready <= end)
        if ended.any():
            done = np.maximum.reduceat(end - open_s + self._took(got, open_s, self.slots, level[self.node]), self.first)
            self._end(ended, np.maximum(done, self._ready))

    def _plan_beside(self, wanted: Floats, planning: NDArray[np.bool_], now: float, end: float) -> tuple[Floats, Floats]:
        """Drivers share the CPU of their node with the instances there; a batch is ready a while after its plan."""
        open_s = np.where(planning, end - np.maximum(self._began, now), 0.0)
        plan, node = np.minimum(self._plan, open_s), self.node[self.first]
        both, level = share(np.concatenate([wanted, plan]), np.concatenate([self.node, node]), self._capacity)
        got, planned = both[: len(wanted)], both[len(wanted) :]
        self._plan -= planned
        self.node_s += sums(node, planned, len(self.node_s))
        done = planning & (self._plan <= _DONE_S)
        self._plan[done] = 0.0
        at = end - open_s + self._took(planned, open_s, np.ones_like(open_s), level[node])
        self._ready[done] = (at + self._wait)[done]
        return got, level

    def _took(self, got: Floats, open_s: Floats, slots: Floats, level: Floats) -> Floats:
        """How much of a step it took to get so much, at the speed the node allowed."""
        speed = np.minimum(slots, level / self.physics.step_s)
        return np.minimum(np.divide(got, speed, out=np.zeros_like(got), where=speed > 0), open_s)

    def _end(self, ended: NDArray[np.bool_], at: Floats) -> None:
        edges = np.flatnonzero(ended[self.consumer])
        self.processed[edges] += self._kept[edges]
        self.shed[edges] += self._taken[edges] - self._kept[edges]
        if self._log is not None:
            which, kept = np.flatnonzero(ended), sums(self.consumer[edges], self._kept[edges], len(ended))
            self._log.append(Ended(which, self._began[which], at[which], self._rows[which], kept[which]))
        self._taken[edges] = self._kept[edges] = 0
        self.ended_arrived[edges] = self._planned[edges]
        self.lag[edges] = self._planned[edges] - self.read[edges]
        which = np.flatnonzero(ended)
        rows = sums(self.consumer[edges], self.processed[edges], len(ended))[which]
        self.written[which] = np.floor(rows * self._output[which] + 1e-6).astype(np.int64)
        self.arrived[self.inner] = self.written[self.producer[self.inner]]
        self.last_start[which] = self._began[which]
        self.last_over[which] = np.maximum(0.0, at - self._began - self._trigger)[which]
        self.running[which] = False
        self._next[which] = np.maximum(at, self._tick(self._began))[which]
        self._follow(which, at[which] - self._began[which])
        self._left[ended[self.owner]] = 0.0

    def _follow(self, which: Ints, busy_s: Floats) -> None:
        """The bound of the batches to come."""
        warm = self.batches[which] >= COLD_BATCHES
        self.batches[which] += 1
        slot = self.batches[which] % REMEMBERED
        which, busy_s, slot = which[warm], busy_s[warm], slot[warm]
        if not which.size:
            return
        self._recent[which, slot] = busy_s
        shortest = self._recent[which].min(axis=1)
        policy, before, cut = self._policy, self.bound[which], self._cut[which]
        rows, target = self._rows[which], self._target[which]
        wanted = next_bounds(before, rows, busy_s, shortest, target, cut, least=policy.batch_rows_min, most=policy.batch_rows_max)
        self.bound[which] = self._spared.bounds(which, before, wanted, rows, busy_s, target, cut)
        taught = which[cut | (self.bound[which] != before)]
        self._learned[taught], self._learned_at[taught] = self.bound[taught], self._bound_keep[taught]

    def _leave(self, now: float) -> None:
        for instance, node in list(self._moving.items()):
            if not self.running[self.owner[instance]]:
                del self._moving[instance]
                self.node[instance] = node
                self.started[instance] = now
                self.up_at[instance] = self._youngest = now + self.physics.down_s

    def _tick(self, since: float | Floats) -> Floats:
        """The first trigger after a moment."""
        passed = np.floor((since - self._from) / self._trigger + 1e-6)
        return self._from + (passed + 1) * self._trigger

    # ---- the world as arrays

    def _place(self) -> None:
        world = self.world
        nodes = {node.name: number for number, node in enumerate(world.nodes)}
        counts = [len(o.nodes) for o in world.operators]
        self.owner: Ints = np.repeat(np.arange(len(counts)), counts)
        self.first: Ints = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self.node: Ints = np.array([nodes[name] for o in world.operators for name in o.nodes])
        self.slots: Floats = np.array([o.slots for o in world.operators], float)[self.owner]
        self.background: Floats = np.array([n.background for n in world.nodes])
        self._joins: Floats = np.array([n.from_s for n in world.nodes])
        usable = [max(0.0, n.cores - n.background / 100.0) for n in world.nodes]
        self._capacity: Floats = np.array(usable) * self.physics.step_s
        each = [o.costs for o in world.operators]
        self._fixed, self._driver = np.array([c.fixed_s for c in each]), np.array([c.driver_s for c in each])
        self._wait = np.array([c.wait_s for c in each])
        self._per_arrived, self._per_kept = np.array([c.per_arrived_s for c in each]), np.array([c.per_kept_s for c in each])
        self._output = np.array([c.output for c in each])
        self._trigger, self._target = (
            np.array([o.trigger_s for o in world.operators]), np.array([o.target_s for o in world.operators])
        )  # fmt: skip
        self._from, self._to = np.array([o.from_s for o in world.operators]), np.array([o.to_s for o in world.operators])

    def _connect(self) -> None:
        world = self.world
        operators = {operator.name: number for number, operator in enumerate(world.operators)}
        topics = {load.topic: number for number, load in enumerate(world.loads)}
        self.consumer: Ints = np.array([operators[e.consumer] for e in world.edges])
        self.producer: Ints = np.array([-1 if e.producer is None else operators[e.producer] for e in world.edges])
        self.outer, self.inner = np.flatnonzero(self.producer < 0), np.flatnonzero(self.producer >= 0)
        self.topic: Ints = np.array([topics[world.edges[e].topic or ""] for e in self.outer], np.int64)
        self._inputs: Floats = np.bincount(self.consumer, minlength=len(operators)).astype(float)
        self._profiles: list[Profile] = list(dict.fromkeys(load.rate for load in world.loads))
        self._profile: Ints = np.array([self._profiles.index(load.rate) for load in world.loads], np.int64)
        self._times: Floats = np.array([load.times for load in world.loads])
