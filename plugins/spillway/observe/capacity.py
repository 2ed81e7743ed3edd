"""Stored metrics → one closed window per pipeline as a flow network, the same for an evaluation that runs now and a replayed one.

Rows count behind the shedder. An edge that keeps a part reads the rest for little more than nothing, so the time of a batch
belongs to the rows it kept: kept rows over busy time is what an operator could carry of the edge as it is offered, were nothing
shed. That is on the safe side by what reading the shed rows took. The flow is counted in the same rows, and `arrival` says what
was offered. Busy is the time in batches, from trigger to commit; a query that waits for its next trigger is idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from spillway.model.capacity import Busy
from spillway.model.capacity_window import CapacityWindow, EdgeFlow, InstanceFlow, OperatorFlow
from spillway.model.topology import Edge, Kind, Pipeline
from spillway.model.window import Interval, OperatorRow, Window
from spillway.observe.window import LOOK_BACK, read_window
from spillway.policy import Policy
from spillway.store.queries import rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

Row = dict[str, Any]
PAUSE_S = 1.0
"""A query that has no time to wait for its trigger begins its next batch within so many seconds: it is busy all the time."""
ROWS_PER_PARTITION = 100
"""Fewer rows than so many per partition are uneven by chance, and say nothing of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All pipelines of one window."""

    window: Window
    parts: Mapping[str, CapacityWindow]
    moving: Mapping[str, str]
    """By pipeline: what is being changed meanwhile, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What the store has of one window beside what `read_window` makes of it."""

    batches: Mapping[tuple[str, str], Sequence[Row]]
    """By pipeline and operator; one row per batch and edge, in order."""
    partitions: Mapping[tuple[str, str], Sequence[Row]]
    """By pipeline and edge, in their order."""
    instances: Mapping[tuple[str, str], Mapping[str, float]]
    """By pipeline and operator: rows by executor."""


def read_capacity(conn: Connection, interval: Interval, policy: Policy, *, off_too: bool = False) -> Measured:
    """The window of all pipelines that are advised or applied; with `off_too`, the others as if they were advised."""
    window = read_window(conn, interval, policy, off_too=off_too)
    names = list(window.declared)
    back = timedelta(seconds=interval.seconds * policy.qod_stale_cycles * LOOK_BACK)
    times: dict[str, datetime] = {
        "start": interval.start,
        "end": interval.end,
        "since": interval.start - back,
        "closed": interval.end + timedelta(seconds=policy.qod_settle_s),
    }
    stored = _read(conn, times, names)
    under_way: dict[str, list[str]] = defaultdict(list)
    for plan in rows(conn, "capacity_plans", start=interval.start, end=interval.end, pipelines=names):
        under_way[plan["pipeline"]].append(f"plan {plan['id']} ({plan['kind']} of {plan['operator']})")
    return Measured(
        window=window,
        parts={n: _Part(n, d.pipeline, stored, window, policy).flows() for n, d in window.declared.items()},
        moving={p: f"{' and '.join(plans)} was under way in the window" for p, plans in under_way.items()},
    )


def _read(conn: Connection, times: Mapping[str, datetime], names: list[str]) -> _Stored:
    batches, partitions = defaultdict(list), defaultdict(list)
    for r in rows(conn, "capacity_batches", pipelines=names, **times):
        batches[r["pipeline"], r["operator"]].append(r)
    for r in rows(conn, "capacity_partitions", pipelines=names, **times):
        partitions[r["pipeline"], r["edge"]].append(r)
    instances: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for r in rows(conn, "capacity_instances", pipelines=names, **times):
        instances[r["pipeline"], r["operator"]][r["executor"]] = r["rows"]
    return _Stored(batches=batches, partitions=partitions, instances=instances)


class _Part:
    """One pipeline's part of a window."""

    def __init__(self, name: str, pipeline: Pipeline, stored: _Stored, window: Window, policy: Policy) -> None:
        self.name, self.pipeline, self.stored, self.window, self.policy = name, pipeline, stored, window, policy
        self._rows = {e.edge: e for e in window.edges if e.pipeline == name}
        self._work = {
            o.name: work(whole_batches(stored.batches.get((name, o.name), ())), window.interval, pipeline.trigger_s)
            for o in pipeline.operators
        }

    def flows(self) -> CapacityWindow:
        return CapacityWindow(
            interval=self.window.interval,
            pipeline=self.name,
            operators=tuple(self._operator(o) for o in self.window.operators if o.pipeline == self.name),
            edges=tuple(self._edge(e) for e in self.pipeline.edges),
            instances=tuple(
                InstanceFlow(
                    operator=i.operator,
                    executor=i.executor,
                    node=i.node,
                    rows=self.stored.instances.get((self.name, i.operator), {}).get(i.executor),
                    ahead_s=i.ahead_s,
                )
                for i in self.window.instances
                if i.pipeline == self.name
            ),
        )

    def _operator(self, known: OperatorRow) -> OperatorFlow:
        name, done = known.operator, self._work[known.operator]
        tell = [b for b in done.inside if b.tells(self.policy.capacity_warm_up_s)]
        last = done.last
        return OperatorFlow(
            operator=name,
            application=known.application,
            declared=known.declared,
            measured=known.measured,
            finished=len(done.inside),
            batches=tuple(Busy(rows=float(b.kept), busy_s=b.busy_s) for b in tell),
            busy_share=done.busy_share,
            overlap_s=done.overlap_s,
            selectivity=selectivity(done.inside or ([last] if last else [])),
            skew=self._skew(name),
            uneven=self._uneven(name),
            state_rows=last.state_rows if last else None,
            state_bytes=last.state_bytes if last else None,
            ahead_s=known.ahead_s,
        )

    def _skew(self, name: str) -> float | None:
        """Rows with one key are in one partition and in one bucket: the fullest partition stands for the fullest bucket."""
        if self.pipeline.operator(name).kind is Kind.STATELESS:
            return None
        inputs = self.pipeline.inputs(name)
        taken = [[r["taken"] for r in self.stored.partitions.get((self.name, e.name), ())] for e in inputs]
        return fullest(max(taken, key=lambda found: sum(rows or 0.0 for rows in found), default=[]))

    def _uneven(self, name: str) -> float | None:
        live = {i.executor for i in self.window.instances if (i.pipeline, i.operator) == (self.name, name)}
        told = self.stored.instances.get((self.name, name), {})
        return fullest([told.get(executor) for executor in sorted(live)])

    def _edge(self, edge: Edge) -> EdgeFlow:
        done, arrival = self._work[edge.consumer], self._rows[edge.name].out_rate
        seen = [b.edges[edge.name] for b in done.inside if edge.name in b.edges]
        quiet = 0.0 if arrival == 0.0 and not done.inside else None
        waits = [r["left_behind"] for r in self.stored.partitions.get((self.name, edge.name), ())] if seen else []
        known = [float(rows) for rows in waits if rows is not None]
        whole = bool(known) and len(known) == len(waits)
        read, kept = sum(e.read for e in seen), sum(e.kept for e in seen)
        late = [(e.latency_ms, e.kept) for e in seen if e.latency_ms is not None and e.kept]
        return EdgeFlow(
            edge=edge.name,
            producer=edge.producer,
            topic=edge.topic,
            consumer=edge.consumer,
            flow=kept / done.span_s if seen and done.span_s else quiet,
            keep=kept / read if read else self._rows[edge.name].keep,
            arrival=arrival,
            backlog=sum(known) if whole else quiet,
            partitions=tuple(known) if whole else (),
            latency_ms=sum(ms * rows for ms, rows in late) / sum(rows for _, rows in late) if late else None,
            latency_constraint_ms=1000.0 * self.pipeline.latency_constraint_s,
            ahead_s=self._rows[edge.name].ahead_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgePart:
    """What a batch read and kept of one edge."""

    read: int
    kept: int
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeBatch:
    """One batch of an operator; times in seconds."""

    started_at: float
    ended_at: float
    driver_at: float | None
    """When its driver had started."""
    busy_s: float
    put_out: int | None
    edges: Mapping[str, EdgePart]
    state_rows: int | None = None
    state_bytes: int | None = None

    @property
    def kept(self) -> int:
        return sum(edge.kept for edge in self.edges.values())

    def tells(self, warm_up_s: float) -> bool:
        """Whether it says what the operator can do: it had rows to work on, and the JVMs were not cold."""
        cold = self.driver_at is not None and self.started_at - self.driver_at < warm_up_s
        return self.kept > 0 and self.busy_s > 0 and not cold


def whole_batches(found: Sequence[Row]) -> list[WholeBatch]:
    """Each batch of the newest checkpoint once, in order."""
    newest = found[-1]["checkpoint"] if found else 0
    parts: dict[int, list[Row]] = defaultdict(list)
    for r in found:
        if r["checkpoint"] == newest:
            parts[r["batch_id"]].append(r)
    return [
        WholeBatch(
            started_at=(first := same[0])["started_at"].timestamp(),
            ended_at=first["ended_at"].timestamp(),
            driver_at=first["driver_at"].timestamp() if first["driver_at"] is not None else None,
            busy_s=first["batch_ms"] / 1000.0,
            put_out=first["output_rows"],
            edges={
                r["edge"]: EdgePart(read=r["rows_read"], kept=r["rows_kept"], latency_ms=r["latency_mean_ms"])
                for r in same
                if r["edge"] is not None
            },
            state_rows=first["state_rows"],
            state_bytes=first["state_bytes"],
        )
        for same in parts.values()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an operator did in a window."""

    inside: tuple[WholeBatch, ...] = ()
    """Batches that ended in it."""
    span_s: float | None = None
    """The time in which their rows were taken; no shorter than the time it took to work on them."""
    last: WholeBatch | None = None
    """Its last batch, also from before the window."""

    overlap_s: float = 0.0
    """For so long two of its batches ran at once, which one query never does."""

    @property
    def busy_share(self) -> float | None:
        return sum(b.busy_s for b in self.inside) / self.span_s if self.span_s else None


def work(batches: Sequence[WholeBatch], interval: Interval, trigger_s: float) -> Work:
    """The batches that ended in a window, and the time they stand for.

    A batch ends the taking of its rows when it starts, or later by what it takes longer than a trigger (`span_s` in rates.py). Of
    a query that runs batch after batch, the time begins and ends with two such moments, so that rows in flight at the ends of the
    window distort nothing. Where no batch came before for longer than one takes, or none comes after, the query was idle:
    then the time begins or ends with the window.

    >>> from datetime import UTC
    >>> noon = datetime.fromtimestamp(0, UTC)
    >>> batch = dict(driver_at=None, put_out=0, edges={})
    >>> one = [WholeBatch(started_at=20.0, ended_at=21.0, busy_s=1.0, **batch)]
    >>> work(one, Interval(start=noon, end=noon + timedelta(seconds=60)), 2.0).span_s
    60.0
    >>> full = [WholeBatch(started_at=t - 5.0, ended_at=t, busy_s=5.0, **batch) for t in (-1.0, 4.0, 9.0, 14.0)]
    >>> work(full, Interval(start=noon, end=noon + timedelta(seconds=15)), 2.0).span_s
    15.0
    """
    start, end = interval.start.timestamp(), interval.end.timestamp()
    batches = [replace(b, busy_s=b.busy_s + _pause_s(b, after, trigger_s)) for b, after in zip_longest(batches, batches[1:])]
    inside = tuple(b for b in batches if b.ended_at > start)
    last = batches[-1] if batches else None
    if not inside:
        return Work(last=last)
    before = next((b for b in reversed(batches) if b.ended_at <= start), None)
    patience = trigger_s + 2.0 * max(b.ended_at - b.started_at for b in inside)

    def taken(batch: WholeBatch) -> float:
        return batch.started_at + max(0.0, batch.ended_at - batch.started_at - trigger_s)

    went_on = before is not None and inside[0].started_at - before.ended_at <= patience
    begins = taken(before) if before is not None and went_on else min(start, inside[0].started_at)
    ends = end if end - inside[-1].ended_at > patience else taken(inside[-1])
    overlap = sum(max(0.0, a.ended_at - b.started_at) for a, b in pairwise(inside))
    return Work(inside=inside, span_s=max(ends - begins, sum(b.busy_s for b in inside)), last=last, overlap_s=overlap)


def _pause_s(batch: WholeBatch, after: WholeBatch | None, trigger_s: float) -> float:
    """Between a batch that took longer than a trigger and the next: no waiting, but what Spark does between two batches."""
    if after is None or batch.ended_at - batch.started_at < trigger_s:
        return 0.0
    pause = after.started_at - batch.ended_at
    return pause if 0.0 < pause <= PAUSE_S else 0.0


def selectivity(batches: Sequence[WholeBatch]) -> float | None:
    """Rows out for each row that was kept. A batch that kept none puts out none, whether that was counted or not."""
    some = [(b.kept, b.put_out) for b in batches if b.kept]
    known = [out for _, out in some if out is not None]
    return sum(known) / sum(kept for kept, _ in some) if some and len(known) == len(some) else None


def fullest(parts: Sequence[float | None]) -> float | None:
    """The largest of several parts of a whole, in times of their mean; None where one is not known or there is too little.

    >>> fullest([300.0, 100.0, 100.0, 100.0]), fullest([3.0, 1.0]), fullest([300.0, None])
    (2.0, None, None)
    """
    known = [part for part in parts if part is not None]
    total = sum(known)
    if not known or len(known) < len(parts) or total < ROWS_PER_PARTITION * len(parts):
        return None
    return max(1.0, max(known) * len(known) / total)
