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
SLIVER = 1e-8
"""Percent of a core that does not count."""
ROUNDING = 1e-10
"""Percent of a core by which sums may be off."""
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
    entries = _Entries.of(world, uses, capacity, accuracy, rising).crowded(rising, most)
    while len(entries.query):
        level = _fullest(entries, start, most, pace)
        reached = entries.reached(level, start, most, pace)
        leading = entries.leading(reached)
        pressing = leading & (reached < most[entries.query])
        stop = lowest(entries.query, level[entries.resource_of], len(start), np.inf)
        q = entries.query
        attained = np.minimum(most[q], start[q] + stop[q] * pace[q])
        sure = np.logical_and.reduceat(~leading | (reached <= attained), entries.begin_of_resource)
        full = pressing & sure[entries.resource_of]  # nobody who counts there stops earlier, elsewhere
        if not full.any():  # by rounding only: at the lowest level everybody has what they wanted
            entries = entries.where(np.logical_or.reduceat(pressing, entries.begin_of_resource)[entries.resource_of])
            continue
        query = entries.query[full]
        accuracy[query] = reached[full]
        limit[query[::-1]] = entries.resource[entries.resource_of[full]][::-1]  # of several the first, a node before a core
        rising[query] = False
        entries = entries.settled(accuracy, rising).crowded(rising, most)
    accuracy[rising] = most[rising]
    return Filled(np.where(accuracy - start < ALIKE, start, accuracy), np.where(accuracy > most - ALIKE, NOTHING, limit))


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
        room = np.maximum(capacity - uses.at(begun, len(capacity)), 0.0)
        below = rising[world.pair_query]
        operator, query = world.pair_operator[below], world.pair_query[below]
        use, pair = matches(uses.operator, operator, len(world.operators))
        every = np.arange(len(capacity))
        whole = cls(
            every, room, uses.resource, uses.weight, begun[uses.operator], use, query[pair], uses.resource[use], every, every
        )
        return whole.where(uses.weight[use] > 0.0)

    def where(self, chosen: Flags) -> _Entries:
        """The chosen entries, with only the uses and resources they need."""
        use, used, begin_of_use = _renumber(self.use[chosen])
        resource, needed, first_use = _renumber(self.resource_of_use[used])
        return _Entries(
            self.resource[needed], self.room[needed], resource, self.weight[used], self.begun[used], use, self.query[chosen],
            resource[use], begin_of_use, begin_of_use[first_use],
        )  # fmt: skip

    def used(self, reached: Floats) -> Floats:
        """By resource, what its uses take beyond `begun` when the query of every entry has reached so much."""
        above = np.maximum(np.maximum.reduceat(reached, self.begin_of_use) - self.begun, 0.0)
        return total(self.resource_of_use, self.weight * above, len(self.resource))

    def crowded(self, rising: Flags, most: Floats) -> _Entries:
        """Those of queries that still rise, at resources that have not room enough for all of them."""
        rises = rising[self.query]
        over = self.used(np.where(rises, most[self.query], 0.0)) > self.room + SLIVER
        return self.where(rises & over[self.resource_of])

    def reached(self, level: Floats, start: Floats, most: Floats, pace: Floats) -> Floats:
        """By entry, the accuracy of its query when the water at its resource stands at `level`."""
        return np.minimum(most[self.query], start[self.query] + level[self.resource_of] * pace[self.query])

    def leading(self, reached: Floats) -> Flags:
        """Entries whose query has the highest accuracy that its operator serves, and so sets what is used."""
        highest = np.maximum(np.maximum.reduceat(reached, self.begin_of_use), self.begun)
        return reached >= highest[self.use] - ALIKE

    def bends(self, start: Floats, most: Floats, pace: Floats) -> tuple[Ints, Floats]:
        """Resource and level of every bend: where a query overtakes what its operator serves already, another query or that
        query's goal, and where it reaches its own."""
        q = self.query
        begin, rate, end = start[q], pace[q], most[q]
        levels = [np.zeros(len(self.resource)), (self.begun[self.use] - begin) / rate, (end - begin) / rate]
        resources = [np.arange(len(self.resource)), self.resource_of, self.resource_of]
        apart = 1
        while len(pair := (self.use[apart:] == self.use[:-apart]).nonzero()[0]):
            other = pair + apart
            faster = rate[pair] - rate[other]
            crossing = np.divide(begin[other] - begin[pair], faster, out=np.zeros_like(faster), where=faster != 0.0)
            levels += [crossing, (end[other] - begin[pair]) / rate[pair], (end[pair] - begin[other]) / rate[other]]
            resources += [self.resource_of[pair]] * 3
            apart += 1
        return np.concatenate(resources), np.maximum(np.concatenate(levels), 0.0)

    def settled(self, accuracy: Floats, rising: Flags) -> _Entries:
        """What queries that no longer rise use is taken from the room."""
        goes = ~rising[self.query]
        begun = np.maximum(self.begun, np.maximum.reduceat(np.where(goes, accuracy[self.query], 0.0), self.begin_of_use))
        taken = total(self.resource_of_use, self.weight * (begun - self.begun), len(self.resource))
        return _Entries(
            self.resource, np.maximum(self.room - taken, 0.0), self.resource_of_use, self.weight, begun, self.use, self.query,
            self.resource_of, self.begin_of_use, self.begin_of_resource,
        )  # fmt: skip


def _fullest(entries: _Entries, start: Floats, most: Floats, pace: Floats) -> Floats:
    """By resource, the highest level of water at which it is not overfull.

    What is used is a straight line between bends, so the last bend that still fits is searched by halving, and the rest is exact.
    """
    room, q = entries.room + ROUNDING, entries.query
    begin, end, rate = start[q], most[q], pace[q]

    def used(level: Floats) -> Floats:
        return entries.used(np.minimum(end, begin + level[entries.resource_of] * rate))

    resource, bend = entries.bends(start, most, pace)
    both = np.empty(len(bend), dtype=np.complex128)  # which numpy sorts by its real part first
    both.real, both.imag = resource, bend
    both.sort()
    bend = both.imag
    count = np.bincount(resource, minlength=len(room))
    bursts = count.cumsum() - 1
    fits = bursts - count + 1
    for _ in range(max(int(count.max(initial=0)) - 2, 0).bit_length()):  # until they are next to each other everywhere
        middle = (fits + bursts) // 2
        holds = used(bend[middle]) <= room
        fits, bursts = np.where(holds, middle, fits), np.where(holds, bursts, middle)
    below, above = bend[fits], bend[bursts]
    used_below = used(below)
    steep = np.maximum(used(above) - used_below, ROUNDING)
    return below + (above - below) * np.minimum(np.maximum((entries.room - used_below) / steep, 0.0), 1.0)


def _renumber(ordered: Ints) -> tuple[Ints, Ints, Ints]:
    """0, 1, 2 … for ascending numbers with gaps, the numbers they stand for, and where each begins.

    >>> [column.tolist() for column in _renumber(np.array([4, 4, 7]))]
    [[0, 0, 1], [4, 7], [0, 2]]
    """
    steps = np.empty(len(ordered), dtype=bool)
    steps[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=steps[1:])
    begin = steps.nonzero()[0]
    return steps.cumsum() - 1, ordered[begin], begin
