"""How long does a decision take, and how does that grow? (`make bench NAME=qod_scale`)

Taxi-shaped pipelines (two sources into a union that feeds two queries, four instances each, so twenty per pipeline) on nodes of
sixteen cores that hold twenty instances; priorities 1 to 3, floors 0.02 to 0.15, and a rush that asks about a third of the nodes
for more than they have. A world of 2 000 whose floors cannot all be met (five times as high, nodes of six cores) is timed beside
them: there the search for moves and for the smallest addition of cores comes on top. So is every world with executors that the
operators of a pipeline share (one of two cores per node), which are resources of their own, beside the nodes. Timed is `decide`:
from the `Observation`, with the conversion to columns and the reason of every edge, and in a second column from columns that are
there already, which is the arithmetic alone. The thesis reports 115 ms for 2 000.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from _common import exit_code, finish, say, spread
from spillway.decide.qod import decide
from spillway.decide.qod.plan import plan
from spillway.decide.qod.world import columns
from spillway.model.qod import Edge, Instance, Node, Observation, Operator
from spillway.policy import Policy

Timed = dict[int, dict[str, list[float]]]
"""Milliseconds, by number of instances and what was timed."""

SIZES = (200, 2_000, 20_000, 200_000)
GOALS_MS = {2_000: 10.0, 200_000: 1_000.0}
ROUNDS = {200: 200, 2_000: 100, 20_000: 20, 200_000: 7}
PER_OPERATOR, PER_NODE, CORES = 4, 20, 16
INFEASIBLE = 2_000
TIGHT: dict[str, Any] = {"cores": 6, "floors": 5.0}
SHAPE = ((None, "one"), (None, "two"), ("one", "union"), ("two", "union"), ("union", "bill"), ("union", "tips"))
RATES = {"one": 400.0, "two": 200.0, "union": 600.0, "bill": 600.0, "tips": 600.0}
CPU = {"one": 30.0, "two": 20.0, "union": 40.0, "bill": 90.0, "tips": 60.0}


def observation(instances: int, seed: int = 0, *, cores: int = CORES, floors: float = 1.0) -> Observation:
    rng = random.Random(seed)
    pipelines = max(1, instances // (PER_OPERATOR * len(RATES)))
    nodes = [f"n{k}" for k in range(max(2, instances // PER_NODE))]
    crowded = {name: rng.uniform(1.0, 2.0) if rng.random() < 0.35 else rng.uniform(0.5, 0.9) for name in nodes}
    operators, edges = [], []
    used = dict.fromkeys(nodes, 0.0)
    for number in range(pipelines):
        for name in RATES:
            places = rng.choices(nodes, k=PER_OPERATOR)
            slowed = min(1.0, 1.0 / max(crowded[n] for n in places))
            instance = [
                Instance(node=n, in_rate=RATES[name] / PER_OPERATOR * slowed * rng.uniform(1.0, 1.05), cpu=CPU[name] * slowed)
                for n in places
            ]
            for n in places:
                used[n] += CPU[name] * slowed
            query = name in ("bill", "tips")
            operators.append(
                Operator(
                    name=f"p{number}.{name}",
                    instances=tuple(instance),
                    priority=rng.randint(1, 3) if query else None,
                    min_accuracy=round(floors * rng.uniform(0.02, 0.15), 2) if query else None,
                )
            )
        edges += [
            Edge(
                producer=f"p{number}.{producer}" if producer else None,
                topic=None if producer else f"p{number}.{consumer}.topic",
                consumer=f"p{number}.{consumer}",
                out_rate=RATES[producer or consumer],
                lag=rng.choice([0.0, 0.0, 500.0]),
            )
            for producer, consumer in SHAPE
        ]
    return Observation(
        nodes=tuple(
            Node(name=n, cores=float(cores), cpu=min(100.0 * cores, used[n] + 20.0)) for n in nodes
        ),
        operators=tuple(operators),
        edges=tuple(edges),
    )  # fmt: skip


def with_executors(seen: Observation) -> Observation:
    """The instances that a pipeline has on one node share an executor there."""
    return dataclasses.replace(
        seen,
        operators=tuple(
            dataclasses.replace(
                operator,
                instances=tuple(
                    dataclasses.replace(i, executor=f"{operator.name.split('.')[0]}.{i.node}", cores=2.0)
                    for i in operator.instances
                ),
            )
            for operator in seen.operators
        ),
    )


def milliseconds(call: Callable[[], object], rounds: int) -> list[float]:
    call()
    times = []
    for _ in range(rounds):
        gc.collect()
        began = time.perf_counter()
        call()
        times.append(1000.0 * (time.perf_counter() - began))
    return times


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    args = parser.parse_args(argv)
    times = {size: measure(size, observation(size)) for size in args.sizes}
    shared = {size: measure(size, with_executors(observation(size))) for size in args.sizes}
    tight = {size: measure(size, observation(size, **TIGHT)) for size in args.sizes if size == INFEASIBLE}
    return conclude(times, shared, tight)


def measure(size: int, seen: Observation) -> dict[str, list[float]]:
    say(f"{size} instances: {len(seen.nodes)} nodes, {len(seen.operators)} operators, {len(seen.edges)} edges")
    policy, rounds = Policy(), ROUNDS.get(size, 10)
    world = columns(seen.nodes, seen.operators, seen.edges)
    decision = decide(seen, policy)
    below = sum(1 for edge in decision.edges if edge.keep < 1.0)
    say(f"  {below} edges shed, {len(decision.moves)} moves, feasible: {decision.feasible}")
    return {
        "decide": milliseconds(lambda: decide(seen, policy), rounds),
        "columns_given": milliseconds(lambda: plan(world, policy), rounds),
    }


def conclude(times: Timed, shared: Timed, tight: Timed) -> int:
    print(f"{'instances':>10}{'decide ms':>12}{'min':>9}{'max':>9}{'columns given':>15}{'growth':>9}")
    table(times, "")
    table(shared, "  shared executors")
    table(tight, "  floors that cannot be met")
    goals = {
        f"{size}_instances{what}_within_{most:g}_ms": median(found[size]) <= most
        for what, found in (("", times), ("_in_shared_executors", shared))
        for size, most in GOALS_MS.items()
        if size in found
    }
    finish(
        "qod_scale",
        {
            "ms": {str(size): {name: spread(found) for name, found in columns.items()} for size, columns in times.items()},
            "ms_shared_executors": {str(size): spread(found["decide"]) for size, found in shared.items()},
            "ms_infeasible": {str(size): spread(found["decide"]) for size, found in tight.items()},
            "goals": goals,
        },
    )
    return exit_code(goals)


def table(timed: Timed, remark: str) -> None:
    previous: tuple[int, float] | None = None
    for size, found in timed.items():
        took = median(found)
        growth = f"n^{math.log(took / previous[1]) / math.log(size / previous[0]):.2f}" if previous else ""
        print(
            f"{size:>10}{took:>12.2f}{min(found['decide']):>9.2f}{max(found['decide']):>9.2f}"
            f"{statistics.median(found['columns_given']):>15.2f}{growth:>9}{remark}"
        )
        previous = (size, took)


def median(found: dict[str, list[float]]) -> float:
    return statistics.median(found["decide"])


if __name__ == "__main__":
    sys.exit(main())
