"""Max-flow by other means than the linear program, for networks without forks: the paper's own paths, and NetworkX.

Without forks a network with selectivities is a plain one in other units: rows anywhere are counted as what becomes of them at the
sink. The other sources must be carried in any case; a largest flow that carries them leaves the source under study the rest, for
no optimisation path ever takes back what a source has sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spillway.decide.capacity.checks import Answer
from spillway.decide.capacity.improving import Pair, dispatched
from spillway.decide.capacity.network import OUTSIDE, Network

SOURCES, SINKS = "all sources", "all sinks"
HELD = "held"


class ForksHaveShares(ValueError):
    """One sentence: plain max-flow was asked of a network whose rows fork in fixed shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    capacity: dict[Pair, float]
    """In rows at the sink per second; finite."""
    scale: dict[str, float]
    """Rows at the sink for one row at a vertex."""
    held: float


def by_paths(network: Network) -> Answer:
    """The paper's own way: promote the flow along optimisation paths until there is none.

    >>> from spillway.decide.capacity.network import Arc
    >>> chain = Network(source="s", arcs=(Arc(tail="s", head="a", capacity=900.0, share=1.0),
    ...                                   Arc(tail="a", head="t", capacity=300.0, share=0.5)))
    >>> by_paths(chain).value, by_paths(chain).cut
    (600.0, (1,))
    """
    return _answer(network, lambda capacity: dispatched(capacity, SOURCES, [SINKS]))


def by_library(algorithm: str = "preflow_push") -> Callable[[Network], Answer]:
    """NetworkX with one of its algorithms, such as `preflow_push`, `edmonds_karp`, `dinitz` or `boykov_kolmogorov`."""

    def solve(capacity: Mapping[Pair, float]) -> tuple[dict[Pair, float], Collection[str]]:
        import networkx
        from networkx.algorithms import flow as flows

        graph = networkx.DiGraph()
        graph.add_nodes_from([SOURCES, SINKS])
        for (tail, head), most in capacity.items():
            graph.add_edge(tail, head, capacity=most)
        chosen: Any = getattr(flows, algorithm)
        _, by_vertex = networkx.maximum_flow(graph, SOURCES, SINKS, flow_func=chosen)
        _, (reached, _) = networkx.minimum_cut(graph, SOURCES, SINKS, flow_func=chosen)
        return {(tail, head): value for tail, below in by_vertex.items() for head, value in below.items()}, reached

    return lambda network: _answer(network, solve)


def plainly(network: Network) -> Plain:
    """The network in units of its sink, with one vertex in front of all sources and one behind all sinks."""
    if network.forks:
        raise ForksHaveShares(
            f"rows from {network.source} fork in fixed shares, which plain max-flow does not know; use the linear program"
        )
    scale = _scale(network)
    finite = math.fsum(a.capacity * scale[a.head] for a in network.arcs if math.isfinite(a.capacity))
    enough = 1.0 + finite + math.fsum((a.held or 0.0) * scale[a.head] for a in network.arcs)
    capacity: dict[Pair, float] = {(SOURCES, network.source): enough}
    held = 0.0
    for n, arc in enumerate(network.arcs):
        most = arc.capacity * scale[arc.head] if math.isfinite(arc.capacity) else enough
        if arc.held is not None:
            held += arc.held * scale[arc.head]
            capacity[SOURCES, f"{HELD} {n}"] = arc.held * scale[arc.head]
            capacity[f"{HELD} {n}", arc.head] = most
        elif arc.share != 0.0:
            capacity[arc.tail, arc.head] = most
    leaves = {a.tail for a in network.arcs if a.share != 0.0}
    for vertex in network.vertices:
        if vertex not in leaves and vertex != OUTSIDE:
            capacity[vertex, SINKS] = enough
    return Plain(capacity=capacity, scale=scale, held=held)


def _scale(network: Network) -> dict[str, float]:
    scale: dict[str, float] = {}
    beside: dict[str, list[tuple[str, float]]] = {}
    for arc in network.arcs:
        if arc.held is None and arc.share != 0.0:
            share = 1.0 if arc.share is None else arc.share
            beside.setdefault(arc.tail, []).append((arc.head, 1.0 / share))
            beside.setdefault(arc.head, []).append((arc.tail, share))
    for first in reversed(network.vertices):
        if first in scale:
            continue
        scale[first] = 1.0
        waiting = [first]
        while waiting:
            vertex = waiting.pop()
            for other, factor in beside.get(vertex, []):
                if other not in scale:
                    scale[other] = scale[vertex] * factor
                    waiting.append(other)
    return scale


def _answer(network: Network, solve: Callable[[Mapping[Pair, float]], tuple[dict[Pair, float], Collection[str]]]) -> Answer:
    """Solved twice: the second time the source under study sends no more than the others leave it, so that these are carried."""
    plain = plainly(network)
    scale, one = plain.scale, plain.scale[network.source]
    first, reached = solve(plain.capacity)
    whole = math.fsum(value for (tail, _), value in first.items() if tail == SOURCES)
    rest = max(0.0, whole - plain.held)
    flow, _ = solve({**plain.capacity, (SOURCES, network.source): rest})
    carried, cut, terms = [], [], []
    for n, arc in enumerate(network.arcs):
        tail = arc.tail if arc.held is None else f"{HELD} {n}"
        carried.append(0.0 if arc.share == 0.0 else flow.get((tail, arc.head), 0.0) / scale[arc.head])
        if arc.held is not None and tail in reached:
            terms.append(-arc.held * scale[arc.head])
        if arc.share != 0.0 and tail in reached and arc.head not in reached:
            cut.append(n)
            terms.append(arc.capacity * scale[arc.head])
    return Answer(
        value=flow.get((SOURCES, network.source), 0.0) / one,
        flow=tuple(carried),
        cut=tuple(cut),
        cut_value=math.fsum(terms) / one,
        size=math.fsum(abs(t) for t in terms) / one,
    )
