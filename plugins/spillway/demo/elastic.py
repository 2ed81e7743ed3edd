"""What became of a rush that stays: who was named, how it was rescaled, and whether that was enough. Pure.

Times are seconds since the scenario began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from spillway.demo.control import CYCLES_LAGGING, LAG_LIMIT_S
from spillway.demo.course import SAME, Lags, Rush, cycles, over, worst

CYCLES_WHOLE = 2
"""So many cycles at least everything is to be kept while the load stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A plan that was carried out, or not."""

    operator: str
    words: str
    state: str
    asked_s: float
    told_s: float | None
    """When what runs was told to change; None: it never was."""
    pause_s: float | None
    steady_s: float | None
    more: bool
    """Whether it has more executors afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    operator: str
    """Who is to be named."""
    named_s: float
    """From the beginning of the rush to the first evaluation that named anybody; infinite: none did."""
    named: tuple[str, ...]
    """Whom it named."""
    change: Change | None
    lagging_s: float
    """How long there was a lag of more than 2 s of traffic after the change, on any edge, each time from the batch before it on;
    infinite: no end."""
    whole_s: float
    """From the beginning of the rush until every query got everything, and went on to; infinite: not before it ended."""
    shed_before: bool
    """Whether somebody still got less than everything when what runs was told to change: without that it was not needed."""
    held_s: float
    """From then, and from the change, to its end."""
    load: float | None
    """What arrived meanwhile, as a multiple of what the operator carried at its height; None: that is not known."""
    prepared_lag_s: float
    """The largest lag between its height and the change, while that was prepared beside it."""

    @property
    def is_named(self) -> bool:
        return self.named == (self.operator,)

    @property
    def is_rescaled(self) -> bool:
        change = self.change
        return change is not None and change.operator == self.operator and change.more and change.state == "done"

    def lag_is_back(self, cycle_s: float) -> bool:
        return cycles(self.lagging_s, cycle_s) <= CYCLES_LAGGING

    def stays_whole(self, cycle_s: float) -> bool:
        """Everything was kept for a while because of the change, though more arrived than was carried before."""
        more = self.load is not None and self.load > 1.0
        return self.shed_before and more and self.held_s >= CYCLES_WHOLE * cycle_s


def elastic(
    operator: str,
    within: Rush,
    found: Sequence[tuple[float, Sequence[str]]],
    change: Change | None,
    behind: Lags,
    steps: Sequence[tuple[float, Mapping[str, float]]],
    load: float | None,
    cycle_s: float,
    *,
    height: Rush | None = None,
) -> Elastic:
    """`found`: whom each evaluation named. `steps`: what the keeps in force deliver. A window that ends in the rush is of it."""
    first = next(((t, tuple(names)) for t, names in found if names and within.begins_s < t <= within.ends_s + cycle_s), None)
    whole, told_s = whole_since(steps, within), None if change is None else change.told_s
    since = whole if told_s is None else max(whole, told_s)
    return Elastic(
        operator=operator,
        named_s=inf if first is None else first[0] - within.begins_s,
        named=() if first is None else first[1],
        change=change,
        lagging_s=_lagging_s(behind, within, change, cycle_s),
        whole_s=whole - within.begins_s,
        shed_before=told_s is not None and _shed_at(steps, told_s),
        held_s=max(0.0, within.ends_s - since) if since < inf else 0.0,
        load=load,
        prepared_lag_s=worst(behind, (height or within).ends_s, within.ends_s if told_s is None else told_s),
    )


def whole_since(steps: Sequence[tuple[float, Mapping[str, float]]], within: Rush) -> float:
    """When every query got everything for good, once anybody had got less; infinite: not within the rush.

    >>> rush = Rush(begins_s=10.0, ends_s=90.0, peak=1.0)
    >>> whole_since([(0.0, {"q": 1.0}), (20.0, {"q": 0.5}), (70.0, {"q": 1.0}), (80.0, {"q": 1.0}), (95.0, {"q": 0.9})], rush)
    70.0
    >>> whole_since([(0.0, {"q": 1.0})], rush), whole_since([(20.0, {"q": 0.5})], rush)
    (inf, inf)
    """
    since, shed = inf, False
    for t, step in steps:
        if t > within.ends_s:
            break
        whole = all(a >= 1.0 - SAME for a in step.values())
        shed = shed or not whole
        since = min(since, t) if whole and shed else inf
    return since


def _shed_at(steps: Sequence[tuple[float, Mapping[str, float]]], t_s: float) -> bool:
    """Whether anybody got less than everything at a moment.

    >>> steps = [(0.0, {"q": 1.0}), (20.0, {"q": 0.5}), (70.0, {"q": 1.0})]
    >>> [_shed_at(steps, t) for t in (10.0, 30.0, 80.0)]
    [False, True, False]
    """
    before = [step for t, step in steps if t <= t_s]
    return bool(before) and any(a < 1.0 - SAME for a in before[-1].values())


def _lagging_s(behind: Lags, within: Rush, change: Change | None, cycle_s: float) -> float:
    if change is None or change.told_s is None:
        return inf
    after = Rush(begins_s=change.told_s, ends_s=within.ends_s, peak=within.peak)
    total = until = 0.0
    for episode in over(behind, LAG_LIMIT_S, after, cycle_s):  # by when they began
        calm = max((t for t, _ in behind[episode.edge] if t < episode.from_s), default=change.told_s)
        total += max(0.0, episode.to_s - max(until, calm, change.told_s))
        until = max(until, episode.to_s)
    return total
