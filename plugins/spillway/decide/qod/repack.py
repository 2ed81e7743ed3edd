"""When the papers' choice of what to move has nowhere to go: look for another placement of the floors, or how little is missing.

The floors of instances on nodes are items in bins. A search starts from where everything is and, as long as that lowers what the
nodes are short of in sum, moves an item off the node that is shortest of all, or exchanges it for a smaller one. That can get
stuck, so in worlds small enough it also starts from packings of all items into the tightest bin, the largest first and in random
orders, and at last all packings are searched, as far as that goes.
"""

from __future__ import annotations

import random

import numpy as np

from spillway.decide.qod.world import Flags, Floats, Ints, total

SLIVER = 1e-9
MOST_ITEMS = 5_000
"""In larger worlds no other placement is looked for."""
MOST_PACKED = 300
"""In larger ones only by steps from where everything is, and not at all where the nodes together have too little."""
MOST_STEPS = 200
RESTARTS = 12
MOST_SEARCHED = 4_000


def repack(size: Floats, home: Ints, capacity: Floats, *, seed: int = 0) -> tuple[Ints, Floats]:
    """A new home for every item, and what every node is still short of; as little as was found, with as few moves as it takes.

    A capacity of −∞ takes nothing and gives nothing.

    A node of 100 holds 60 and 50, another one 30 and has room for 40; no item fits there, but 60 and 30 can change places:

    >>> new, short = repack(np.array([60.0, 50.0, 30.0]), np.array([0, 0, 1]), np.array([100.0, 70.0]))
    >>> new.tolist(), short.tolist()
    ([1, 0, 0], [0.0, 0.0])
    """
    best, short = improve(size, home, capacity)
    free = np.flatnonzero(~np.isneginf(capacity[home]))
    if len(free) > MOST_PACKED:
        return best, short
    rng = random.Random(seed)
    orders = [sorted(free.tolist(), key=lambda i: -size[i]), *(rng.sample(free.tolist(), len(free)) for _ in range(RESTARTS))]
    for order in orders:
        if not short.any():
            break
        other, left = improve(size, _packed(size, home, capacity, order), capacity)
        if left.sum() < short.sum() - SLIVER:
            best, short = other, left
    if short.any() and (found := _searched(size, home, capacity)) is not None:
        best, short = found, np.zeros_like(short)
    return _undone(size, home, best, capacity + short), short


def _searched(size: Floats, home: Ints, capacity: Floats) -> Ints | None:
    """A packing that fits, by depth-first search, the largest item first and the tightest bin first; None when none is found.

    Bins with equally much room are tried once, and a branch ends where the bins that can still take the smallest item have too
    little room for all that is left.

    >>> new = _searched(np.array([5.0, 4.0, 4.0, 3.0, 2.0]), np.array([0, 0, 0, 0, 0]), np.array([9.0, 9.0]))
    >>> np.bincount(new, [5.0, 4.0, 4.0, 3.0, 2.0]).tolist()
    [9.0, 9.0]
    """
    bins = np.flatnonzero(~np.isneginf(capacity)).tolist()
    items = [i for i in np.argsort(-size, kind="stable").tolist() if size[i] > SLIVER and not np.isneginf(capacity[home[i]])]
    sizes, room = size[items].tolist(), capacity[bins].tolist()
    left = np.append(np.cumsum(sizes[::-1])[::-1], 0.0).tolist()
    chosen: list[int] = []
    steps = 0

    def place(k: int) -> bool:
        nonlocal steps
        steps += 1
        if k == len(sizes):
            return True
        if steps > MOST_SEARCHED or sum(r for r in room if r >= sizes[-1] - SLIVER) < left[k] - SLIVER:
            return False
        tried: set[float] = set()
        for b in sorted(range(len(room)), key=room.__getitem__):
            if room[b] < sizes[k] - SLIVER or round(room[b], 6) in tried:
                continue
            tried.add(round(room[b], 6))
            room[b] -= sizes[k]
            chosen.append(bins[b])
            if place(k + 1):
                return True
            chosen.pop()
            room[b] += sizes[k]
        return False

    if min(room, default=0.0) < -SLIVER or not place(0):
        return None
    result = home.copy()
    result[items] = chosen
    return result


def _packed(size: Floats, home: Ints, capacity: Floats, order: list[int]) -> Ints:
    """Item after item into the bin it fills best, or where it overflows least."""
    result, room = home.copy(), np.where(np.isneginf(capacity), -np.inf, capacity)
    for item in order:
        left = room - size[item]
        fits = left >= -SLIVER
        to = int(np.argmin(np.where(fits, left, np.inf)) if fits.any() else np.argmax(left))
        result[item] = to
        room[to] -= size[item]
    return result


def _undone(size: Floats, home: Ints, new: Ints, capacity: Floats) -> Ints:
    """The same packing with fewer moves: what has room at home stays, and of two items alike the one that is there already."""
    new, moved = new.copy(), True
    while moved:
        moved = False
        room = capacity - total(new, size, len(capacity))
        for item in np.flatnonzero(new != home).tolist():
            alike = np.flatnonzero((new == home[item]) & (home != home[item]) & (np.abs(size - size[item]) < SLIVER))
            if room[home[item]] >= size[item] - SLIVER:
                room[new[item]] += size[item]
                room[home[item]] -= size[item]
                new[item], moved = home[item], True
            elif len(alike):
                new[alike[0]], new[item], moved = new[item], home[item], True
    return new


def improve(size: Floats, home: Ints, capacity: Floats) -> tuple[Ints, Floats]:
    """Step by step from one packing, to one that no single step makes better."""
    home = home.copy()
    fixed = np.isneginf(capacity)
    over = np.where(fixed, -np.inf, total(home, size, len(capacity)) - np.where(fixed, 0.0, capacity))
    stuck: set[int] = set()
    for _ in range(MOST_STEPS):
        short = [n for n in np.argsort(-over, kind="stable").tolist() if over[n] > SLIVER and n not in stuck]
        if not short:
            break
        step = _best_step(size, home, over, fixed, short[0])
        if step is None:
            stuck.add(short[0])
            continue
        item, partner, node = step
        for moved, to in ((item, node), (partner, short[0])):
            if moved is not None:
                over[home[moved]] -= size[moved]
                over[to] += size[moved]
                home[moved] = to
        stuck.clear()
    return home, np.maximum(np.where(fixed, 0.0, over), 0.0)


def _best_step(size: Floats, home: Ints, over: Floats, fixed: Flags, source: int) -> tuple[int, int | None, int] | None:
    """Item of `source`, item it is exchanged for or None, and where it goes; None when nothing makes the sum smaller."""
    roomy = ~fixed & (over < 0.0)  # what is moved to a full node is missing there instead
    here = np.flatnonzero((home == source) & (size > SLIVER))
    nodes = np.flatnonzero(roomy)
    if not len(here) or not len(nodes):
        return None
    gain = _gain(size[here][:, None], over[source], over[nodes][None, :])
    best = np.unravel_index(int(np.argmax(gain)), gain.shape)
    found: tuple[float, tuple[int, int | None, int]] = (float(gain[best]), (int(here[best[0]]), None, int(nodes[best[1]])))
    others = np.flatnonzero(roomy[home] & (size > SLIVER))
    if len(others):
        less = size[here][:, None] - size[others][None, :]
        gain = np.where(less > 0.0, _gain(less, over[source], over[home[others]][None, :]), -np.inf)
        best = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[best] > found[0] + SLIVER:
            partner = int(others[best[1]])
            found = (float(gain[best]), (int(here[best[0]]), partner, int(home[partner])))
    return found[1] if found[0] > SLIVER else None


def _gain(moved: Floats, source: float, target: Floats) -> Floats:
    """By how much the sum of what both nodes are short of falls when `moved` goes from one to the other."""
    before = np.maximum(source, 0.0) + np.maximum(target, 0.0)
    return before - np.maximum(source - moved, 0.0) - np.maximum(target + moved, 0.0)
