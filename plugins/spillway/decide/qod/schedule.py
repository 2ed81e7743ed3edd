"""Where a new or moved instance goes: algorithm 3.1 of the thesis."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

FULL_CORE = 100.0


def estimate(last: float | None, siblings: Sequence[float | None]) -> float:
    """CPU an instance will use: its own last measure, else the mean of its siblings', else a full core.

    >>> estimate(40.0, [90.0]), estimate(None, [30.0, None, 50.0]), estimate(None, [])
    (40.0, 40.0, 100.0)
    """
    if last is not None:
        return last
    known = [cpu for cpu in siblings if cpu is not None]
    return sum(known) / len(known) if known else FULL_CORE


def place(
    cpu: float, free: Mapping[str, float], *, preferred: Collection[str] = (), avoid: Collection[str] = (), seed: int = 0
) -> str | None:
    """The node with the most CPU free, among the preferred ones that can hold the instance, else among all.

    `free` is `100·cores − cpu − Σ estimates of instances that have no metrics yet`, by node; it may be negative, for estimates
    may be wrong. An instance never goes back to a node in `avoid`. Equals are decided by `seed`. None: there is no node to go to.

    >>> free = {"n1": 80.0, "n2": 30.0, "n3": -20.0}
    >>> place(20.0, free, preferred=["n2", "n3"]), place(50.0, free, preferred=["n2", "n3"]), place(500.0, free, avoid=["n1"])
    ('n2', 'n1', 'n2')
    """
    able = [node for node in free if node in preferred and node not in avoid and free[node] >= cpu]
    nodes = able or [node for node in free if node not in avoid]
    if not nodes:
        return None
    most = max(free[node] for node in nodes)
    best = sorted(node for node in nodes if free[node] == most)
    return best[0] if len(best) == 1 else random.Random(f"{seed}:{':'.join(best)}").choice(best)
