"""Progressive filling: raise the accuracy of queries together, each at its pace, until what it needs more of is used up.

Algorithm 3 of the paper, mended. The paper shares the CPU of one node at a time and does not come back: CPU given to an operator
stays with it when another node, or another operator of the same query, later allows less, and lower priorities are handed CPU
that the query itself could have used. Here a level of water rises at all nodes at once; a query stops where the first node it
runs on is full, and everyone else goes on. With one operator per query on one node the result is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.decide.qod.propagate import upward
from spillway.decide.qod.uses import Uses
from spillway.decide.qod.world import Flags, Floats, Ints, World, lowest, matches, total

NOTHING = -1
"""Limited by nothing but the accuracy that was asked for."""
SLIVER = 1e-9
"""Percent of a core that does not count."""
ALIKE = 1e-8
"""Accuracies closer than this are the same."""


@dataclass(frozen=True, slots=True)
class Filled:
    accuracy: Floats
    limit: Ints
    """By query: the resource that was used up when it stopped, or NOTHING."""


def fill(world: World, uses: Uses, capacity: Floats, start: Floats, most: Floats, pace: Floats) -> Filled:
    """Raises queries from `start` to `most`, `pace` accuracy per percent of a core of their heaviest instance.

    `capacity` is what may be used of every resource. A pace of 0 does not rise; an infinite one costs nothing.

    Two queries of 100 percent each on one core that has 90 to give, one of them wanting no more than 0.3:

    >>> from spillway.decide.qod.examples import fork
    >>> rows = Uses(resource=np.array([0, 0]), operator=np.array([3, 4]), weight=np.array([100.0, 100.0]))
    >>> filled = fill(fork(), rows, np.array([90.0]), np.zeros(2), np.array([0.3, 1.0]), np.array([0.01, 0.01]))
    >>> filled.accuracy.round(6).tolist(), filled.limit.tolist()
    ([0.3, 0.6], [-1, 0])
    """
    accuracy = np.where(np.isinf(pace), most, start)
    limit = np.full(len(start), NOTHING)
    rising = (pace > 0.0) & np.isfinite(pace) & (most > start)
    entries = _Entries.of(world, uses, capacity, accuracy, rising)
    while len(entries.query):
        entries = entries.where(entries.could_overflow(most))
        if not len(entries.query):
            break
        level = _fullest(entries, start, most, pace)
        reached = entries.reached(level, start, most, pace)
        pressing = entries.pressing(reached, most)
        stop = lowest(entries.query[pressing], level[entries.resource_of][pressing], len(start), np.inf)
        soonest = np.minimum.reduceat(np.where(pressing, stop[entries.query], np.inf), entries.begin_of_resource)
        full = pressing & (level <= soonest)[entries.resource_of]  # nobody who presses there stops earlier elsewhere
        query, first = np.unique(entries.query[full], return_index=True)
        accuracy[query] = reached[full][first]
        limit[query] = entries.resource[entries.resource_of[full][first]]
        rising[query] = False
        entries = entries.settled(accuracy, rising)
    accuracy[rising] = most[rising]
    return Filled(accuracy, limit)


@dataclass(frozen=True, slots=True)
class _Entries:
    """One entry per resource, operator that uses it and rising query below that operator; in this order."""

    resource: Ints
    room: Floats
    """By resource: what is left while every use stands at `begun`."""
    resource_of_use: Ints
    weight: Floats
    begun: Floats
    """By use: the accuracy of its operator."""
    use: Ints
    query: Ints
    resource_of: Ints
    begin_of_use: Ints
    begin_of_resource: Ints

    @classmethod
    def of(cls, world: World, uses: Uses, capacity: Floats, accuracy: Floats, rising: Flags) -> _Entries:
        begun = upward(world, accuracy)
        room = capacity - uses.at(begun, len(capacity))
        below = rising[world.pair_query]
        operator, query = world.pair_operator[below], world.pair_query[below]
        use, pair = matches(uses.operator, operator)
        every = np.arange(len(capacity))
        whole = cls(
            every, room, uses.resource, uses.weight, begun[uses.operator], use, query[pair], uses.resource[use], every, every
        )
        return whole.where(uses.weight[use] > 0.0)

    def where(self, chosen: Flags) -> _Entries:
        """The chosen entries, with only the uses and resources they need."""
        use, used = _renumber(self.use[chosen])
        resource, needed = _renumber(self.resource_of_use[used])
        return _Entries(
            self.resource[needed], self.room[needed], resource, self.weight[used], self.begun[used], use, self.query[chosen],
            resource[use], _begins(use), _begins(resource[use]),
        )  # fmt: skip

    def used(self, reached: Floats) -> Floats:
        """By resource, what its uses take beyond `begun` when the query of every entry has reached so much."""
        above = np.maximum(np.maximum.reduceat(reached, self.begin_of_use) - self.begun, 0.0)
        return total(self.resource_of_use, self.weight * above, len(self.resource))

    def could_overflow(self, most: Floats) -> Flags:
        return (self.used(most[self.query]) > self.room + SLIVER)[self.resource_of]

    def reached(self, level: Floats, start: Floats, most: Floats, pace: Floats) -> Floats:
        """By entry, the accuracy of its query when the water at its resource stands at `level`."""
        return np.minimum(most[self.query], start[self.query] + level[self.resource_of] * pace[self.query])

    def pressing(self, reached: Floats, most: Floats) -> Flags:
        """Entries whose query, if it rose further, would use more: it leads its operator and wants more."""
        leading = np.maximum(np.maximum.reduceat(reached, self.begin_of_use), self.begun)[self.use]
        return (reached >= leading - ALIKE) & (reached < most[self.query])

    def settled(self, accuracy: Floats, rising: Flags) -> _Entries:
        """Without the queries that no longer rise; what they use is taken from the room."""
        goes = ~rising[self.query]
        begun = np.maximum(self.begun, np.maximum.reduceat(np.where(goes, accuracy[self.query], 0.0), self.begin_of_use))
        taken = total(self.resource_of_use, self.weight * (begun - self.begun), len(self.resource))
        rest = _Entries(
            self.resource, self.room - taken, self.resource_of_use, self.weight, begun, self.use, self.query,
            self.resource_of, self.begin_of_use, self.begin_of_resource,
        )  # fmt: skip
        return rest.where(~goes)


def _fullest(entries: _Entries, start: Floats, most: Floats, pace: Floats) -> Floats:
    """By resource, the highest level of water at which it is not overfull: regula falsi, a look just above, bisection."""
    query, room = entries.query, entries.room + SLIVER

    def over(level: Floats) -> Floats:
        return entries.used(np.minimum(most[query], start[query] + level[entries.resource_of] * pace[query])) - room

    low = np.zeros(len(room))
    high = np.maximum.reduceat((most[query] - start[query]) / pace[query], entries.begin_of_resource)
    over_low, over_high = np.minimum(over(low), 0.0), over(high)
    sliver = high * 1e-11
    for turn in range(120):
        gap = high - low
        if np.all(gap <= 2 * sliver):
            break
        if turn % 3 == 0:
            trial = low - gap * over_low / (over_high - over_low)
        elif turn % 3 == 1:
            trial = low + sliver
        else:
            trial = low + gap / 2
        over_trial = over(trial)
        fits = over_trial <= 0.0
        low, over_low = np.where(fits, trial, low), np.where(fits, over_trial, over_low)
        high, over_high = np.where(fits, high, trial), np.where(fits, over_high, over_trial)
    return low


def _begins(ordered: Ints) -> Ints:
    return np.flatnonzero(np.diff(ordered, prepend=-1))


def _renumber(ordered: Ints) -> tuple[Ints, Ints]:
    """0, 1, 2 … for ascending numbers with gaps, and the numbers they stand for."""
    steps = np.diff(ordered, prepend=-1) != 0
    return np.cumsum(steps) - 1, ordered[steps]
