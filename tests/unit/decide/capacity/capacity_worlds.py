"""Seeded flow networks, and second opinions on them that share no code with the detector."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import networkx
from spillway.model.capacity import Busy, CapacityWorld, FlowEdge, FlowOperator


def tree(seed: int, *, whole: bool = True, links: bool = False) -> CapacityWorld:
    """Several sources into one sink, nothing forks and nothing is filtered; `whole`: capacities are whole numbers."""
    rng = random.Random(f"tree {seed}")

    def number(low: int, high: int) -> float:
        return float(rng.randint(low, high)) if whole else rng.uniform(low, high)

    operators, edges = [], []
    count = rng.randint(1, 12)
    inputs: dict[int, list[tuple[str | None, str | None]]] = {k: [] for k in range(count)}
    for k in range(1, count):
        inputs[rng.randrange(max(0, k - 4), k)].append((f"o{k}", None))
    for k in range(count):
        if not inputs[k] or rng.random() < 0.2:
            inputs[k].append((None, f"t{k}"))
    studied = rng.choice([topic for some in inputs.values() for _, topic in some if topic])
    for k in range(count):
        parallelism = rng.randint(1, 4)
        by_instance = links and rng.random() < 0.6
        operators.append(
            FlowOperator(
                name=f"o{k}",
                parallelism=parallelism,
                capacity=number(50, 400) if not by_instance and rng.random() < 0.7 else None,
                instances=tuple(Busy(rows=number(40, 150), busy_s=1.0) for _ in range(parallelism)) if by_instance else (),
            )
        )
        edges += [
            FlowEdge(
                producer=producer,
                topic=topic,
                consumer=f"o{k}",
                flow=number(1, 3) if topic else None,
                capacity=number(40, 300) if not by_instance and rng.random() < 0.6 else None,
                links=tuple(number(40, 120) for _ in range(parallelism)) if by_instance and rng.random() < 0.7 else (),
                backlog=1000.0 if topic == studied else 0.0,
            )
            for producer, topic in inputs[k]
        ]
    return CapacityWorld(operators=tuple(operators), edges=tuple(edges))


def left_for(world: CapacityWorld, source: str) -> Fraction | None:
    """What NetworkX leaves a source of a tree, exactly; None: the other sources do not fit alone, or nothing bounds it."""
    graph: Any = networkx.DiGraph()
    held, bounded = Fraction(0), False

    def arc(tail: str, head: str, capacity: float | None) -> None:
        graph.add_edge(tail, head, **({} if capacity is None else {"capacity": Fraction(capacity)}))

    producers = {e.producer for e in world.edges}
    for o in world.operators:
        arc(f"in {o.name}", f"out {o.name}", o.capacity)
        if o.name not in producers:
            arc(f"out {o.name}", "T", None)
        for j, instance in enumerate(o.instances):
            arc(f"{o.name}[{j}]", f"in {o.name}", instance.rows / instance.busy_s)
        bounded |= o.capacity is not None or bool(o.instances)
    for e in world.edges:
        consumer = next(o for o in world.operators if o.name == e.consumer)
        tail = f"out {e.producer}" if e.producer else f"topic {e.topic}"
        arc(tail, f"edge {e.name}", e.capacity)
        bounded |= e.capacity is not None or bool(e.links)
        if consumer.instances:
            for j in range(consumer.parallelism):
                arc(f"edge {e.name}", f"{consumer.name}[{j}]", e.links[j] if e.links else None)
        elif e.links:
            arc(f"edge {e.name}", f"in {consumer.name}", sum(map(Fraction, e.links)))  # type: ignore[arg-type]
        else:
            arc(f"edge {e.name}", f"in {consumer.name}", None)
        if e.producer is None and e.topic != source:
            arc("S", tail, e.flow)
            held += Fraction(e.flow or 0.0)
    if not bounded:
        return None
    if held and networkx.maximum_flow_value(graph, "S", "T") < held:
        return None
    graph.add_edge("S", f"topic {source}")
    try:
        return Fraction(networkx.maximum_flow_value(graph, "S", "T")) - held
    except networkx.NetworkXUnbounded:
        return None


def dag(seed: int) -> CapacityWorld:
    """Operators that copy, split, filter and join, with one to three sources; some capacities are of edges, some of operators."""
    rng = random.Random(f"dag {seed}")
    count = rng.randint(2, 14)
    topics = [f"t{n}" for n in range(rng.randint(1, 3))]
    edges, operators = [], []
    for k in range(count):
        ends: list[tuple[str | None, str | None]] = [
            (f"o{p}", None) for p in rng.sample(range(k), min(k, rng.choice([1, 1, 2, 3])))
        ]
        if k < len(topics):
            ends.append((None, topics[k]))
        if rng.random() < 0.15 and k >= len(topics):
            ends.append((None, topics[0]))
        of_edges = rng.random() < 0.5
        operators.append(
            FlowOperator(name=f"o{k}", parallelism=rng.randint(1, 5), capacity=None if of_edges else rng.uniform(100.0, 2000.0))
        )
        edges += [
            FlowEdge(
                producer=producer,
                topic=topic,
                consumer=f"o{k}",
                flow=rng.uniform(0.0, 20.0),
                capacity=rng.uniform(50.0, 1000.0) if of_edges else None,
                selectivity=rng.choice([None, rng.uniform(0.05, 2.0), 0.0 if rng.random() < 0.1 else 1.0]) if producer else None,
                backlog=rng.uniform(0.0, 100.0) if producer is None else None,
                arrival=rng.choice([None, rng.uniform(0.0, 20.0)]) if producer is None else None,
            )
            for producer, topic in ends
        ]
    return CapacityWorld(operators=tuple(operators), edges=tuple(edges))


def fits(world: CapacityWorld, source: str, rate: float) -> bool:
    """Whether everything that the source reaches can follow it at this rate: rows are passed forward, operator by operator."""
    into: dict[str, tuple[float, bool]] = {}
    followed = True
    for operator in world.operators:
        rows, reached = [], []
        inputs = [e for e in world.edges if e.consumer == operator.name]
        for e in inputs:
            share = 1.0 if e.selectivity is None else e.selectivity
            if e.producer is not None:
                came, touched = into[e.producer]
                rows.append(share * came)
                reached.append(touched and share > 0.0)
            elif e.topic == source:
                rows.append(share * rate)
                reached.append(True)
            else:
                rows.append(e.flow or 0.0 if e.arrival is None else e.arrival)
                reached.append(False)
            if e.capacity is not None and rows[-1] > e.capacity:
                if reached[-1]:
                    followed = False
                rows[-1] = e.capacity
        whole = sum(rows)
        if operator.capacity is not None and whole > operator.capacity:
            followed &= not any(reached)
            whole = operator.capacity
        into[operator.name] = (whole, any(reached))
    return followed


def largest_by_trying(world: CapacityWorld, source: str) -> float:
    """The largest rate that fits, by bisection; 0: none does."""
    if not fits(world, source, 0.0):
        return 0.0
    low, high = 0.0, 1.0
    while fits(world, source, high):
        low, high = high, high * 2.0
        if high > 1e12:
            return high
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(world, source, middle) else (low, middle)
    return low
