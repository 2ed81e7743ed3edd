"""Every answer is checked before it is given: rows are conserved, no arc carries more than it can, and flow value = cut value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spillway.decide.capacity.network import Network

EXACT = 1e-6
"""Share of a rate by which sums may differ; the solver works to 1e-7."""


class AnswerBroken(ArithmeticError):
    """One sentence: what is wrong with an answer, and where. It is never given."""


class ConservationBroken(AnswerBroken):
    """More or fewer rows leave a vertex than its shares say."""


class CapacityBroken(AnswerBroken):
    """An arc carries more than it can, or less than nothing."""


class CutBroken(AnswerBroken):
    """Flow value and cut value differ, so that one of them is not what it is said to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The largest rate of a source, with its proof: a flow that reaches it, and a cut that lets no more through."""

    value: float
    flow: tuple[float, ...]
    """By arc."""
    cut: tuple[int, ...]
    """Arcs from X to Y."""
    cut_value: float
    size: float
    """Of the terms of the cut value, which may be large and nearly cancel."""
    fits: float = 1.0
    """Part of what the other sources bring that can be carried at all."""


def check(network: Network, answer: Answer) -> None:
    """Raises AnswerBroken unless the answer proves itself.

    >>> from spillway.decide.capacity.network import Arc
    >>> one = Network(source="s", arcs=(Arc(tail="s", head="t", capacity=5.0),))
    >>> check(one, Answer(value=5.0, flow=(5.0,), cut=(0,), cut_value=5.0, size=5.0))
    >>> check(one, Answer(value=6.0, flow=(6.0,), cut=(0,), cut_value=5.0, size=5.0))
    Traceback (most recent call last):
    spillway.decide.capacity.checks.CapacityBroken: s → t carries 6 rows/s, but takes from 0 to 5
    """
    _check_capacities(network, answer)
    _check_conservation(network, answer)
    if not _same(answer.value, answer.cut_value, max(answer.value, answer.size)):
        raise CutBroken(
            f"the flow from {network.source} is {answer.value:g} rows/s, but its cut lets {answer.cut_value:g} through"
        )


def _check_capacities(network: Network, answer: Answer) -> None:
    for arc, flow in zip(network.arcs, answer.flow, strict=True):
        most = arc.capacity if arc.held is None else max(arc.capacity, arc.held)
        size = max(abs(flow), most if math.isfinite(most) else 0.0)
        if flow < -EXACT * size or flow > most + EXACT * size:
            raise CapacityBroken(f"{arc.tail} → {arc.head} carries {flow:g} rows/s, but takes from 0 to {arc.capacity:g}")
        if arc.held is not None and not _same(flow, answer.fits * arc.held, arc.held):
            raise ConservationBroken(f"{arc.tail} → {arc.head} carries {flow:g} rows/s, but {arc.held:g} come in any case")


def _check_conservation(network: Network, answer: Answer) -> None:
    into: dict[str, list[float]] = {network.source: [answer.value]}
    free: dict[str, list[float]] = {}
    for arc, flow in zip(network.arcs, answer.flow, strict=True):
        into.setdefault(arc.head, []).append(flow)
    for arc, flow in zip(network.arcs, answer.flow, strict=True):
        if arc.held is not None:
            continue
        came = math.fsum(into.get(arc.tail, []))
        if arc.share is None:
            free.setdefault(arc.tail, []).append(flow)
        elif not _same(flow, arc.share * came, max(abs(flow), arc.share * abs(came))):
            raise ConservationBroken(
                f"{arc.tail} takes {came:g} rows/s, but hands {flow:g} to {arc.head} in place of {arc.share:g} of each"
            )
    for vertex, flows in free.items():
        came, left = math.fsum(into.get(vertex, [])), math.fsum(flows)
        if not _same(came, left, max(abs(came), abs(left))):
            raise ConservationBroken(f"{came:g} rows/s come to {vertex}, but {left:g} leave it")


def _same(one: float, other: float, size: float) -> bool:
    return abs(one - other) <= EXACT * size + 1e-12
