"""The shape of a planted world: a random DAG, shares at its forks, and rates that put the bottleneck where it is wanted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from spillway.simulate.planted import Law, PlantedEdge, PlantedOperator, PlantedWorld, Told, speedup

LEAST_OPERATORS, MOST_OPERATORS = 3, 40
REACH = 6
"""An operator reads from operators at most so many places before it."""
NARROW, WIDE = 1.3, 6.0
"""Limits of operators that are not planted, over the limit of the bottleneck."""
HELD_MOST = 0.15
"""Other sources bring an operator no more than this share of what the source under study brings it."""
MAIN = "events"


def shaped(seed: int, *, operators: int | None = None, law: Law = Law.LINEAR, noise: float = 0.0) -> PlantedWorld:
    rng = random.Random(f"planted {seed}")
    count = rng.randint(LEAST_OPERATORS, MOST_OPERATORS) if operators is None else operators
    names = [f"o{k + 1}" for k in range(count)]
    ends = _ends(rng, names)
    edges = _shares(rng, names, ends)
    sustained = rng.uniform(200.0, 20_000.0)
    others = _others(rng, names, edges, sustained)
    passed = passing(names, edges, {MAIN: 1.0}, others)
    marked = _marked(rng, [n for n in names if passed[n][0] > 0.0])
    return PlantedWorld(
        seed=seed,
        operators=tuple(_operator(rng, n, edges, passed[n], sustained, marked.get(n), law) for n in names),
        edges=edges,
        topic=MAIN,
        others=others,
        sustained=sustained,
        rate=sustained * rng.uniform(1.3, 4.0),
        planted=tuple(marked),
        law=law,
        noise=noise,
        passed=passed,
    )


def passing(
    names: Sequence[str], edges: Sequence[PlantedEdge], main: Mapping[str, float], others: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """By operator: rows that come in of `main`, and of `others`; both are rates by topic.

    >>> edges = [PlantedEdge(producer=None, topic="a", consumer="x", share=1.0),
    ...          PlantedEdge(producer="x", topic=None, consumer="y", share=0.5),
    ...          PlantedEdge(producer=None, topic="b", consumer="y", share=1.0)]
    >>> passing(["x", "y"], edges, {"a": 1.0}, {"b": 30.0})
    {'x': (1.0, 0.0), 'y': (0.5, 30.0)}
    """
    found: dict[str, tuple[float, float]] = {}
    for name in names:
        of_main = of_others = 0.0
        for edge in edges:
            if edge.consumer == name:
                above = (
                    found[edge.producer]
                    if edge.producer is not None
                    else (main.get(edge.topic or "", 0.0), others.get(edge.topic or "", 0.0))
                )
                of_main, of_others = of_main + edge.share * above[0], of_others + edge.share * above[1]
        found[name] = of_main, of_others
    return found


def _ends(rng: random.Random, names: Sequence[str]) -> list[tuple[str | None, str | None, str]]:
    """Producer, topic, consumer of every edge."""
    ends: list[tuple[str | None, str | None, str]] = [(None, MAIN, names[0])]
    sides = {rng.randrange(1, len(names)): f"side{n + 1}" for n in range(rng.randint(0, min(2, len(names) // 3)))}
    for k in range(1, len(names)):
        near = range(max(0, k - REACH), k)
        inputs = rng.sample(near, min(len(near), rng.choice([1, 1, 1, 2, 2, 3])))
        alone = k in sides and k < len(names) - 1 and rng.random() < 0.3
        if not alone:
            ends += [(names[p], None, names[k]) for p in sorted(inputs)]
        if k in sides:
            ends.append((None, sides[k], names[k]))
    if rng.random() < 0.25:
        ends.append((None, MAIN, names[rng.randrange(1, len(names))]))
    return ends


def _shares(
    rng: random.Random, names: Sequence[str], ends: Sequence[tuple[str | None, str | None, str]]
) -> tuple[PlantedEdge, ...]:
    """A fork copies or splits; what an operator makes of its rows steers against numbers that only grow or vanish on the way."""
    share: dict[tuple[str, str], float] = {}
    rows: dict[str, float] = {}
    for name in names:
        rows[name] = sum(1.0 if p is None else rows[p] * share[p, name] for p, _, c in ends if c == name)
        below = [c for p, _, c in ends if p == name]
        kept = (
            rng.uniform(0.1, 0.5) if rows[name] > 4.0 else rng.uniform(1.1, 2.5) if rows[name] < 0.25 else rng.uniform(0.3, 1.8)
        )
        if rng.random() < 0.5:
            parts = [rng.uniform(0.2, 1.0) for _ in below]
            share |= {(name, c): kept * part / sum(parts) for c, part in zip(below, parts, strict=True)}
        else:
            share |= dict.fromkeys([(name, c) for c in below], kept)
    return tuple(PlantedEdge(producer=p, topic=t, consumer=c, share=1.0 if p is None else share[p, c]) for p, t, c in ends)


def _others(rng: random.Random, names: Sequence[str], edges: Sequence[PlantedEdge], sustained: float) -> dict[str, float]:
    topics = sorted({e.topic for e in edges if e.topic not in (None, MAIN)} - {None})
    found: dict[str, float] = {}
    for topic in topics:
        both = passing(names, edges, {MAIN: sustained}, {topic: 1.0})
        most = min((HELD_MOST * main / one for main, one in both.values() if main > 0.0 and one > 0.0), default=sustained)
        found[topic] = most * rng.uniform(0.2, 1.0) / len(topics)
    return found


def _marked(rng: random.Random, names: Sequence[str]) -> dict[str, float]:
    """The planted ones, each with its limit over that of the bottleneck."""
    chosen = rng.sample(names, min(len(names), rng.choice([1, 1, 2])))
    return dict(zip(chosen, (1.0, rng.choice([1.0, rng.uniform(1.03, 1.12)])), strict=False))


def _operator(
    rng: random.Random,
    name: str,
    edges: Sequence[PlantedEdge],
    passed: tuple[float, float],
    sustained: float,
    marked: float | None,
    law: Law,
) -> PlantedOperator:
    over = rng.uniform(NARROW, WIDE)
    gain, held = passed
    rows = gain * sustained * (over if marked is None else marked) + held * (1.0 if gain > 0.0 else over)
    parallelism = rng.randint(1, 4)
    keyed = rng.random() < 0.35
    skew = rng.uniform(1.0, 1.8) if keyed else 1.0
    alone = sum(e.consumer == name for e in edges) == 1
    told = Told.INSTANCES if keyed else rng.choice([Told.BATCHES, Told.EDGE]) if alone else Told.BATCHES
    return PlantedOperator(name=name, rate=rows * skew / speedup(parallelism, law), parallelism=parallelism, skew=skew, told=told)
