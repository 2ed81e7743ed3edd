"""The improving network and its optimisation paths (paper 002, section 2.2; equations 2 and 3).

Only for networks whose rows leave every vertex as they like; with shares fixed at forks a row more at the source is a row more on
every branch, and the smallest space of all of them decides (`drain.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    vertices: tuple[str, ...]
    value: float
    """(2): the smallest space on it."""


def improving(capacity: Mapping[Pair, float], flow: Mapping[Pair, float], least: float = 0.0) -> dict[Pair, float]:
    """Improve space `p = c − f` forward, reduce space `r = f` backward; spaces of no more than `least` are none.

    >>> improving({("s", "a"): 10.0, ("a", "t"): 4.0}, {("s", "a"): 4.0, ("a", "t"): 4.0})
    {('s', 'a'): 6.0, ('a', 's'): 4.0, ('t', 'a'): 4.0}
    """
    space: dict[Pair, float] = {}
    for (tail, head), most in capacity.items():
        carried = flow.get((tail, head), 0.0)
        space[tail, head] = space.get((tail, head), 0.0) + most - carried
        space[head, tail] = space.get((head, tail), 0.0) + carried
    return {pair: value for pair, value in space.items() if value > least}


def optimisation_path(space: Mapping[Pair, float], source: str, sinks: Collection[str]) -> Path | None:
    """A path from the source to one of the sinks through positive spaces, as short as there is; None: the flow is the largest.

    >>> optimisation_path({("s", "a"): 6.0, ("a", "t"): 4.0}, "s", ["t"])
    Path(vertices=('s', 'a', 't'), value=4.0)
    """
    below: dict[str, list[str]] = {}
    for tail, head in space:
        below.setdefault(tail, []).append(head)
    came: dict[str, str] = {source: source}
    waiting = deque([source])
    while waiting:
        vertex = waiting.popleft()
        if vertex in sinks:
            path = [vertex]
            while path[-1] != source:
                path.append(came[path[-1]])
            path.reverse()
            return Path(vertices=tuple(path), value=min(space[pair] for pair in pairwise(path)))
        for head in below.get(vertex, []):
            if head not in came:
                came[head] = vertex
                waiting.append(head)
    return None


def promoted(capacity: Mapping[Pair, float], flow: Mapping[Pair, float], path: Path) -> dict[Pair, float]:
    """(3): the flow `f ↑ f_p`, more by the value of the path along it, less where it goes backward.

    >>> promoted({("s", "a"): 10.0, ("a", "t"): 4.0}, {}, Path(vertices=("s", "a", "t"), value=4.0))
    {('s', 'a'): 4.0, ('a', 't'): 4.0}
    """
    after = dict(flow)
    for tail, head in pairwise(path.vertices):
        room = capacity.get((tail, head), 0.0) - after.get((tail, head), 0.0)
        forward = min(path.value, room)
        if forward > 0.0:
            after[tail, head] = after.get((tail, head), 0.0) + forward
        if path.value > forward:
            after[head, tail] = after.get((head, tail), 0.0) - (path.value - forward)
    return after


def dispatched(capacity: Mapping[Pair, float], source: str, sinks: Collection[str]) -> tuple[dict[Pair, float], set[str]]:
    """The first half of algorithm 2: promote the flow while there is an optimisation path.

    The largest flow, and X of its minimum partition: all that still can be reached.

    >>> flow, reached = dispatched({("s", "a"): 10.0, ("a", "t"): 4.0}, "s", ["t"])
    >>> flow, sorted(reached)
    ({('s', 'a'): 4.0, ('a', 't'): 4.0}, ['a', 's'])
    """
    flow: dict[Pair, float] = {}
    while path := optimisation_path(space := improving(capacity, flow, _rounding(capacity)), source, sinks):
        flow = promoted(capacity, flow, path)
    reached = {source}
    waiting = [source]
    while waiting:
        vertex = waiting.pop()
        further = [head for tail, head in space if tail == vertex and head not in reached]
        reached.update(further)
        waiting += further
    return flow, reached


def _rounding(capacity: Mapping[Pair, float]) -> float:
    return 1e-12 * max((c for c in capacity.values() if math.isfinite(c)), default=0.0)
