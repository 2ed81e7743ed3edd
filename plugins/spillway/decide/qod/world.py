"""The observation as columns, so that an equation is one line for every operator at once.

Operators, nodes, edges and queries are numbered in the order of the observation. A value that is not known is NaN. `pairs` says
which queries lie below which operator (a query lies below itself).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spillway.model.qod import DEFAULT_FLOOR, DEFAULT_PRIORITY, Edge, Instance, Node, Operator

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Flags = NDArray[np.bool_]
OUTSIDE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    nodes: tuple[Node, ...]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]

    cores: Floats
    node_cpu: Floats
    node_warming: Flags
    """Nodes on which something warms up that is not in this world."""

    node_of: Ints
    """Of each instance; instances lie in the order of their operators."""
    operator_of: Ints
    in_rate: Floats
    done_rate: Floats
    """That of the rows its CPU was used for."""
    cpu: Floats
    warming: Flags
    movable: Flags
    instances: Ints
    """Number of instances, by operator."""
    first_instance: Ints

    executor_cores: Floats
    """By kind of executor: those that have the same operators and cores are one kind."""
    member_executor: Ints
    member_operator: Ints
    member_count: Ints
    """Which operators are in which kind of executor, and how many instances of each; ordered by executor."""

    producer: Ints
    """By edge; OUTSIDE for an external topic."""
    consumer: Ints
    out_rate: Floats
    lag: Floats
    inner: Ints
    """The edges between operators, producers before what they feed."""
    steps: tuple[int, ...]
    """Where in `inner` each next layer of producers begins, so that a layer depends on earlier ones only."""

    query: Ints
    """The operators with nothing downstream."""
    priority: tuple[int, ...]
    rank: Ints
    """The priorities of the queries as 0, 1, 2 …, the least important first."""
    floor: Floats
    may_rise: Flags
    pair_operator: Ints
    pair_query: Ints


def columns(
    nodes: tuple[Node, ...], operators: tuple[Operator, ...], edges: tuple[Edge, ...], warming: Collection[str] = ()
) -> World:
    """`warming`: nodes on which something warms up that is none of these operators."""
    node_number = {node.name: number for number, node in enumerate(nodes)}
    number = {operator.name: k for k, operator in enumerate(operators)}
    every = [i for operator in operators for i in operator.instances]
    instances = np.array([len(o.instances) for o in operators], dtype=np.intp)
    producer = np.array([OUTSIDE if e.producer is None else number[e.producer] for e in edges], dtype=np.intp)
    consumer = np.array([number[e.consumer] for e in edges], dtype=np.intp)
    inner, steps = _layers(producer, consumer, len(operators))
    is_query = np.ones(len(operators), dtype=bool)
    is_query[producer[producer != OUTSIDE]] = False
    query = np.flatnonzero(is_query)
    pair_operator, pair_query = _pairs(query, producer, consumer, inner, steps, len(operators))
    kinds, member = _executors(operators, every)
    promises = [operators[k] for k in query.tolist()]
    priority = tuple(DEFAULT_PRIORITY if o.priority is None else o.priority for o in promises)
    rank = {value: k for k, value in enumerate(sorted(set(priority)))}
    return World(
        nodes=nodes,
        operators=operators,
        edges=edges,
        cores=_floats([n.cores for n in nodes]),
        node_cpu=_floats([n.cpu for n in nodes]),
        node_warming=np.array([n.name in warming for n in nodes], dtype=bool),
        node_of=np.array([node_number[i.node] for i in every], dtype=np.intp),
        operator_of=np.repeat(np.arange(len(operators)), instances),
        in_rate=_floats([i.in_rate for i in every]),
        done_rate=_floats([i.in_rate if i.done_rate is None else i.done_rate for i in every]),
        cpu=_floats([i.cpu for i in every]),
        warming=np.array([i.warming for i in every], dtype=bool),
        movable=np.array([i.movable for i in every], dtype=bool),
        instances=instances,
        first_instance=np.cumsum(instances) - instances,
        executor_cores=kinds,
        member_executor=member[0],
        member_operator=member[1],
        member_count=member[2],
        producer=producer,
        consumer=consumer,
        out_rate=_floats([e.out_rate for e in edges]),
        lag=_floats([e.lag for e in edges]),
        inner=inner,
        steps=steps,
        query=query,
        priority=priority,
        rank=np.array([rank[value] for value in priority], dtype=np.intp),
        floor=_floats([DEFAULT_FLOOR if o.min_accuracy is None else o.min_accuracy for o in promises]),
        may_rise=np.array([o.may_rise for o in promises], dtype=bool),
        pair_operator=pair_operator,
        pair_query=pair_query,
    )


def _executors(operators: tuple[Operator, ...], every: list[Instance]) -> tuple[Floats, Ints]:
    """Cores of every kind of executor; and executor, operator and number of instances of every member of one."""
    many = np.arange(len(operators))
    names, size = [i.executor for i in every], _floats([i.cores for i in every])
    alone = names.count(None)
    if alone == len(names) and np.all(size == 1.0):
        return np.ones(len(operators)), np.array([many, many, np.ones_like(many)])
    of = np.repeat(many, [len(o.instances) for o in operators])
    keys: Sequence[Hashable] = names
    if alone:  # alike instances of an operator that share with none are one kind of executor
        own = zip(of.tolist(), size.tolist(), strict=True)
        keys = [one if name is None else name for name, one in zip(names, own, strict=True)]
    number = dict(zip(dict.fromkeys(keys), range(len(names)), strict=False))
    executor = np.fromiter(map(number.__getitem__, keys), dtype=np.intp, count=len(names))
    cores = np.empty(len(number))
    cores[executor[::-1]] = size[::-1]  # what the first of several says
    rows, count = np.unique(executor * len(operators) + of, return_counts=True)
    x, k = np.divmod(rows, len(operators))
    if alone:
        count[np.array([isinstance(key, tuple) for key in number], dtype=bool)[x]] = 1
    return _kinds(cores, x, k, count)


def _kinds(cores: Floats, executor: Ints, operator: Ints, count: Ints) -> tuple[Floats, Ints]:
    """Executors that have the same operators and cores, once each; the members are ordered by executor, then operator."""
    members = np.bincount(executor, minlength=len(cores))
    slot = np.arange(len(executor)) - np.repeat(np.cumsum(members) - members, members)
    inside = np.full((len(cores), 2 * int(members.max(initial=0)) + 1), -1.0)
    inside[:, 0] = cores
    inside[executor, 1 + 2 * slot] = operator
    inside[executor, 2 + 2 * slot] = count
    inside += 0.0  # no row differs from another by the sign of a zero
    rows = inside.view(np.dtype((np.void, inside.itemsize * inside.shape[1]))).ravel()  # compared as bytes
    _, first = np.unique(rows, return_index=True)
    first.sort()
    kind = np.full(len(cores), -1)
    kind[first] = np.arange(len(first))
    kept = kind[executor] >= 0
    return cores[first], np.array([kind[executor[kept]], operator[kept], count[kept]], dtype=np.intp)


def _floats(values: list[float] | list[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _layers(producer: Ints, consumer: Ints, operators: int) -> tuple[Ints, tuple[int, ...]]:
    """Edges between operators, ordered by how far their producer is from the sources."""
    inner = np.flatnonzero(producer != OUTSIDE)
    above, below = producer[inner], consumer[inner]
    depth = np.zeros(operators, dtype=np.intp)
    for _ in range(operators + 1):
        deeper = depth.copy()
        np.maximum.at(deeper, below, depth[above] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    else:
        raise ValueError("the edges form a cycle")
    order = np.argsort(depth[above], kind="stable")
    layers = depth[above][order]
    steps = np.flatnonzero(np.diff(layers, prepend=-1)) if len(layers) else np.empty(0, dtype=np.intp)
    return inner[order], (*steps.tolist(), len(inner))


def _pairs(query: Ints, producer: Ints, consumer: Ints, inner: Ints, steps: tuple[int, ...], operators: int) -> tuple[Ints, Ints]:
    """Which queries lie below which operator, from the sinks upward; sorted by operator, then query."""
    many = max(len(query), 1)
    found = query * many + np.arange(len(query))  # one number per pair of operator and query
    for begin, end in reversed(list(pairwise(steps))):
        layer = inner[begin:end]
        edge, pair = matches(consumer[layer], found // many, operators)
        found = np.union1d(found, producer[layer][edge] * many + found[pair] % many)
    return found // many, found % many


def matches(wanted: Ints, ordered: Ints, size: int) -> tuple[Ints, Ints]:
    """Positions of equal numbers below `size`: every position in `wanted` with each one in `ordered`, which ascends.

    >>> [column.tolist() for column in matches(np.array([7, 3]), np.array([3, 3, 5, 7]), 8)]
    [[0, 1, 1], [3, 0, 1]]
    """
    counts = np.bincount(ordered, minlength=size)
    begin, count = (np.cumsum(counts) - counts)[wanted], counts[wanted]
    position = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    return np.repeat(np.arange(len(wanted)), count), position


def or_zero(values: Floats) -> Floats:
    """The values, and 0 for those that are not known."""
    return np.where(np.isnan(values), 0.0, values)


def highest(index: Ints, values: Floats, size: int, start: float = 0.0) -> Floats:
    """The largest of the values that carry the same index."""
    result = np.full(size, start)
    np.maximum.at(result, index, values)
    return result


def lowest(index: Ints, values: Floats, size: int, start: float = 1.0) -> Floats:
    """The smallest of the values that carry the same index."""
    result = np.full(size, start)
    np.minimum.at(result, index, values)
    return result


def total(index: Ints, values: Floats, size: int) -> Floats:
    """The sum of the values that carry the same index."""
    sums: Floats = np.bincount(index, weights=values, minlength=size)  # type: ignore[assignment]
    return sums
