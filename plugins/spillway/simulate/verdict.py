"""What a run kept of its promises."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np

from spillway.simulate.run import Cycle, Run
from spillway.simulate.watch import offered, operators_above, topics_above

LAG_LIMIT_S = 2.0
"""More than this many seconds of traffic waiting is too much,"""
LAG_CYCLES = 3
"""unless it is gone again after this many cycles and does not come back before the next rush."""
RECOVERED_CYCLES = 5
"""After a rush, everything is kept again within this many cycles."""
CALM = 0.1
"""A rush is over when no more than this part of it is left."""
WHOLE = 0.99
"""An accuracy that counts as 1."""
SIGMAS = 4.0
"""Shedding is random: the share kept of n events may miss its keep by so many times sqrt(keep·(1−keep)/n)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryVerdict:
    query: str
    priority: int
    floor: float
    offered: int
    """Events sent to the topics above it."""
    processed: int
    """Rows that passed its shedders."""
    accuracy_min: float
    accuracy_mean: float
    lag_max_s: float
    late_cycles: int
    """The longest time in a row with too much waiting."""
    relapses: int
    """Cycles with too much waiting although the first of its rush was `LAG_CYCLES` or more before."""
    recovered: int | None
    """Cycles after the rush until everything was kept and little was waiting; None: not before the end."""
    below_cycles: int
    """Cycles in which its accuracy was below its floor by more than chance."""
    rushed: bool
    """Something had to go, or waited too long."""
    broken: tuple[str, ...]
    """Promises that were not kept, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    queries: tuple[QueryVerdict, ...]

    @property
    def kept(self) -> bool:
        return not any(query.broken for query in self.queries)

    @property
    def sentence(self) -> str:
        if self.kept:
            return "every query kept its floor, what waited was gone again in time, and after the rush nothing was shed any more"
        return "; ".join(f"{query.query} {reason}" for query in self.queries for reason in query.broken)

    def as_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "sentence": self.sentence, "queries": [asdict(query) for query in self.queries]}


def verdict(run: Run) -> Verdict:
    """Queries of the run, the most important first."""
    topics, above = topics_above(run.world), operators_above(run.world)
    queries = [n for n, o in enumerate(run.world.operators) if o.min_accuracy is not None]
    queries.sort(key=lambda n: (-(run.world.operators[n].priority or 0), run.world.operators[n].name))
    return Verdict(queries=tuple(_query(run, n, topics[n], above[n]) for n in queries))


def _query(run: Run, number: int, topics: list[int], above: Collection[str]) -> QueryVerdict:
    operator = run.world.operators[number]
    cycles = [c.window for c in run.cycles if c.window.live[number]]
    accuracy = [float(w.accuracy[number]) for w in cycles]
    lag = [float(w.lag_s[number]) for w in cycles]
    sent = [offered(w, topics) for w in cycles]
    floor = operator.min_accuracy or 0.0
    rushed = min(accuracy, default=1.0) < WHOLE or max(lag, default=0.0) > LAG_LIMIT_S
    recovered = recovery(sent, accuracy, lag) if rushed else 0
    late = longest([value > LAG_LIMIT_S for value in lag])
    again = relapses(sent, lag, _moved_before(run, number, above))
    broken = []
    below = [a for a, rate, w in zip(accuracy, sent, cycles, strict=True) if a < floor - noise(floor, rate * w.length_s)]
    if below:
        broken.append(f"fell to an accuracy of {min(below):.2f} (for {len(below)} cycles below its floor of {floor:g})")
    if late > LAG_CYCLES:
        broken.append(f"was more than {LAG_LIMIT_S:g} s behind for {late} cycles, up to {max(lag):.0f} s")
    elif again:
        worst = max(lag[n] for n in again)
        broken.append(f"was behind again in {len(again)} cycles after the first {LAG_CYCLES} of a rush, up to {worst:.1f} s")
    if rushed and (recovered is None or recovered > RECOVERED_CYCLES):
        when = "at the end" if recovered is None else f"before {recovered} cycles after the rush"
        broken.append(f"did not have everything again {when}")
    return QueryVerdict(
        query=operator.name,
        priority=operator.priority or 0,
        floor=floor,
        offered=round(sum(rate * w.length_s for rate, w in zip(sent, cycles, strict=True))),
        processed=int(run.twin.processed[run.twin.consumer == number].sum()),
        accuracy_min=min(accuracy, default=1.0),
        accuracy_mean=float(np.mean(accuracy)) if accuracy else 1.0,
        lag_max_s=max(lag, default=0.0),
        late_cycles=late,
        relapses=len(again),
        below_cycles=len(below),
        recovered=recovered,
        rushed=rushed,
        broken=tuple(broken),
    )


def noise(keep: float, events: float) -> float:
    """How far the share kept of so many events may be from the keep by chance.

    >>> round(noise(0.5, 10_000), 3)
    0.02
    """
    return SIGMAS * sqrt(keep * (1.0 - keep) / max(events, 1.0))


def longest(flags: Sequence[bool]) -> int:
    """Length of the longest run of True.

    >>> longest([True, False, True, True, False])
    2
    """
    best = now = 0
    for flag in flags:
        now = now + 1 if flag else 0
        best = max(best, now)
    return best


def relapses(offered: Sequence[float], lag_s: Sequence[float], anew: Collection[int] = ()) -> list[int]:
    """Cycles with too much waiting, `LAG_CYCLES` or more after the first such cycle of the same rush.

    A rush begins when the rate leaves the calm (see `recovery`) and lasts until the next one; so does whatever `anew` names.

    >>> relapses([1, 9, 9, 9, 9, 9, 9], [0, 6, 8, 0, 0, 3, 0])
    [5]
    >>> relapses([1, 9, 9, 1, 1, 9, 9], [0, 6, 8, 0, 0, 3, 0])
    []
    """
    calm = _calm(offered)
    found, first = [], None
    for n, (rate, lag) in enumerate(zip(offered, lag_s, strict=True)):
        if n in anew or (rate > calm and n > 0 and offered[n - 1] <= calm):
            first = None
        if lag > LAG_LIMIT_S:
            first = n if first is None else first
            if n - first >= LAG_CYCLES:
                found.append(n)
    return found


def _moved_before(run: Run, number: int, above: Collection[str]) -> set[int]:
    """Cycles of the query, counted while it runs, before which something moved that it feels: an instance of its own or of an
    operator above it, which is away for a while and starts cold, or one that left or joined a node it runs on."""
    live = [n for n, c in enumerate(run.cycles) if c.window.live[number]]
    return {k for k, n in enumerate(live) if n > 0 and _felt(run, run.cycles[n - 1], number, above)}


def _felt(run: Run, cycle: Cycle, number: int, above: Collection[str]) -> bool:
    window = cycle.window
    own = {run.world.nodes[k].name for k in window.node[window.owner == number].tolist()}
    return any(m.operator in above or m.source in own or m.target in own for m in cycle.moved)


def _calm(offered: Sequence[float]) -> float:
    return min(offered) + CALM * (max(offered) - min(offered)) if offered else 0.0


def recovery(offered: Sequence[float], accuracy: Sequence[float], lag_s: Sequence[float]) -> int | None:
    """Cycles from the end of the rush to the first from which on everything is kept and little waits.

    The rush is over after the last cycle in which more was offered than the least and a tenth of the way to the most.

    >>> recovery([1, 9, 9, 1, 1, 1], [1, 0.4, 0.5, 0.7, 1, 1], [0, 5, 1, 0, 0, 0])
    2
    >>> recovery([1, 9, 9, 1], [1, 0.4, 0.5, 0.7], [0, 0, 0, 0]) is None
    True
    """
    calm = _calm(offered)
    over = max((n for n, rate in enumerate(offered) if rate > calm), default=-1)
    poor = [a < WHOLE or s > LAG_LIMIT_S for a, s in zip(accuracy, lag_s, strict=True)]
    last_poor = max((n for n, is_poor in enumerate(poor) if is_poor), default=-1)
    if last_poor == len(poor) - 1:
        return None
    return max(0, last_poor + 1 - over)
