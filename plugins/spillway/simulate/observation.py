"""A window of the twin as the `Observation` that decisions take."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

import numpy as np
from numpy.typing import NDArray

from spillway.model.qod import Cost, Edge, Instance, Node, Observation, Operator, Previous
from spillway.policy import Policy
from spillway.simulate.sharing import Floats
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
    runs = {o.name for o, is_live in zip(world.operators, live, strict=True) if is_live}
    return Observation(
        nodes=tuple(
            Node(name=node.name, cores=node.cores, cpu=cpu)
            for node, cpu, joined in zip(world.nodes, window.node_cpu.tolist(), window.joined.tolist(), strict=True)
            if joined
        ),
        operators=_operators(world, window, live, warm.tolist(), costs or {}),
        edges=tuple(
            Edge(
                producer=edge.producer,
                topic=edge.topic,
                consumer=edge.consumer,
                out_rate=None if isnan(rate) else rate,
                keep=keep,
                lag=lag,
            )
            for edge, rate, keep, lag in zip(
                world.edges, window.out_rate.tolist(), window.keep.tolist(), window.lag.tolist(), strict=True
            )
            if edge.consumer in runs
        ),
        previous=previous,
        age_s=0.0,
        cycle_s=window.length_s,
    )


def _operators(
    world: World, window: Window, live: list[bool], warm: list[bool], costs: Mapping[int, Cost]
) -> tuple[Operator, ...]:
    """The rows of an operator are shared evenly by the instances that are up; of one on its way nothing is measured."""
    names = [node.name for node in world.nodes]
    where, cpus, up, rates = (v.tolist() for v in (window.node, window.cpu, window.up, window.processed))
    found, first = [], 0
    for number, operator in enumerate(world.operators):
        last = first + len(operator.nodes)
        if live[number]:
            present = sum(up[first:last])
            rate = None if isnan(rates[number]) or not present else rates[number] / present
            instances = tuple(
                Instance(node=names[where[i]], in_rate=rate if up[i] else None, cpu=cpus[i], warming=warm[i])
                for i in range(first, last)
            )
            found.append(
                Operator(
                    name=operator.name,
                    instances=instances,
                    priority=operator.priority,
                    min_accuracy=operator.min_accuracy,
                    cost=costs.get(number),
                )
            )
        first = last
    return tuple(found)


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
