"""A window of the twin as the `Observation` that decisions take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spillway.model.qod import Cost, Edge, Instance, Node, Observation, Operator, Previous
from spillway.policy import Policy
from spillway.simulate.sharing import Floats, sums
from spillway.simulate.watch import Window, levels
from spillway.simulate.world import World


def observation(
    world: World,
    window: Window,
    warm: NDArray[np.bool_],
    *,
    costs: Mapping[int, Cost] | None = None,
    previous: Previous | None = None,
) -> Observation:
    """Only what is there at the end of the window: nodes that joined, pipelines that run. `warm`: see `warming`."""
    live = window.live.tolist()
    nodes = [
        Node(name=node.name, cores=node.cores, cpu=cpu)
        for node, cpu, joined in zip(world.nodes, window.node_cpu.tolist(), window.joined.tolist(), strict=True)
        if joined
    ]
    edges = [
        Edge(producer=edge.producer, topic=edge.topic, consumer=edge.consumer, out_rate=rate, keep=keep, lag=lag)
        for edge, rate, keep, lag, runs in zip(
            world.edges, _known(window.out_rate), window.keep.tolist(), window.lag.tolist(), window.fed.tolist(), strict=True
        )
        if runs
    ]
    return Observation(
        nodes=tuple(nodes),
        operators=_operators(world, window, live, warm, costs or {}),
        edges=tuple(edges),
        previous=previous,
        age_s=0.0,
        cycle_s=window.length_s,
    )


def _operators(
    world: World, window: Window, live: list[bool], warm: NDArray[np.bool_], costs: Mapping[int, Cost]
) -> tuple[Operator, ...]:
    """The rows of an operator are shared evenly by the instances that are up; of one on its way nothing is measured."""
    names = [node.name for node in world.nodes]
    present = np.maximum(sums(window.owner, window.up, len(live)), 1)
    in_rate = np.where(window.up, (window.processed / present)[window.owner], np.nan)
    instances = [
        Instance(node=names[node], in_rate=rate, cpu=cpu, warming=is_warm, cores=slots)
        for node, rate, cpu, is_warm, slots in zip(
            window.node.tolist(), _known(in_rate), window.cpu.tolist(), warm.tolist(), _slots(world, window), strict=True
        )
    ]
    found, first = [], 0
    for number, (operator, runs) in enumerate(zip(world.operators, live, strict=True)):
        last = first + len(operator.nodes)
        if runs:
            found.append(
                Operator(
                    name=operator.name,
                    instances=tuple(instances[first:last]),
                    priority=operator.priority,
                    min_accuracy=operator.min_accuracy,
                    cost=costs.get(number),
                )
            )
        first = last
    return tuple(found)


def _slots(world: World, window: Window) -> list[float]:
    slots = [operator.slots for operator in world.operators]
    return [slots[owner] for owner in window.owner.tolist()]


def _known(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def warming(window: Window, floor: Floats, policy: Policy) -> NDArray[np.bool_]:
    """Instances that started or moved and whose operator is still below its minimum accuracy, for a while at most."""
    young = window.age_s < policy.qod_warm_up_s
    reached = window.current[window.owner] >= floor[window.owner] - 1e-9
    found: NDArray[np.bool_] = young & ~(reached & window.up)
    return found


def floors(world: World) -> Floats:
    """The minimum accuracy of each operator: the largest of the queries below it (Stream Economics, equation 2)."""
    number = {operator.name: k for k, operator in enumerate(world.operators)}
    found = np.array([operator.min_accuracy or 0.0 for operator in world.operators])
    for edges in reversed(levels(world)):
        for edge in (world.edges[e] for e in edges.tolist()):
            if edge.producer is not None:
                at = number[edge.producer]
                found[at] = max(found[at], found[number[edge.consumer]])
    return found
