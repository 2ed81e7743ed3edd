"""What the demo promises, compared with what it measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

from spillway.demo.control import CYCLES_LAGGING, LAG_LIMIT_S, Controlled
from spillway.demo.course import cycles
from spillway.demo.elastic import CYCLES_WHOLE, Elastic
from spillway.demo.lineage import Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the verdict table."""

    what: str
    measured: str
    promised: str
    good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFlow:
    """One query's part of the run."""

    floor: float
    priority: int
    arrived: int
    """Good events of the sources in the run."""
    output: Compared

    @property
    def accuracy(self) -> float:
        return self.output.written / self.arrived if self.arrived else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandKeep:
    edge: str
    keep: float
    rows_read: int
    rows_kept: int
    batches_until: int | None
    """Batches that began after the setting before one had it; None when none ever did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    asked: int
    delivered: int
    garbage: int
    read: int
    """Rows the sources' edges read in the run."""
    found_bad: int
    """Garbage that the sources' edges kept and found."""
    shed_at_sources: bool
    dead_letters: int
    lag: Mapping[str, int]
    """Rows behind at the end, by edge."""
    peak_lag: Mapping[str, int]
    queries: Mapping[str, QueryFlow]
    hand: HandKeep
    control: Controlled
    elastic: Elastic
    windows: int
    """Those that lie within what was played."""
    decided: int
    """Of these, how many there is a decision on."""
    refused: int
    """Decisions that were refused or failed, also on windows before and after."""
    batches: int
    missing_batches: int
    metrics_dropped: int
    memory_mb: float
    actions: tuple[str, ...]
    """What the controllers did, in their own words."""


MEMORY_LIMIT_MB = 8 * 1024
SHARE_TOLERANCE, DEVIATIONS = 0.01, 4.0
BATCHES_ALLOWED = 2


def verdict(m: Measured) -> list[Row]:
    rows = [
        Row(what="events in", measured=f"{m.delivered:,}", promised=f"{m.asked:,} asked", good=m.delivered == m.asked > 0),
        Row(what="events processed", measured=f"{m.read:,}", promised="every one, once", good=m.read == m.delivered),
        Row(
            what="garbage to dead letters",
            measured=f"{m.dead_letters:,}",
            promised=f"{m.found_bad:,} found of {m.garbage:,} sent" + (", the others were shed" if m.shed_at_sources else ""),
            good=m.dead_letters == m.found_bad and (m.found_bad <= m.garbage if m.shed_at_sources else m.found_bad == m.garbage),
        ),
    ]
    for name, query in sorted(m.queries.items(), key=lambda item: -item[1].priority):
        rows.append(
            Row(
                what=f"{name}: accuracy (priority {query.priority})",
                measured=f"{query.accuracy:.3f}",
                promised=f"at least {query.floor:g}",
                good=query.accuracy >= query.floor,
            )
        )
        rows.append(
            Row(
                what=f"{name}: rows lost / doubled / foreign, by lineage",
                measured=f"{query.output.lost:,} / {query.output.doubled:,} / {query.output.strange:,}",
                promised="0 / 0 / 0",
                good=query.output.lost == query.output.doubled == query.output.strange == 0,
            )
        )
    hand = m.hand
    share = hand.rows_kept / hand.rows_read if hand.rows_read else float("nan")
    rows += _control(m)
    rows += _elastic(m.elastic, m.control.cycle_s)
    rows += [
        Row(
            what=f"keep {hand.keep:g} set by hand on {hand.edge}",
            measured=f"{share:.4f} of {hand.rows_read:,} rows",
            promised=f"{hand.keep:g} ± {SHARE_TOLERANCE:g}",
            good=abs(share - hand.keep) <= SHARE_TOLERANCE,
        ),
        Row(
            what="… in force from",
            measured="never" if hand.batches_until is None else f"batch {hand.batches_until} after it was set",
            promised=f"batch {BATCHES_ALLOWED} at the latest",
            good=hand.batches_until is not None and hand.batches_until <= BATCHES_ALLOWED,
        ),
        Row(
            what="lag at the end",
            measured=", ".join(f"{e} {n:,}" for e, n in sorted(m.lag.items())),
            promised="0 (peak " + ", ".join(f"{e} {n:,}" for e, n in sorted(m.peak_lag.items()) if n) + ")",
            good=bool(m.lag) and not any(m.lag.values()),
        ),
        Row(
            what="metrics",
            measured=f"{m.batches:,} batches, {m.missing_batches} missing, {m.metrics_dropped} rows dropped",
            promised="every batch",
            good=m.batches > 0 and m.missing_batches == 0 and m.metrics_dropped == 0,
        ),
        Row(
            what="memory of everything",
            measured=f"{m.memory_mb / 1024:.1f} GB",
            promised=f"at most {MEMORY_LIMIT_MB // 1024} GB",
            good=0 < m.memory_mb <= MEMORY_LIMIT_MB,
        ),
    ]
    return rows


def _control(m: Measured) -> list[Row]:
    """What the controller promises for a rush at twice what can be carried."""
    c = m.control
    by_priority = sorted(c.priorities, key=lambda q: c.priorities[q])
    gave_way = [
        f"{q} (priority {c.priorities[q]}) " + (f"after {c.first_shed_s[q]:.0f} s" if q in c.first_shed_s else "never")
        for q in by_priority
    ]
    share, wanted = (part / c.shed_read if c.shed_read else float("nan") for part in (c.shed_kept, c.shed_expected))
    tolerance = _tolerance(wanted, c.shed_read)
    return [
        Row(
            what="decisions of spillway_qod",
            measured=f"on {m.decided} of {m.windows} windows, {m.refused} refused or failed",
            promised=f"one on every window of {c.cycle_s:g} s, none refused",
            good=m.decided == m.windows > 0 and m.refused == 0,
        ),
        Row(
            what=f"lag above {LAG_LIMIT_S:g} s of traffic at the height of the rush",
            measured=_lag(c),
            promised=f"at most {CYCLES_LAGGING} cycles",
            good=c.lagging_cycles <= CYCLES_LAGGING,
        ),
        Row(
            what="least accuracy of any batch",
            measured=", ".join(f"{q} {c.least[q]:.2f}" for q in reversed(by_priority)),
            promised="at least " + ", ".join(f"{q} {c.floors[q]:g}" for q in reversed(by_priority)),
            good=c.floors_kept,
        ),
        Row(
            what="who gave way",
            measured=", ".join(gave_way),
            promised="lower priorities first, and more",
            good=c.in_order,
        ),
        Row(
            what="rows kept where rows were shed",
            measured=f"{share:.4f} of {c.shed_read:,}",
            promised=f"{wanted:.4f} ± {tolerance:.2g}, as decided",
            good=abs(share - wanted) <= tolerance,
        ),
        Row(
            what="a new keep is in force from",
            measured="never" if c.batches_until is None else f"batch {c.batches_until} after it was set",
            promised=f"batch {BATCHES_ALLOWED} at the latest",
            good=c.batches_until is not None and c.batches_until <= BATCHES_ALLOWED,
        ),
    ]


def _elastic(e: Elastic, cycle_s: float) -> list[Row]:
    """What is promised of a rush that stays: nobody is shed for longer than it takes to rescale."""
    change = e.change
    felt = "" if change is None or change.pause_s is None else f", longest gap {change.pause_s:.1f} s"
    steady = "" if change is None or change.steady_s is None else f" (steady {change.steady_s:.1f} s)"
    load = "a load that is not known" if e.load is None else f"{e.load:.2f} times what {e.operator} carried at the height"
    lagging = "to the end of the rush" if e.lagging_s == inf else f"for {_time(e.lagging_s, cycles(e.lagging_s, cycle_s))}"
    return [
        Row(
            what="who holds the pipeline back, by spillway_capacity",
            measured=f"{', '.join(e.named)}, after {e.named_s:.0f} s" if e.named else "nobody was named",
            promised=e.operator,
            good=e.is_named,
        ),
        Row(
            what="rescaled by spillway_rescale, while it ran",
            measured=f"{change.operator}: {change.words}: {change.state}{felt}{steady}" if change else "nobody",
            promised=f"more executors for {e.operator}",
            good=e.is_rescaled,
        ),
        Row(
            what=f"lag above {LAG_LIMIT_S:g} s of traffic after that",
            measured=f"{lagging} (up to {e.prepared_lag_s:.0f} s of traffic while it was prepared)",
            promised=f"at most {CYCLES_LAGGING} cycles",
            good=e.lag_is_back(cycle_s),
        ),
        Row(
            what="accuracy 1 again while the rush stays",
            measured=f"after {e.whole_s:.0f} s, for {e.held_s:.0f} s at {load}" if e.whole_s < inf else "never",
            promised=f"{CYCLES_WHOLE} cycles, at more than {e.operator} carried before; shed until it was rescaled",
            good=e.stays_whole(cycle_s),
        ),
    ]


def _tolerance(share: float, rows: int) -> float:
    """How far a fair shedder may be off: of few rows the kept share scatters by itself.

    >>> _tolerance(0.4, 100_000), round(_tolerance(0.4, 432), 3)
    (0.01, 0.094)
    """
    return max(SHARE_TOLERANCE, DEVIATIONS * sqrt(share * (1.0 - share) / rows)) if rows else SHARE_TOLERANCE


def _lag(c: Controlled) -> str:
    peak = f"peak {c.lag_peak_s:.1f} s"
    if c.lagging_s == inf:
        return f"{peak}, to the end of the rush"
    if c.lag_after_s == inf:
        return f"for {_time(c.lagging_s, c.lagging_cycles)}, {peak}; over after the height"
    after = f"then at most {c.lag_after_s:.1f} s ({c.waiting_after_s:.1f} s with the batch that runs)"
    return f"for {_time(c.lagging_s, c.lagging_cycles)}, {peak}; {after}"


def _time(seconds: float, cycles: float) -> str:
    return "it did not happen" if seconds == inf else f"{seconds:.0f} s, {cycles:.0f} cycles"
