"""Seeded random worlds for the Quality-of-Data controller: small pipelines of every shape, on nodes they share."""

from __future__ import annotations

import random
from dataclasses import replace

from spillway.model.qod import Cost, Edge, Instance, Node, Observation, Operator

SHAPES: dict[str, list[tuple[str | None, str]]] = {
    "single": [(None, "q")],
    "chain": [(None, "a"), ("a", "b"), ("b", "q")],
    "fork": [(None, "a"), ("a", "q"), ("a", "r")],
    "join": [(None, "a"), (None, "b"), ("a", "q"), ("b", "q")],
    "taxi": [(None, "a"), (None, "b"), ("a", "u"), ("b", "u"), ("u", "q"), ("u", "r")],
    "diamond": [(None, "a"), ("a", "b"), ("a", "c"), ("b", "q"), ("c", "q"), ("b", "r")],
    "mixed": [(None, "a"), (None, "q"), ("a", "q"), ("a", "r")],
}


def world(seed: int, *, calm: bool = False, cost: bool = False) -> Observation:
    """One to three pipelines on one to four nodes. `calm` worlds have room for all floors where they are."""
    rng = random.Random(seed)
    nodes = [f"n{k}" for k in range(rng.randint(1, 4))]
    operators: list[Operator] = []
    edges: list[Edge] = []
    for number in range(rng.randint(1, 3)):
        pipeline = _pipeline(rng, f"p{number}", nodes, cost)
        operators += pipeline[0]
        edges += pipeline[1]
    used = {name: sum(i.cpu or 0.0 for o in operators for i in o.instances if i.node == name) for name in nodes}
    cores = {name: max(1, round(used[name] / 100.0 * rng.uniform(0.3, 1.6))) for name in nodes}
    if calm:
        cores = {name: max(cores[name], round(used[name] / 100.0) + 1) for name in nodes}
        operators = [replace(o, min_accuracy=None if o.min_accuracy is None else o.min_accuracy * 0.3) for o in operators]
    return Observation(
        nodes=tuple(
            Node(name=n, cores=float(cores[n]), cpu=min(100.0 * cores[n], used[n] + rng.uniform(0.0, 20.0))) for n in nodes
        ),
        operators=tuple(operators),
        edges=tuple(edges),
    )


def _pipeline(rng: random.Random, name: str, nodes: list[str], cost: bool) -> tuple[list[Operator], list[Edge]]:
    shape = SHAPES[rng.choice(list(SHAPES))]
    operators: list[Operator] = []
    edges: list[Edge] = []
    rate: dict[str | None, float] = {None: rng.uniform(50.0, 500.0)}
    for consumer in dict.fromkeys(c for _, c in shape):
        inputs = [p for p, c in shape if c == consumer]
        count = rng.randint(1, 3)
        arriving = sum(rate[p] for p in inputs)
        done = arriving / count * rng.choice([1.0, 1.0, rng.uniform(0.4, 1.0)])
        is_query = not any(p == consumer for p, _ in shape)
        operators.append(
            Operator(
                name=f"{name}.{consumer}",
                instances=tuple(
                    Instance(
                        node=rng.choice(nodes),
                        in_rate=0.0 if rng.random() < 0.02 else done * rng.uniform(1.0, 1.2),
                        cpu=0.0 if rng.random() < 0.02 else rng.uniform(3.0, 90.0),
                    )
                    for _ in range(count)
                ),
                priority=rng.randint(1, 4) if is_query else None,
                min_accuracy=rng.choice([0.0, round(rng.uniform(0.1, 0.7), 2)]) if is_query else None,
                cost=_cost(rng, arriving / count) if cost and rng.random() < 0.7 else None,
            )
        )
        rate[consumer] = done * count * rng.uniform(0.5, 1.0)
        edges += [
            Edge(
                producer=None if p is None else f"{name}.{p}",
                topic=f"{name}.{consumer}.topic" if p is None else None,
                consumer=f"{name}.{consumer}",
                out_rate=rate[p],
                lag=rng.choice([0.0, rate[p] * rng.uniform(0.0, 20.0)]),
            )
            for p in inputs
        ]
    return operators, edges


def _cost(rng: random.Random, rows: float) -> Cost:
    return Cost(fixed=rng.uniform(0.0, 10.0), per_arrived=rng.uniform(0.0, 20.0) / rows, per_kept=rng.uniform(0.0, 60.0) / rows)


def wild(seed: int, *, cost: bool = False) -> Observation:
    """A world in which some edges shed already, nothing arrives on some, lags or keeps are not known, and instances are new."""
    seen, rng = world(seed, cost=cost), random.Random(f"wild {seed}")

    def edge(e: Edge) -> Edge:
        quiet = e.producer is None and rng.random() < 0.15
        return replace(
            e,
            keep=rng.choice([1.0, 1.0, 1.0, 0.0, rng.random(), rng.random(), rng.choice([0.5, None])]),
            lag=rng.choice([None, e.lag, e.lag, e.lag, 0.0, 0.0]),
            out_rate=0.0 if quiet else e.out_rate,
        )

    def instance(i: Instance) -> Instance:
        if rng.random() > 0.04:
            return i
        return rng.choice([replace(i, warming=True), replace(i, in_rate=None, cpu=None, warming=True)])

    return replace(
        seen,
        edges=tuple(map(edge, seen.edges)),
        operators=tuple(replace(o, instances=tuple(map(instance, o.instances))) for o in seen.operators),
    )


def pinned(observation: Observation, seed: int) -> Observation:
    """Every third instance cannot be moved."""
    rng = random.Random(f"pinned {seed}")
    return replace(
        observation,
        operators=tuple(
            replace(o, instances=tuple(replace(i, movable=rng.random() > 0.33) for i in o.instances))
            for o in observation.operators
        ),
    )


def sharing(observation: Observation, seed: int) -> Observation:
    """Instances of a pipeline on one node share executors of one to three cores, two to four of them; some have none to share."""
    rng = random.Random(f"sharing {seed}")
    homes: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for k, operator in enumerate(observation.operators):
        for n, instance in enumerate(operator.instances):
            homes.setdefault((operator.name.split(".")[0], instance.node), []).append((k, n))
    executor: dict[tuple[int, int], tuple[str | None, float]] = {}
    for (pipeline, node), there in homes.items():
        rng.shuffle(there)
        while there:
            some, there = there[: (size := rng.randint(1, 4))], there[size:]
            named = f"{pipeline}/{node}/{len(there)}" if size > 1 else None
            executor |= dict.fromkeys(some, (named, float(rng.choice([1, 1, 2, 3]))))
    return replace(
        observation,
        operators=tuple(
            replace(
                o,
                instances=tuple(
                    replace(i, executor=executor[k, n][0], cores=executor[k, n][1]) for n, i in enumerate(o.instances)
                ),
            )
            for k, o in enumerate(observation.operators)
        ),
    )


def with_cores(observation: Observation, more: dict[str, float]) -> Observation:
    return replace(observation, nodes=tuple(replace(n, cores=n.cores + more.get(n.name, 0.0)) for n in observation.nodes))


def up_to_date(observation: Observation) -> Observation:
    """Nothing waits and nobody works off a backlog: what the papers' model knows of."""
    asked = {o.name: sum(e.out_rate or 0.0 for e in observation.edges if e.consumer == o.name) for o in observation.operators}
    return replace(
        observation,
        edges=tuple(replace(e, lag=0.0) for e in observation.edges),
        operators=tuple(
            replace(
                o,
                instances=tuple(replace(i, in_rate=min(i.in_rate or 0.0, asked[o.name] / len(o.instances))) for i in o.instances),
            )
            for o in observation.operators
        ),
    )
