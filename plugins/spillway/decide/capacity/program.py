"""The largest rate of a source as a linear program, solved by HiGHS; its dual prices are the cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway.decide.capacity.checks import Answer, CutBroken
from spillway.decide.capacity.network import Network

INFEASIBLE = 2
"""What `linprog` calls it."""
PRICE_MIN = 1e-7
WHOLE_PRICE = 1e-9


def by_program(network: Network) -> Answer:
    """`max r` over the rate `r` and the flow `f` of every arc, with

    - `f = share · (rows into the tail)` of arcs that leave in fixed shares, `f = held` of those of other sources,
    - rows in = rows out at every other vertex that is not a sink, and
    - `0 ≤ f ≤ c`.

    By duality the price of `f ≤ c` says by how much `r` would rise with c: arcs with a price are the cut, and the prices times
    the capacities, less what the other sources take of them, are its value. Where the others do not even fit alone the value
    is 0, and the cut is what they overfill.

    >>> from spillway.decide.capacity.network import Arc
    >>> copied = Network(source="s", arcs=(Arc(tail="s", head="a", capacity=500.0, share=1.0),
    ...                                    Arc(tail="s", head="b", capacity=800.0, share=1.0)))
    >>> by_program(copied).value, by_program(copied).cut
    (500.0, (0,))
    """
    size = _size(network)
    answer = _solved(network, size, others=False)
    return answer if answer is not None else _overfilled(network, size)


def _overfilled(network: Network, size: NDArray[np.float64]) -> Answer:
    answer = _solved(network, size, others=True)
    if answer is None or not answer.cut:
        raise CutBroken(f"the program for {network.source} has no solution, though no flow at all would be one")
    return answer


def _solved(network: Network, size: NDArray[np.float64], *, others: bool) -> Answer | None:
    """Variables: the flow of every arc over its size, then the rate, then the part of what the other sources bring.

    That part is 1; with `others` it is what is raised as far as possible, at rate 0. None: there is no such flow.
    """
    from scipy.optimize import linprog

    count = len(network.arcs)
    rate, part = count, count + 1
    matrix = _balance(network, size)
    goal = np.zeros(count + 2)
    goal[part if others else rate] = -1.0
    bounds: list[tuple[float, float]] = [(0.0, arc.capacity / size[n]) for n, arc in enumerate(network.arcs)]
    bounds += [(0.0, 0.0), (0.0, 1.0)] if others else [(0.0, math.inf), (1.0, 1.0)]
    solved = linprog(goal, A_eq=matrix, b_eq=np.zeros(matrix.shape[0]), bounds=bounds, method="highs-ds")
    if solved.status == INFEASIBLE:
        return None
    if solved.status != 0:
        raise CutBroken(f"the program for {network.source} was not solved: {solved.message}")
    flow = tuple((solved.x[:count] * size[:count]).tolist())
    prices = -solved.upper.marginals[:count]
    cut = tuple(n for n, (_, most) in enumerate(bounds[:count]) if most < math.inf and prices[n] * max(1.0, most) > PRICE_MIN)
    if others:
        return Answer(value=0.0, flow=flow, cut=cut, cut_value=0.0, size=0.0, fits=float(solved.x[part]))
    rents = solved.eqlin.marginals
    reduced = goal - matrix.T @ rents
    reduced[:count] += prices
    if prices.min(initial=0.0) < -PRICE_MIN or reduced[:part].min() < -PRICE_MIN:
        raise CutBroken(f"the prices for {network.source} are none: a flow could do better than they say")
    terms = _terms(network, cut, size, prices, rents)
    return Answer(
        value=float(solved.x[rate]) * float(size[rate]),
        flow=flow,
        cut=cut,
        cut_value=math.fsum(terms),
        size=math.fsum(abs(t) for t in terms),
    )


def _terms(
    network: Network, cut: Sequence[int], size: NDArray[np.float64], prices: NDArray[np.float64], rents: NDArray[np.float64]
) -> list[float]:
    """What each arc of the cut lets through of the source, and what the other sources take of it, below zero."""
    rate = float(size[-2])
    through = [_snapped(rate * float(prices[n] / size[n])) * network.arcs[n].capacity for n in cut]
    held = [(n, arc.held) for n, arc in enumerate(network.arcs) if arc.held is not None]
    return through + [-_snapped(rate * float(rents[row] / size[n])) * rows for row, (n, rows) in enumerate(held)]


def _snapped(price: float) -> float:
    """Without selectivities prices are whole numbers, and then the value of a cut is exact."""
    whole = float(round(price))
    return whole if whole and abs(price - whole) < WHOLE_PRICE * abs(whole) else price


def _size(network: Network) -> NDArray[np.float64]:
    """By how much each variable is divided, so that all are near 1: the solver has one tolerance for all of them."""
    about = network.about
    sizes = []
    for arc in network.arcs:
        tail = about.get(arc.tail, 1.0)
        if arc.held is not None:
            sizes.append(arc.held)
        else:
            sizes.append(min(tail, about.get(arc.head, 1.0)) if arc.share is None else arc.share * tail)
    return np.array([*(size if size > 0.0 else 1.0 for size in sizes), about.get(network.source, 1.0), 1.0])


def _balance(network: Network, size: NDArray[np.float64]) -> Any:
    """A row for every arc of another source, then one for every share, then one for every vertex that rows leave as they like."""
    from scipy.sparse import csr_array

    count = len(network.arcs)
    into: dict[str, list[int]] = {}
    out: dict[str, list[int]] = {}
    for n, arc in enumerate(network.arcs):
        into.setdefault(arc.head, []).append(n)
        if arc.share is None and arc.held is None:
            out.setdefault(arc.tail, []).append(n)
    into.setdefault(network.source, []).append(count)
    rows: list[dict[int, float]] = [
        {n: 1.0, count + 1: -arc.held / size[n]} for n, arc in enumerate(network.arcs) if arc.held is not None
    ]
    rows += [
        {n: 1.0, **{i: -arc.share * size[i] / size[n] for i in into.get(arc.tail, [])}}
        for n, arc in enumerate(network.arcs)
        if arc.share is not None
    ]
    for vertex, leaving in out.items():
        most = max(size[n] for n in leaving)
        rows.append({**{n: size[n] / most for n in leaving}, **{n: -size[n] / most for n in into.get(vertex, [])}})
    place = [number for number, row in enumerate(rows) for _ in row]
    column = [n for row in rows for n in row]
    value = [v for row in rows for v in row.values()]
    return csr_array((value, (place, column)), shape=(len(rows), count + 2))
