"""Rates and shares from what was stored: offsets that were read now and then, batches that finished. Pure; times in seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    rate: float
    """Rows per second."""
    newest: float
    """When the offsets were last read."""


def arrival(readings: Mapping[int, Sequence[tuple[float, int]]], start: float, end: float) -> Arrival | None:
    """How fast a topic grows, from end offsets per partition as (time, offset), in order of time, none after `end`.

    The span is that of the readings, not of the window: it begins with the offset at `start`, interpolated between the readings
    around it, and ends with the last reading. None when a partition has no two readings.

    >>> arrival({0: [(-1.0, 90), (4.0, 140), (14.9, 249)]}, 0.0, 15.0)
    Arrival(rate=10.0, newest=14.9)
    """
    rate, newest = 0.0, end
    if not readings:
        return None
    for points in readings.values():
        inside = [p for p in points if p[0] <= end]
        if len(inside) < 2:
            return None
        first = bisect_right([at for at, _ in inside], start)
        if first == 0:
            since, offset = inside[0][0], float(inside[0][1])
        elif first == len(inside):  # nothing was read inside the window: the last two readings before it
            since, offset = inside[-2][0], float(inside[-2][1])
        else:
            (t0, o0), (t1, o1) = inside[first - 1], inside[first]
            since, offset = start, o0 + (o1 - o0) * (start - t0) / (t1 - t0)
        last, until = inside[-1][1], inside[-1][0]
        if until <= since:
            return None
        rate += (last - offset) / (until - since)
        newest = min(newest, until)
    return Arrival(rate=rate, newest=newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeBatch:
    """One batch as one edge saw it; offsets are sums over the partitions, None where the source did not tell."""

    checkpoint: int
    batch_id: int
    started_at: float
    ended_at: float
    read: int
    kept: int
    keep: float
    lag: int | None = None
    decision_id: int | None = None
    partitions: int | None = None
    end_offset: int | None = None
    latest_offset: int | None = None

    @property
    def times(self) -> tuple[float, float]:
        return self.started_at, self.ended_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What an edge let through over the batches that finished in a window."""

    read: int
    kept: int
    share: float | None
    """Rows that got in per row that arrived meanwhile: 1 for one that keeps up and sheds nothing, less when it sheds or falls
    behind, more while it catches up. None when nothing can be said."""
    kept_rate: float | None
    keep: float
    decision_id: int | None
    lag: int | None
    newest: float


def span_s(base: tuple[float, float], last: tuple[float, float], trigger_s: float) -> float:
    """Seconds in which the batches after `base`, up to `last`, were done; both as (started, ended).

    From start to start, and what the last took longer than a trigger, less what the first did. A query that keeps up is done
    before the next trigger; one that does not takes all there is into longer and longer batches, and by their starts alone it
    would seem to carry what it merely took.

    >>> span_s((0.0, 1.2), (10.0, 11.9), 2.0), span_s((0.0, 3.0), (10.0, 18.0), 2.0)
    (10.0, 15.0)
    """
    over, before = (max(0.0, ended - started - trigger_s) for started, ended in (last, base))
    return last[0] - base[0] + over - before


def flow(batches: Sequence[EdgeBatch], start: float, trigger_s: float = inf) -> Flow | None:
    """What the batches that ended after `start` did; where there are none, the last one before. In order; None without any.

    What arrived and what was read is counted between the same two moments, the planning of the batch before the first and that of
    the last, by the offsets of both: rows that are in flight at the ends of the window distort nothing. Offsets only ever
    enter as a ratio, because some of them are markers of transactions. What was read counts as done in `span_s`.
    """
    if not batches:
        return None
    own = [b for b in batches if b.checkpoint == batches[-1].checkpoint]
    first = next((n for n, b in enumerate(own) if b.ended_at > start), len(own) - 1)
    if first == 0 and len(own) > 1:
        first = 1  # nothing is known before the first one, so it serves as the beginning
    inside, last = own[first:], own[-1]
    read, kept = sum(b.read for b in inside), sum(b.kept for b in inside)
    share = kept_rate = None
    if first > 0:
        base = own[first - 1]
        began, span = last.started_at - base.started_at, span_s(base.times, last.times, trigger_s)
        if began > 0 and span > 0:
            share = _share(base, last, read, kept)
            share = None if share is None else share * began / span
            kept_rate = kept / span
    return Flow(
        read=read, kept=kept, share=share, kept_rate=kept_rate, keep=last.keep, decision_id=last.decision_id, lag=last.lag,
        newest=last.ended_at,
    )  # fmt: skip


def done_rate(batches: Sequence[tuple[float, float, int]], start: float, end: float, trigger_s: float) -> float | None:
    """Rows per second that were worked on in a window, of batches as (started, ended, rows kept), in order, ended by `end`.

    The rows of a batch are spread evenly from its start to the next one's, as far as that is no longer than a trigger or than it
    took itself. What is in flight at the end of the window is not known yet, so the time after the last batch does not count.

    >>> done_rate([(0.0, 1.0, 30), (3.0, 4.5, 30), (6.0, 8.0, 30), (9.0, 12.0, 90)], 0.0, 15.0, 3.0)
    15.0
    """
    rows, until = 0.0, start
    for number, (started, ended, kept) in enumerate(batches):
        following = batches[number + 1][0] if number + 1 < len(batches) else end
        until = max(ended, min(started + trigger_s, following))
        inside = until - max(started, start)
        if inside > 0.0:
            rows += kept * inside / (until - started)
    begin = max(start, batches[0][0]) if batches else start
    return rows / (until - begin) if until > begin else None


def _share(base: EdgeBatch, last: EdgeBatch, read: int, kept: int) -> float | None:
    if base.partitions != last.partitions:
        return None
    if base.latest_offset is None or last.latest_offset is None or base.end_offset is None or last.end_offset is None:
        return None
    arrived, progressed = last.latest_offset - base.latest_offset, last.end_offset - base.end_offset
    if arrived <= 0 or read <= 0:
        return None
    return (kept / read) * (progressed / arrived)


def split_cpu(
    operators: Sequence[str], executor: str, taken_ms: Mapping[tuple[str, str], float], busy_ms: Mapping[str, float]
) -> dict[str, float]:
    """Share of an executor's CPU that each operator of its application takes.

    By the CPU time of their stages on that executor (`taken_ms`, by operator and executor), else on all executors, else by the
    time their batches took, else evenly.

    >>> split_cpu(["union", "light"], "0", {("union", "0"): 30.0, ("light", "0"): 10.0}, {})
    {'union': 0.75, 'light': 0.25}
    """
    total = {o: sum(ms for (name, _), ms in taken_ms.items() if name == o) for o in operators}
    for weights in ({o: taken_ms.get((o, executor), 0.0) for o in operators}, total, {o: busy_ms.get(o, 0.0) for o in operators}):
        if (whole := sum(weights.values())) > 0:
            return {o: weight / whole for o, weight in weights.items()}
    return {o: 1.0 / len(operators) for o in operators}
