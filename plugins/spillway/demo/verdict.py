"""What the demo promises, compared with what it measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    dead_letters: int
    lag: Mapping[str, int]
    """Rows behind at the end, by edge."""
    peak_lag: Mapping[str, int]
    queries: Mapping[str, QueryFlow]
    hand: HandKeep
    batches: int
    missing_batches: int
    metrics_dropped: int
    memory_mb: float
    actions: tuple[str, ...]
    """What the controllers did, in their own words."""


MEMORY_LIMIT_MB = 8 * 1024
SHARE_TOLERANCE = 0.01
BATCHES_ALLOWED = 2


def verdict(m: Measured) -> list[Row]:
    rows = [
        Row(what="events in", measured=f"{m.delivered:,}", promised=f"{m.asked:,} asked", good=m.delivered == m.asked > 0),
        Row(what="events processed", measured=f"{m.read:,}", promised="every one, once", good=m.read == m.delivered),
        Row(
            what="garbage to dead letters",
            measured=f"{m.dead_letters:,}",
            promised=f"{m.garbage:,} sent",
            good=m.dead_letters == m.garbage,
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
