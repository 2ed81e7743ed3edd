"""The largest rate of the source under study: solved, checked, and compared with what the partitions say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spillway.decide.capacity.checks import EXACT, Answer, CutBroken, check
from spillway.decide.capacity.estimate import Capacities
from spillway.decide.capacity.network import Network, physical
from spillway.decide.capacity.partition import Partition, least
from spillway.decide.capacity.shares import Passed
from spillway.model.capacity import CapacityWorld
from spillway.policy import Policy

MaxFlow = Callable[[Network], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    value: float
    cut_value: float
    edges: tuple[int, ...]
    """Across the minimum partition."""
    overfilled: bool = False
    """The other sources alone are too much, or something lets nothing through."""


def largest(
    world: CapacityWorld, found: Capacities, flows: Passed, parts: Sequence[Partition], policy: Policy, max_flow: MaxFlow
) -> Largest | None:
    """None: nothing that is known bounds the rate. Raises AnswerBroken for an answer that does not prove itself.

    The solver's answer and the smallest limit of a partition are found independently. They are equal, unless single links have
    capacities and so do the instances behind them: then the network may let less through than any partition with all instances of
    an operator on one side.
    """
    bound = least(parts)
    if bound is None:
        return None
    if bound <= 0.0:
        return _overfilled([p for p in parts if p.limit is not None and p.limit <= 0.0], policy)
    network = physical(world, found, flows, bound)
    answer = max_flow(network)
    check(network, answer)
    slack = EXACT * max(answer.size, bound)
    free = any(e.links for e in world.edges)
    if answer.cut_value > bound + slack or (not free and answer.cut_value < bound - slack):
        raise CutBroken(
            f"the cut from {network.source} lets {answer.cut_value:g} rows/s through, but the minimum partition {bound:g}"
        )
    filtered = any(arc.share not in (None, 1.0) for arc in network.arcs)
    same = abs(answer.cut_value - bound) <= slack
    value = bound if same and filtered else answer.cut_value  # of the same number, the one with fewer roundings
    edges = {n for arc in answer.cut for n in network.arcs[arc].edges}
    return Largest(value=value, cut_value=value, edges=tuple(sorted(edges)), overfilled=value <= 0.0)


def _overfilled(full: Sequence[Partition], policy: Policy) -> Largest:
    """Of those that have no room left for the source, where the least of what the others bring fits."""
    fits = [p.capacity / p.held if p.held > 0.0 else 0.0 for p in full]
    most = min(fits) * (1.0 + policy.capacity_space_min)
    edges = {n for p, part in zip(full, fits, strict=True) if part <= most for n in p.edges}
    return Largest(value=0.0, cut_value=0.0, edges=tuple(sorted(edges)), overfilled=True)
