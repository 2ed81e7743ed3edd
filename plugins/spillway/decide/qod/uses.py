"""Who uses what: how much of every node, and of the cores of an executor, goes with the accuracy of every operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.cpu import CORE, Load, in_executors, required
from spillway.decide.qod.world import Floats, Ints, World, matches, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Row by row: `weight` percent of a core of `resource` per unit of accuracy of `operator`, ordered by resource.

    Resources 0 … nodes−1 are the nodes; nodes + x are the cores of an executor of kind x, where they may not suffice.
    """

    resource: Ints
    operator: Ints
    weight: Floats

    def at(self, accuracy: Floats, resources: int) -> Floats:
        return total(self.resource, self.weight * accuracy[self.operator], resources)


def placed(world: World) -> tuple[Ints, Ints, Ints]:
    """Node, operator and number of instances, for every operator on every node it runs on."""
    many = max(len(world.operators), 1)
    codes, count = np.unique(world.node_of * many + world.operator_of, return_counts=True)
    return codes // many, codes % many, count


def uses(world: World, load: Load, slope: Floats, floor: Floats, share: float = 1.0) -> Uses:
    """The rows for `slope`, which is `load.own` up to the floors and `load.extra` above them.

    `share` is what an executor may use of its cores.
    """
    node, operator, count = placed(world)
    most = required(world, load, np.ones(len(floor)), floor)
    cramped = in_executors(world, most) > share * CORE * world.executor_cores
    member = np.flatnonzero(cramped[world.member_executor])
    executor, within, of_it = world.member_executor[member], world.member_operator[member], world.member_count[member]
    rows = [
        (node, operator, count * slope[operator]),
        (len(world.nodes) + executor, within, of_it * slope[within]),
    ]
    read = np.flatnonzero(load.read > 0.0)
    if len(read):
        by_operator = np.argsort(operator, kind="stable")
        edge, at = matches(world.consumer[read], operator[by_operator], len(world.operators))
        edge, at = read[edge], by_operator[at]
        rows.append((node[at], world.producer[edge], count[at] * load.read[edge]))
        by_operator = np.argsort(within, kind="stable")
        edge, at = matches(world.consumer[read], within[by_operator], len(world.operators))
        edge, at = read[edge], by_operator[at]
        rows.append((len(world.nodes) + executor[at], world.producer[edge], of_it[at] * load.read[edge]))
    resource, of, weight = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(resource, kind="stable")
    return Uses(resource=resource[order], operator=of[order], weight=weight[order])
