"""When not to decide: metrics that are too old, or missing. Absence is never read as zero; the last keep stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.world import OUTSIDE, Flags, Floats, World
from spillway.model.qod import Observation
from spillway.policy import Policy


def stale(observation: Observation, policy: Policy) -> str | None:
    """Words, when the metrics are older than so many cycles.

    >>> observation = Observation(nodes=(), operators=(), edges=(), age_s=50.0, cycle_s=15.0)
    >>> stale(observation, Policy())
    'metrics are 50 s old, more than 3 cycles of 15 s'
    """
    cycle_s = policy.qod_cycle_s if observation.cycle_s is None else observation.cycle_s
    if observation.age_s is None or observation.age_s <= policy.qod_stale_cycles * cycle_s:
        return None
    return f"metrics are {observation.age_s:.0f} s old, more than {policy.qod_stale_cycles:g} cycles of {cycle_s:g} s"


def missing(world: World) -> tuple[list[str], Flags]:
    """Fields that are needed and absent, and the operators that cannot be decided without them.

    One gap holds the whole pipeline, whose operators depend on each other, and nothing else: on a node that others share with it,
    its CPU counts as the machine's own. A new instance (`warming`) may be without metrics.
    """
    names: list[str] = []
    touched = np.zeros(len(world.operators), dtype=bool)
    for operator in np.flatnonzero(world.instances == 0).tolist():
        names.append(f"operators.{world.operators[operator].name}.instances")
        touched[operator] = True
    for field, column in (("in_rate", world.in_rate), ("cpu", world.cpu)):
        for instance in np.flatnonzero(np.isnan(column) & ~world.warming).tolist():
            operator = int(world.operator_of[instance])
            number = instance - int(world.first_instance[operator])
            names.append(f"operators.{world.operators[operator].name}.instances[{number}].{field}")
            touched[operator] = True
    unknown = np.isnan(world.node_cpu)
    if unknown.any():
        on_unknown = unknown[world.node_of]
        names += [f"nodes.{world.nodes[node].name}.cpu" for node in np.unique(world.node_of[on_unknown]).tolist()]
        touched[world.operator_of[on_unknown]] = True
    for edge in np.flatnonzero(np.isnan(world.out_rate)).tolist():
        names.append(f"edges.{world.edges[edge].name}.out_rate")
        touched[world.consumer[edge]] = True
    return names, _with_pipelines(world, touched) if touched.any() else touched


def _with_pipelines(world: World, touched: Flags) -> Flags:
    """Everything that is connected with a touched operator."""
    inner = world.producer != OUTSIDE
    above, below = world.producer[inner], world.consumer[inner]
    while True:
        wider = touched.copy()
        np.logical_or.at(wider, above, touched[below])
        np.logical_or.at(wider, below, touched[above])
        if np.array_equal(wider, touched):
            return touched
        touched = wider


@dataclass(frozen=True, slots=True)
class Unknown:
    """Edges of which something is absent that only a raise needs; queries below them may be lowered, but not raised."""

    names: list[str]
    edges: Flags
    queries: Flags


def lag_unknown(world: World) -> Unknown:
    """External edges. The demand is at least what arrives."""
    return _unknown(world, (world.producer == OUTSIDE) & np.isnan(world.lag), "lag")


def keep_unknown(world: World, in_force: Floats) -> Unknown:
    """No more than everything is kept at present."""
    return _unknown(world, np.isnan(in_force), "keep")


def _unknown(world: World, edges: Flags, field: str) -> Unknown:
    queries = np.zeros(len(world.query), dtype=bool)
    fed = np.zeros(len(world.operators), dtype=bool)
    fed[world.consumer[edges]] = True
    queries[world.pair_query[fed[world.pair_operator]]] = True
    return Unknown([f"edges.{world.edges[e].name}.{field}" for e in np.flatnonzero(edges).tolist()], edges, queries)
