"""What an observer measures of a planted world: every edge is a topic, so an operator that cannot follow holds nobody up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from spillway.model.capacity import Busy, CapacityWorld, FlowEdge, FlowOperator
from spillway.simulate.planted import PlantedOperator, PlantedWorld, Told

WINDOW_S = 60.0
BATCHES = 8
ERRORS = 3.0
"""Standard errors by which a capacity may be off."""
COUNTS = 0.1
"""Noise of counted rows over noise of times."""


def watched(world: PlantedWorld, parallelism: Mapping[str, int], rate: float, *, seed: int = 0) -> CapacityWorld:
    rng = random.Random(f"watched {world.seed} {seed}")

    def noisy(value: float, share: float = 1.0) -> float:
        return value if world.noise == 0.0 else value * max(0.1, rng.gauss(1.0, world.noise * share))

    sources = {**world.others, world.topic: rate}
    taken: dict[str, float] = {}
    flows: dict[str, FlowEdge] = {}
    for operator in world.operators:
        inputs = [e for e in world.edges if e.consumer == operator.name]
        arriving = [e.share * (sources[e.topic or ""] if e.producer is None else taken[e.producer]) for e in inputs]
        capacity = world.capacity(operator.name, parallelism[operator.name])
        asked = sum(arriving)
        taken[operator.name] = min(asked, capacity)
        part = taken[operator.name] / asked if asked > 0.0 else 0.0
        for edge, rows in zip(inputs, arriving, strict=True):
            seen = FlowEdge(
                producer=edge.producer,
                topic=edge.topic,
                consumer=edge.consumer,
                flow=noisy(rows * part, COUNTS),
                capacity=noisy(capacity, BATCHES**-0.5) if operator.told is Told.EDGE else None,
                confidence=max(0.0, 1.0 - ERRORS * world.noise * BATCHES**-0.5) if operator.told is Told.EDGE else None,
                backlog=float(round(rows * (1.0 - part) * WINDOW_S)),
                selectivity=None if edge.producer is None else noisy(edge.share, COUNTS),
                arrival=noisy(rows, COUNTS) if edge.producer is None else None,
            )
            flows[seen.name] = seen
    names = [f"{e.producer if e.producer is not None else e.topic}:{e.consumer}" for e in world.edges]
    return CapacityWorld(
        operators=tuple(_operator(world, o, parallelism[o.name], taken[o.name], noisy) for o in world.operators),
        edges=tuple(flows[name] for name in names),
    )


def _operator(
    world: PlantedWorld, operator: PlantedOperator, instances: int, taken: float, noisy: Callable[[float], float]
) -> FlowOperator:
    rows = taken * WINDOW_S
    capacity = world.capacity(operator.name, instances)
    parts = instances if operator.told is Told.INSTANCES else BATCHES
    one = capacity * operator.skew / instances if operator.told is Told.INSTANCES else capacity
    work = tuple(Busy(rows=rows / parts, busy_s=noisy(rows / parts / one)) for _ in range(parts)) if rows > 0.0 else ()
    return FlowOperator(
        name=operator.name,
        parallelism=instances,
        batches=work if operator.told is Told.BATCHES else (),
        instances=work if operator.told is Told.INSTANCES else (),
        skew=operator.skew if operator.told is Told.INSTANCES else None,
    )
