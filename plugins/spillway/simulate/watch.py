"""The engine as the live cycle would see it: one closed window after the other, by the rules of `observe/rates.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.simulate.engine import Twin
from spillway.simulate.sharing import Floats, Ints, sums
from spillway.simulate.world import World, WorldError

_COUNTERS = (
    "arrived", "ended_arrived", "processed", "shed", "written", "last_start", "last_over", "batches", "cpu_s", "node_s"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured between two moments, in the order of the world; NaN is not known."""

    end_s: float
    length_s: float
    offered: Floats
    """Rows per second written to each external topic."""
    out_rate: Floats
    """Rows per second before the shedder of each edge."""
    lag: Floats
    """Rows on each edge that its last batch left behind; all that wait, if none ended."""
    keep: Floats
    """In force on each edge at the end."""
    batches: Floats
    """Batches of each operator that ended,"""
    span_s: Floats
    """the time from the start of the batch before them to that of the last one,"""
    read: Floats
    """the rows they read,"""
    kept: Floats
    """and those that passed the shedders."""
    processed: Floats
    """Rows per second behind the shedders of each operator."""
    cpu: Floats
    """Of each instance."""
    node_cpu: Floats
    current: Floats
    """Current accuracy of each operator (Stream Economics, equation 3): rows that got in per row that was sent."""
    accuracy: Floats
    """Share of the source events that each operator saw, of those it has come to: the product of the shares kept on the way."""
    lag_s: Floats
    """Seconds of traffic that wait before each operator."""
    owner: Ints
    """The operator of each instance."""
    node: Ints
    """Where each instance is."""
    up: NDArray[np.bool_]
    """Instances that are there, not on their way."""
    age_s: Floats
    """For how long each instance has been where it is."""
    live: NDArray[np.bool_]
    """Operators that run."""
    fed: NDArray[np.bool_]
    """Edges whose consumer runs."""
    joined: NDArray[np.bool_]
    """Nodes that are there."""


class Watch:
    """Takes differences of the engine's counters: `close` ends a window and begins the next."""

    def __init__(self, twin: Twin, *, seed: int = 1) -> None:
        self._twin = twin
        self._random = np.random.default_rng([seed, 1])
        self._levels = levels(twin.world)
        self._kept_share: Floats = np.ones(len(twin.world.edges))
        self._pace: Floats = np.ones(len(twin.world.operators))
        self._begin()

    def _begin(self) -> None:
        self._at = self._twin.now
        self._seen = {name: getattr(self._twin, name).copy() for name in _COUNTERS}

    def _since(self, name: str) -> Floats:
        found: Floats = (getattr(self._twin, name) - self._seen[name]).astype(float)
        return found

    def close(self) -> Window:
        twin = self._twin
        length, count = twin.now - self._at, len(twin.running)
        batches, arriving = self._since("batches"), self._since("arrived") / length
        lag = np.where((batches > 0)[twin.consumer], twin.lag, twin.arrived - twin.read).astype(float)
        kept = self._since("processed")
        read = kept + self._since("shed")
        with np.errstate(invalid="ignore", divide="ignore"):
            self._kept_share = np.where(read > 0, kept / read, self._kept_share)
            out_rate = self._out_rate(batches > 0, arriving)
            share = kept / self._since("ended_arrived") * (self._since("last_start") / self._span())[twin.consumer]
        share = np.where(np.isfinite(share) & (batches > 0)[twin.consumer], share, np.where(out_rate == 0.0, 1.0, np.nan))
        window = Window(
            end_s=twin.now,
            length_s=length,
            offered=self._per_topic(arriving),
            out_rate=out_rate,
            lag=lag,
            keep=twin.keep.copy(),
            batches=batches,
            span_s=self._since("last_start"),
            read=sums(twin.consumer, read, count),
            kept=sums(twin.consumer, kept, count),
            processed=sums(twin.consumer, out_rate * share, count),
            cpu=self._measured(100.0 * self._since("cpu_s") / length),
            node_cpu=self._measured(100.0 * self._since("node_s") / length + twin.background),
            current=self._downwards(np.minimum(share, 1.0)),
            accuracy=self._downwards(self._kept_share),
            lag_s=self._lag_s(lag, arriving),
            owner=twin.owner,
            node=twin.node.copy(),
            up=twin.up_at <= twin.now + 1e-9,
            age_s=twin.now - twin.started,
            live=twin.live,
            fed=twin.live[twin.consumer],
            joined=twin.joined,
        )
        self._begin()
        return window

    def _out_rate(self, ended: NDArray[np.bool_], arriving: Floats) -> Floats:
        """Outside, from end offsets; inside, what the producer wrote while its batches were done."""
        twin = self._twin
        idle = sums(twin.consumer, twin.queued, len(ended)) == 0
        span = self._span()
        written = np.where(ended & (span > 0), self._since("written") / span, np.where(idle & ~ended, 0.0, np.nan))
        return np.where(twin.producer < 0, arriving, written[twin.producer])

    def _span(self) -> Floats:
        """Seconds in which the batches of the window were done: see `spillway.observe.rates.span_s`.

        A batch on instances that are cold is long for that reason alone."""
        twin = self._twin
        young = twin.now - twin.started < twin.warm_up_s
        settled = sums(twin.owner, young, len(twin.running)) == 0
        return self._since("last_start") + np.where(settled, self._since("last_over"), 0.0)

    def _per_topic(self, per_edge: Floats) -> Floats:
        offered = np.zeros(len(self._twin.world.loads))
        offered[self._twin.topic] = per_edge[self._twin.outer]
        return offered

    def _measured(self, cpu: Floats) -> Floats:
        noise = self._twin.physics.cpu_noise
        return np.maximum(0.0, cpu * (1.0 + noise * self._random.standard_normal(len(cpu)))) if noise else cpu

    def _downwards(self, share: Floats) -> Floats:
        """What reaches each operator when an edge lets `share` through; the smallest over its inputs."""
        twin = self._twin
        reach = np.ones(len(twin.running))
        for edges in self._levels:
            above = np.where(twin.producer[edges] < 0, 1.0, reach[twin.producer[edges]])
            with np.errstate(invalid="ignore"):
                np.minimum.at(reach, twin.consumer[edges], share[edges] * above)
        return reach

    def _lag_s(self, lag: Floats, arriving: Floats) -> Floats:
        """An operator to which nothing comes any more is behind by what it was last sent."""
        twin, count = self._twin, len(self._twin.running)
        pace = sums(twin.consumer, arriving, count)
        self._pace = np.where(pace > 0, pace, self._pace)
        seconds: Floats = sums(twin.consumer, lag, count) / self._pace
        return seconds


def levels(world: World) -> list[Ints]:
    """The edges, grouped so that those of a group need only operators that earlier groups lead to."""
    waiting = {operator.name: 0 for operator in world.operators}
    below: dict[str, list[str]] = {}
    for edge in world.edges:
        if edge.producer is not None:
            waiting[edge.consumer] += 1
            below.setdefault(edge.producer, []).append(edge.consumer)
    free = [name for name, count in waiting.items() if count == 0]
    depth = dict.fromkeys(free, 0)
    while free:
        name = free.pop()
        for consumer in below.get(name, ()):
            depth[consumer] = max(depth.get(consumer, 0), depth[name] + 1)
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                free.append(consumer)
    if circle := sorted(name for name, count in waiting.items() if count):
        raise WorldError(f"the operators {', '.join(circle)} read from each other in a circle")
    of_edge = np.array([depth[e.consumer] for e in world.edges])
    return [np.flatnonzero(of_edge == level) for level in range(of_edge.max() + 1)]


def topics_above(world: World) -> list[list[int]]:
    """The external topics that each operator lives on."""
    number = {operator.name: k for k, operator in enumerate(world.operators)}
    topic = {load.topic: k for k, load in enumerate(world.loads)}
    found: list[set[int]] = [set() for _ in world.operators]
    for edges in levels(world):
        for edge in (world.edges[e] for e in edges.tolist()):
            above = {topic[edge.topic or ""]} if edge.producer is None else found[number[edge.producer]]
            found[number[edge.consumer]] |= above
    return [sorted(topics) for topics in found]


def operators_above(world: World) -> list[set[str]]:
    """The operators that each operator lives on, and itself."""
    number = {operator.name: k for k, operator in enumerate(world.operators)}
    found = [{operator.name} for operator in world.operators]
    for edges in levels(world):
        for edge in (world.edges[e] for e in edges.tolist()):
            if edge.producer is not None:
                found[number[edge.consumer]] |= found[number[edge.producer]]
    return found


def offered(window: Window, topics: list[int]) -> float:
    """Events per second that producers write to these topics."""
    return float(window.offered[topics].sum())
