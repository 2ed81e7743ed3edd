"""How a run went: how long it lagged, whose accuracy fell when, when all was whole again. Pure.

Times are seconds since the scenario began. The lag of an edge is what the planning of a batch left behind in its topic, in
seconds of what arrives there at that moment. Kafka's own lag also has the rows that the batch took, until it commits: `waiting`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, inf

from spillway.inject.profiles import Profile
from spillway.inject.scenario import Scenario, TopicLoad
from spillway.model.topology import Edge, Pipeline
from spillway.store.promises import accuracies

Lags = Mapping[str, Sequence[tuple[float, float]]]
"""By edge, (time, seconds of traffic)."""
STEP_S = 0.5
NOTICEABLE = 1.05
"""A rate this much above the one at the beginning belongs to the rush."""
HIGH = 0.9
"""Down to this share of the peak a rush is at its height."""
NEARLY = 0.85
"""A batch that takes this share of its target has found its size."""
STEADY = 1.1
"""One that is so much quicker than all before says that an operator still warms up."""
SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as one edge saw it."""

    edge: str
    consumer: str
    began_s: float
    ended_s: float
    read: int
    kept: int
    keep: float
    decision: int | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """A keep as it was set."""

    edge: str
    keep: float
    decision: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rush:
    begins_s: float
    ends_s: float
    peak: float
    """Events per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """An episode in which an edge lagged more than it should, or was not seen."""

    edge: str
    from_s: float
    to_s: float
    """Infinite: it was not over when the last batch was planned."""

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s


class Factor:
    """What rates are multiplied by, from some moments on. It may be set while they are played, for what is still to come.

    >>> factor = Factor(2.0)
    >>> factor.set(10.0, 3.0)
    >>> factor.at(9.0), factor.at(10.0), factor.steps
    (2.0, 3.0, ((0.0, 2.0), (10.0, 3.0)))
    """

    def __init__(self, first: float) -> None:
        self.steps: tuple[tuple[float, float], ...] = ((0.0, first),)

    def set(self, at_s: float, factor: float) -> None:
        """From `at_s` on, which is later than all that was set before."""
        self.steps = (*self.steps, (at_s, factor))

    def at(self, t: float) -> float:
        return next(factor for at_s, factor in reversed(self.steps) if at_s <= t or at_s == 0.0)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A profile with every rate multiplied.

    >>> from spillway.inject.profiles import Constant
    >>> factor = Factor(2.0)
    >>> factor.set(10.0, 3.0)
    >>> scaled = Scaled(Constant(5.0), factor)
    >>> scaled.rate(4.0), scaled.rate(12.0), scaled.events(10.0), scaled.events(12.0)
    (10.0, 15.0, 100.0, 130.0)
    """

    profile: Profile
    factor: Factor

    def rate(self, t: float) -> float:
        return self.factor.at(t) * self.profile.rate(t)

    def events(self, t: float) -> float:
        steps = [(at_s, factor) for at_s, factor in self.factor.steps if at_s <= t]
        ends = [*(at_s for at_s, _ in steps[1:]), t]
        return sum(f * (self.profile.events(end) - self.profile.events(at)) for (at, f), end in zip(steps, ends, strict=True))


def scaled(scenario: Scenario, factor: float | Factor) -> Scenario:
    """The same course with every rate multiplied."""
    by = factor if isinstance(factor, Factor) else Factor(factor)
    return replace(scenario, topics=tuple(replace(t, rate=Scaled(t.rate, by)) for t in scenario.topics))


def offered(scenario: Scenario, t_s: float) -> float:
    """Events per second over all topics."""
    return sum(load.rate.rate(t_s) for load in scenario.topics)


def peak(load: TopicLoad, duration_s: float) -> float:
    """The highest rate of one topic."""
    return max(load.rate.rate(STEP_S * n) for n in range(int(duration_s / STEP_S) + 1))


def rush(scenario: Scenario) -> Rush:
    """The part of a scenario in which more is sent than at its beginning."""
    times = _times(scenario)
    rates = [offered(scenario, t) for t in times]
    busy = [t for t, rate in zip(times, rates, strict=True) if rate > NOTICEABLE * rates[0]]
    if not busy:
        raise ValueError(f"scenario {scenario.name} has no rush: its rate never rises above the one at its beginning")
    return Rush(begins_s=busy[0], ends_s=busy[-1] + STEP_S, peak=max(rates))


def height(scenario: Scenario) -> Rush:
    """The part of its rush up to where less is sent again than at its peak."""
    whole = rush(scenario)
    high = [t for t in _times(scenario) if offered(scenario, t) > HIGH * whole.peak]
    return replace(whole, ends_s=high[-1] + STEP_S)


def _times(scenario: Scenario) -> list[float]:
    return [STEP_S * n for n in range(int(scenario.duration_s / STEP_S))]


def arriving(pipeline: Pipeline, scenario: Scenario, edge: Edge, keeps: Mapping[str, float], t_s: float) -> float:
    """Events per second that come to an edge: of its topic, or of all topics above its producer, less what is shed on the way."""
    rates = {load.topic: load.rate.rate(t_s) for load in scenario.topics}
    if edge.producer is None:
        return rates.get(edge.topic, 0.0)
    share = accuracies(pipeline, keeps)[edge.producer]
    return (share or 0.0) * sum(rates.get(topic, 0.0) for topic in _sources(pipeline, edge.producer))


def _sources(pipeline: Pipeline, operator: str) -> set[str]:
    """The external topics above an operator."""
    found: set[str] = set()
    for edge in pipeline.inputs(operator):
        found |= {edge.topic} if edge.producer is None else _sources(pipeline, edge.producer)
    return found


def lags(pipeline: Pipeline, batches: Iterable[Batch], scenario: Scenario) -> Lags:
    """By edge, (time, seconds of traffic) at the planning of every batch; nothing for an edge that was fed and planned none."""
    edges = {e.name: e for e in pipeline.edges}
    keeps = dict.fromkeys(edges, 1.0)
    fed = [name for name, e in edges.items() if any(arriving(pipeline, scenario, e, keeps, t) > 0.0 for t in _times(scenario))]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in fed}
    for b in sorted(batches, key=lambda b: b.began_s):
        keeps[b.edge] = b.keep
        rate = arriving(pipeline, scenario, edges[b.edge], keeps, b.began_s)
        if b.lag is not None and rate > 0.0:
            found.setdefault(b.edge, []).append((b.began_s, b.lag / rate))
    return found


def waiting(pipeline: Pipeline, batches: Iterable[Batch], scenario: Scenario) -> Lags:
    """The same of all that waits when a batch is planned: what it takes and what it leaves."""
    return lags(pipeline, (replace(b, lag=None if b.lag is None else b.lag + b.read) for b in batches), scenario)


def over(lags_s: Lags, limit_s: float, within: Rush, silence_s: float) -> list[Over]:
    """Episodes of the rush, by when they began. So long a stretch of it without a planned batch is one: nobody knows the lag."""
    found = []
    for edge, points in lags_s.items():
        since: float | None = None
        following = [*(t for t, _ in points), inf]
        for (t, lag), then in zip([(-inf, 0.0), *points], following, strict=True):
            unseen_s = min(then, within.ends_s) - max(t, within.begins_s)
            behind = lag > limit_s or unseen_s > silence_s
            if behind and since is None:
                since = t
            elif not behind and since is not None:
                found.append(Over(edge=edge, from_s=since, to_s=t))
                since = None
        if since is not None:
            found.append(Over(edge=edge, from_s=since, to_s=inf))
    during = [o for o in found if o.to_s > within.begins_s and o.from_s < within.ends_s]
    return sorted((replace(o, from_s=max(o.from_s, within.begins_s)) for o in during), key=lambda o: o.from_s)


def worst(lags_s: Lags, from_s: float, to_s: float) -> float:
    """The largest lag of any edge between two moments; 0 where no batch was planned."""
    return max((lag for points in lags_s.values() for t, lag in points if from_s <= t < to_s), default=0.0)


def grows(points: Sequence[tuple[float, float]], within: Rush, every_s: float) -> bool:
    """Whether the lag is larger at the end of every stretch of the rush than at the end of the one before.

    >>> grows([(0.0, 0.0), (9.0, 1.0), (19.0, 2.5), (29.0, 3.0)], Rush(begins_s=0.0, ends_s=30.0, peak=1.0), 10.0)
    True
    """
    times = [t for t, _ in points]
    ends = [within.begins_s + every_s * n for n in range(1, int((within.ends_s - within.begins_s) / every_s + SAME) + 1)]
    seen = [points[at - 1][1] if (at := bisect_right(times, end)) else 0.0 for end in ends]
    return len(seen) > 1 and seen[0] > 0.0 and all(a < b for a, b in pairwise(seen))


def in_force(pipeline: Pipeline, batches: Iterable[Batch]) -> list[tuple[float, dict[str, float]]]:
    """What the keeps in force would deliver to every query, from each batch on."""
    keeps: dict[str, float] = {e.name: 1.0 for e in pipeline.edges}
    queries = [q.name for q in pipeline.queries()]
    found = []
    for b in sorted(batches, key=lambda b: b.began_s):
        keeps[b.edge] = b.keep
        reached = accuracies(pipeline, keeps)
        found.append((b.began_s, {q: a for q in queries if (a := reached[q]) is not None}))
    return found


def delivered(pipeline: Pipeline, batches: Iterable[Batch]) -> list[tuple[float, dict[str, float]]]:
    """What every query gets of the source events, from each of its batches on.

    The rows of a batch were shed above by the keeps that were in force when they passed there, which need not be those of now:
    what an operator reads is followed back, in order, to the batches that wrote it.
    """
    by_operator: dict[str, dict[float, list[Batch]]] = {o.name: {} for o in pipeline.operators}
    for b in sorted(batches, key=lambda b: b.began_s):
        if b.read:
            by_operator[b.consumer].setdefault(b.began_s, []).append(b)
    written: dict[str, _Written] = {}

    def follow(operator: str) -> list[tuple[float, float]]:
        producers = {e.name: e.producer for e in pipeline.inputs(operator)}
        for producer in {p for p in producers.values() if p and p not in written}:
            follow(producer)
        own, seen, at = written.setdefault(operator, _Written()), [], dict.fromkeys(producers, 0)
        for began, parts in by_operator[operator].items():
            shares = []
            for b in parts:
                above = producers[b.edge]
                shares.append(b.keep * (written[above].mean(at[b.edge], at[b.edge] + b.read) if above else 1.0))
                at[b.edge] += b.read
            own.add(sum(b.kept for b in parts), min(shares))
            seen.append((began, min(shares)))
        return seen

    steps = sorted((t, q.name, share) for q in pipeline.queries() for t, share in follow(q.name))
    now, found = {q.name: 1.0 for q in pipeline.queries()}, []
    for t, query, share in steps:
        now = {**now, query: share}
        found.append((t, now))
    return found


class _Written:
    """What an operator wrote, in order: how many rows, and the share of the source events they are.

    >>> wrote = _Written()
    >>> wrote.add(100, 1.0), wrote.add(100, 0.5)
    (None, None)
    >>> wrote.mean(0, 100), wrote.mean(50, 150), wrote.mean(150, 400), _Written().mean(0, 10)
    (1.0, 0.75, 0.5, 1.0)
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._shares: list[float] = []

    def add(self, rows: int, share: float) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + rows)
        self._shares.append(share)

    def mean(self, begin: int, end: int) -> float:
        """Over the rows from `begin` on; beyond the last one it is as at the last."""
        if not self._ends:
            return 1.0
        total, n = 0.0, min(bisect_right(self._ends, begin), len(self._ends) - 1)
        at = begin
        while at < end:
            until = end if n == len(self._ends) - 1 else min(end, self._ends[n])
            total += self._shares[n] * (until - at)
            at, n = until, n + 1
        return total / (end - begin)


def least(course: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """The lowest accuracy each query had."""
    return {q: min(step[q] for _, step in course) for q in (course[0][1] if course else ())}


def first_shed(course: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """When each query first got less than everything; a query that never did is not there."""
    found: dict[str, float] = {}
    for t, step in course:
        for q, a in step.items():
            if a < 1.0 - SAME:
                found.setdefault(q, t)
    return found


def in_order(course: Sequence[tuple[float, Mapping[str, float]]], priorities: Mapping[str, int]) -> bool:
    """Whether nobody gave way before, or more than, a query that matters less; and whether anybody gave way at all."""
    first = first_shed(course)
    ranks = [(low, high) for low in priorities for high in priorities if priorities[low] < priorities[high]]
    sooner = all(first.get(low, inf) <= first.get(high, inf) for low, high in ranks)
    return bool(first) and sooner and all(step[low] <= step[high] + SAME for _, step in course for low, high in ranks)


def whole_again_s(course: Sequence[tuple[float, Mapping[str, float]]], within: Rush) -> float:
    """Seconds from the end of the rush until every query gets everything and goes on to; infinite when that was not seen."""
    since: float | None = None
    for t, step in course:
        whole = all(a >= 1.0 - SAME for a in step.values())
        since = (t if since is None else since) if whole else None
    return inf if since is None else max(0.0, since - within.ends_s)


def cycles(seconds: float, cycle_s: float) -> float:
    """Whole cycles that hold so many seconds.

    >>> cycles(31.0, 15.0), cycles(30.0, 15.0), cycles(0.0, 15.0), cycles(inf, 15.0)
    (3, 2, 0, inf)
    """
    return seconds if seconds == inf else ceil(seconds / cycle_s - SAME)


def batches_until(settings: Iterable[Set], batches: Sequence[Batch]) -> dict[int, int | None]:
    """By decision, how many batches of its edge began before one had it (that one counted); the most over its edges.

    None: none had it before the next setting of that edge. A setting that says what is in force already is left out.
    """
    found: dict[int, int | None] = {}
    by_edge: dict[str, list[Set]] = {}
    for s in sorted(settings, key=lambda s: s.at_s):
        by_edge.setdefault(s.edge, []).append(s)
    for edge, made in by_edge.items():
        before = 1.0
        for s, following in zip(made, [*made[1:], None], strict=True):
            changes, before = abs(s.keep - before) > SAME, s.keep
            if not changes:
                continue
            until = following.at_s if following else inf
            later = [b for b in batches if b.edge == edge and s.at_s <= b.began_s < until]
            number = next((n for n, b in enumerate(later, 1) if b.decision == s.decision), None)
            if number is None and len(later) < 2:  # replaced, or over, before it could be
                continue
            known = found.get(s.decision, 0)
            found[s.decision] = None if number is None or known is None else max(known, number)
    return found


def capacity(batches: Iterable[Batch], target_s: float, *, least: int = 2) -> float | None:
    """Rows per second an operator manages when it is never idle and its batches are as large as they should be, by the last
    `least` that are so; None when there are fewer, or while it still becomes quicker. Larger ones would do a little more.

    >>> busy = [Batch(edge="a:b", consumer="b", began_s=4.0 * n, ended_s=4.0 * n + 4.0, read=3000, kept=3000, keep=1.0,
    ...               decision=None, lag=500) for n in range(4)]
    >>> capacity(busy, 4.0), capacity(busy[:1], 4.0), capacity(busy, 6.0), capacity([*busy, replace(busy[0], kept=3600)], 4.0)
    (750.0, None, None, None)
    """
    last = filled(batches, target_s)[-least:]
    half = least // 2
    if len(last) < least or pace(last[half:]) > STEADY * pace(last[:half]):
        return None
    return pace(last)


def filled(batches: Iterable[Batch], target_s: float) -> list[Batch]:
    """Those that are as large as they should be."""
    return [b for b in batches if b.ended_s - b.began_s >= NEARLY * target_s]


def pace(batches: Sequence[Batch]) -> float:
    """Rows kept per second."""
    return sum(b.kept for b in batches) / sum(b.ended_s - b.began_s for b in batches)


def windows(began: float, ended: float, cycle_s: float) -> list[float]:
    """Ends of the windows that lie wholly within a stretch; all in Unix time, to which windows are aligned.

    >>> windows(1007.0, 1060.0, 15.0)
    [1035.0, 1050.0]
    >>> windows(1005.0, 1035.0, 15.0)
    [1020.0, 1035.0]
    """
    first, last = ceil(began / cycle_s - SAME) + 1, floor(ended / cycle_s + SAME)
    return [number * cycle_s for number in range(first, last + 1)]
