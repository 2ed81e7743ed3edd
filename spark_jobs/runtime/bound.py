"""How many rows a batch may take, so that under overload a batch still ends soon and a new keep still works quickly."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

SUPPORTED = ("4.2.",)
CLEARLY_FEWER, HARDLY_SHORTER = 0.75, 0.8
"""A batch with at most this share of the rows that still took at least this share of the time: rows are not what takes it."""
IN_VAIN = 2
"""So many of them, and the bound is given back."""
SPARED, HARDLY_LONGER, MUCH_LONGER = 20, 1.2, 2.0
"""Batches for which it then is not made smaller, unless one takes so many times as long as before."""
DOUBLED = (12, 6)
"""So many of them before their end: what lasts for a few batches, as a broker that is away, does not make a bound larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPolicy:
    target_s: float
    """How long a full batch should take."""
    floor: int = 10
    ceiling: int = 5_000_000
    start: int = 10_000
    """The bound of an operator that nobody knows yet."""
    band: float = 0.25
    """Changes smaller than this share are not worth making."""
    shrink: float = 4.0
    """At most by this factor at once: a batch that waited for a broker says little about what rows cost."""


def next_bound(current: int, rows: int, busy_s: float, fixed_s: float, policy: BoundPolicy, *, cut: bool) -> int:
    """The bound after a batch of `rows` rows that took `busy_s` seconds, of which about `fixed_s` do not depend on the rows.

    `cut`: there was more to read than the bound let in. Such a batch that ended early may grow, at most twofold; one that took
    half as long again as it should shrinks towards what its own rows cost; a batch that read all there was in time says nothing.

    >>> policy = BoundPolicy(target_s=4.0)
    >>> next_bound(2000, 2000, 1.0, 0.3, policy, cut=True)      # quick: twice
    4000
    >>> next_bound(15, 11, 0.9, 0.5, policy, cut=True)          # also when Spark's split over partitions has left rows out
    30
    >>> next_bound(10000, 10000, 11.5, 0.5, policy, cut=True)   # slow: 1.1 ms a row, 3.5 s for rows
    3181
    >>> next_bound(10000, 150, 30.0, 0.5, policy, cut=False)    # slow for whatever reason
    2500
    >>> next_bound(10000, 300, 0.5, 0.3, policy, cut=False)     # all there was: nothing learned
    10000
    """
    if rows <= 0 or busy_s <= 0:
        return current
    fixed = min(fixed_s, 0.5 * policy.target_s)
    per_row = max(busy_s - fixed, 1e-6) / rows
    wanted = (policy.target_s - fixed) / per_row
    if busy_s > 1.5 * policy.target_s and wanted < current:
        new = max(wanted, current / policy.shrink)
    elif cut and busy_s < policy.target_s:
        new = min(max(wanted, current), 2.0 * current)
    else:
        return current
    new = int(max(policy.floor, min(policy.ceiling, new)))
    return new if abs(new - current) > policy.band * current or new in (policy.floor, policy.ceiling) else current


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A bound was made smaller, and what is that good for?"""

    bound: int
    """As it was before."""
    rows: int
    busy_s: float
    """Of the batch that was too slow."""
    in_vain: int = 0
    """Batches since then that had fewer rows and were hardly shorter."""


class BoundFollower:
    """Follows the batches of one query. The first ones of a run are slow because the JVMs are cold: they teach nothing."""

    def __init__(self, first: int, policy: BoundPolicy, cold_batches: int = 2, *, restored: bool = False) -> None:
        """`restored`: an earlier run has learned `first`, at a keep that nobody wrote down; most likely it is still in force."""
        self.bound, self._policy, self._cold, self._keep = first, policy, cold_batches, 1.0
        self._cold_batches = cold_batches
        self._learned, self._learned_at, self._restored = first, 1.0, restored
        self._recent: deque[float] = deque(maxlen=50)
        self._shrunk: Shrunk | None = None
        self._spared, self._spared_s, self._given = 0, 0.0, first

    def started(self) -> None:
        """The query starts again: its first batches load state, which says nothing about what rows cost."""
        self._cold = self._cold_batches
        self._shrunk, self._spared = None, 0

    def batch(self, rows: int, busy_s: float, *, cut: bool) -> int:
        self._restored = False
        if self._cold > 0:
            self._cold -= 1
            return self.bound
        if rows > 0:
            self._recent.append(busy_s)
            before = self.bound
            wanted = next_bound(before, rows, busy_s, min(self._recent), self._policy, cut=cut)
            self.bound = self._unless_in_vain(before, wanted, rows, busy_s, cut=cut)
            if teaches(before, self.bound, cut=cut):
                self._learned, self._learned_at = self.bound, self._keep
        return self.bound

    def _unless_in_vain(self, before: int, wanted: int, rows: int, busy_s: float, *, cut: bool) -> int:
        """The bound that is `wanted` after a batch, unless making it smaller is no help: then it is given back for a while. With
        fewer rows the lag would only grow, and no batch would end sooner."""
        late, floor = busy_s > 1.5 * self._policy.target_s, self._policy.floor
        if self._spared and late and busy_s <= MUCH_LONGER * self._spared_s:
            self._spared -= 1
            return self._while_spared(before, busy_s, cut=cut)
        self._spared = 0
        if not late:
            self._shrunk = None
            return wanted
        if (shrunk := self._shrunk) is None:
            if wanted < before or before <= floor:
                self._shrunk = Shrunk(bound=before, rows=rows, busy_s=busy_s)
            return wanted
        if busy_s >= HARDLY_SHORTER * shrunk.busy_s and (rows <= CLEARLY_FEWER * shrunk.rows or before <= floor):
            self._shrunk = replace(shrunk, in_vain=shrunk.in_vain + 1)
            if self._shrunk.in_vain >= IN_VAIN:
                self._shrunk, self._spared, self._spared_s = None, SPARED, max(shrunk.busy_s, busy_s)
                self._given = max(before, shrunk.bound)
                return self._given
        elif busy_s < HARDLY_SHORTER * shrunk.busy_s:
            self._shrunk = Shrunk(bound=before, rows=rows, busy_s=busy_s)
        return wanted

    def _while_spared(self, before: int, busy_s: float, *, cut: bool) -> int:
        """One that is smaller than at a start is doubled now and then, and given back where that makes batches longer."""
        if busy_s > HARDLY_LONGER * self._spared_s:
            return self._given
        doubles = cut and self._spared in DOUBLED and before < self._policy.start
        return min(2 * before, self._policy.start) if doubles else before

    def kept(self, keep: float) -> int:
        """Before another share of what is read is kept: what was learned while little was kept would make a batch that takes far
        too long.

        As if only rows that are kept cost something; a bound that is too small for that grows again by itself. It is always the
        bound that was learned, at the keep of that time, that is scaled: a keep that falls and rises changes nothing.

        >>> follower = BoundFollower(9000, BoundPolicy(target_s=4.0), cold_batches=0)
        >>> follower.kept(0.3), follower.batch(9000, 4.0, cut=True)
        (9000, 9000)
        >>> follower.kept(0.6), follower.kept(0.5), follower.kept(0.3)
        (4500, 5400, 9000)
        """
        if keep != self._keep:
            self._shrunk, self._spared = None, 0
        self._keep = keep
        if self._restored:
            self._learned_at = keep
        less = self._learned_at / keep if keep > self._learned_at else 1.0
        scaled = int(self._learned * max(less, 1.0 / self._policy.shrink))
        self.bound = max(min(self._policy.floor, self._learned), scaled)
        return self.bound


def teaches(before: int, after: int, *, cut: bool) -> bool:
    """Whether a batch has changed the bound, or confirmed it: one that the bound did not cut says nothing while it is in time."""
    return cut or before != after


def split(bound: int, lags: dict[str, int]) -> dict[str, int]:
    """The bound shared by the lag of each edge; an edge without lag still gets a share of an equal split.

    >>> split(1000, {"a": 9000, "b": 1000}) == {"a": 900, "b": 250}
    True
    """
    total = sum(lags.values())
    least = bound / (2 * len(lags)) if lags else 0
    return {edge: max(1, int(max(least, bound * lag / total if total else bound))) for edge, lag in lags.items()}


class Admission:
    """Changes the row limit of a running query's Kafka sources.

    Spark fixes `maxOffsetsPerTrigger` when a query starts, but looks its sources' limits up for every batch in a map that can
    be replaced (`StreamExecution.uniqueSources`, not a public API). On a Spark version where that was not tried, `supported` is
    False and the caller keeps the limit the query started with.
    """

    def __init__(self, query: Any, spark: Any, topics: dict[str, str]) -> None:
        """`topics`: edge name → topic."""
        self._jvm = spark._jvm
        self._topics = topics
        self.supported = spark.version.startswith(SUPPORTED)
        self._execution = query._jsq.streamingQuery() if self.supported else None

    @property
    def ready(self) -> bool:
        """The query has looked at its sources, so that it can be told what to read of them."""
        return self._execution is not None and not self._execution.uniqueSources().isEmpty()

    def set(self, limits: dict[str, int]) -> bool:
        """Limits per edge; 0 admits nothing. False when the query has no sources yet (it has not begun its first batch)."""
        if self._execution is None:
            return False
        current = self._execution.uniqueSources()
        if current.isEmpty():
            return False
        make = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows
        iterator, changed = current.keysIterator(), current
        while iterator.hasNext():
            source = iterator.next()
            edge = self._edge_of(source.toString())
            if edge in limits:
                changed = changed.updated(source, make(limits[edge]))
        getattr(self._execution, "uniqueSources_$eq")(changed)
        return True

    def _edge_of(self, description: str) -> str | None:
        return next((edge for edge, topic in self._topics.items() if f"[{topic}]" in description), None)


class Admits(Protocol):
    @property
    def ready(self) -> bool: ...
    def set(self, limits: dict[str, int]) -> bool: ...


class Limits:
    """What the edges of a running query may read. Batches are told by one thread, new keeps by another."""

    def __init__(self, follower: BoundFollower, edges: Iterable[str]) -> None:
        self._follower, self._lock = follower, threading.Lock()
        self._keeps, self._lags = dict.fromkeys(edges, 1.0), dict.fromkeys(edges, 0)
        self._admission: Admits | None = None
        self._held = False
        self.max_rows = follower.bound
        """In force."""

    def attach(self, admission: Admits, *, held: bool = False) -> None:
        """To a query that has just started; `held`: with limits that admit nothing, and so it stays."""
        with self._lock:
            self._admission, self._held = admission, held
            self._follower.started()

    @property
    def ready(self) -> bool:
        return self._admission is not None and self._admission.ready

    @property
    def held(self) -> bool:
        return self._held

    def batch(self, rows: int, busy_s: float, lags: dict[str, int]) -> None:
        """The bound follows what the operator can do, and each edge's part of it follows its lag."""
        with self._lock:
            self._lags = lags
            self._set(self._follower.batch(rows, busy_s, cut=any(lags.values())))

    def keep(self, edge: str, keep: float) -> None:
        """Told before the keep of an edge changes."""
        with self._lock:
            self._keeps[edge] = keep
            self._set(self._follower.kept(sum(self._keeps.values()) / len(self._keeps)))

    def hold(self) -> bool:
        """Admits nothing more, whatever is learned or set from now on; False when that could not be said to the query."""
        with self._lock:
            self._held = True
            return self._admission is not None and self._admission.set(dict.fromkeys(self._lags, 0))

    def open(self) -> bool:
        """Admits what the bound allows, to a query that was told otherwise so far; False when that could not be said to it."""
        with self._lock:
            self._held, self.max_rows = False, self._follower.bound
            return self._admission is not None and self._admission.set(split(self.max_rows, self._lags))

    def _set(self, bound: int) -> None:
        if self._admission is None or self._held or (bound == self.max_rows and len(self._lags) == 1):
            return
        if self._admission.set(split(bound, self._lags)):
            self.max_rows = bound
