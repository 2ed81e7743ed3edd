"""How many rows a batch may take, so that under overload a batch still ends soon and a new keep still works quickly."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

SUPPORTED = ("4.2.",)
CLEARLY_FEWER = 0.75
"""Batches with at most this share of another one's rows tell what rows cost."""
TRY_FEWER = 8
"""Batches in a row that were allowed to take longer than the target, after which fewer rows are tried: is it still not the rows?
Where batches are only somewhat late it is tried after twice as many, and each time after twice as many again."""
TRY_FEWER_MOST = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPolicy:
    target_s: float
    """How long a full batch should take."""
    floor: int = 10
    ceiling: int = 5_000_000
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


def least_s(known_s: float, slow: tuple[int, float], rows: int, busy_s: float) -> float:
    """What a batch takes whatever it reads: `known_s` before this one of `rows` rows, 0 where nothing is known.

    A batch with clearly fewer rows than the one that made the bound smaller (`slow`: its rows and seconds) tells it by the line
    through both: where fewer rows have made it hardly shorter, rows are not what takes the time.

    >>> least_s(0.0, (10_000, 12.0), 2_500, 4.5)                # 1 ms a row
    2.0
    >>> least_s(0.0, (10_000, 12.0), 2_500, 9.0)                # 0.4 ms a row
    8.0
    >>> least_s(8.0, (10_000, 12.0), 9_000, 11.6)               # nothing to compare with
    8.0
    >>> least_s(8.0, (10_000, 12.0), 9_000, 5.0)                # quicker than it could be: not known any more
    0.0
    """
    if 0 < rows <= CLEARLY_FEWER * slow[0]:
        return max(0.0, busy_s - max(slow[1] - busy_s, 0.0) / (slow[0] - rows) * rows)
    return known_s if known_s <= busy_s else 0.0


class BoundFollower:
    """Follows the batches of one query. The first ones of a run are slow because the JVMs are cold: they teach nothing."""

    def __init__(self, first: int, policy: BoundPolicy, cold_batches: int = 2, *, restored: bool = False) -> None:
        """`restored`: an earlier run has learned `first`, at a keep that nobody wrote down; most likely it is still in force."""
        self.bound, self._policy, self._cold, self._keep = first, policy, cold_batches, 1.0
        self._cold_batches = cold_batches
        self._learned, self._learned_at, self._restored = first, 1.0, restored
        self._recent: deque[float] = deque(maxlen=50)
        self._slow, self._least_s, self._late, self._patience = (0, 0.0), 0.0, 0, 2 * TRY_FEWER

    def started(self) -> None:
        """The query starts again: its first batches load state, which says nothing about what rows cost."""
        self._cold = self._cold_batches

    def batch(self, rows: int, busy_s: float, *, cut: bool) -> int:
        self._restored = False
        if self._cold > 0:
            self._cold -= 1
            return self.bound
        if rows > 0:
            self._recent.append(busy_s)
            before, policy = self.bound, self._policy_for(rows, busy_s)
            self.bound = next_bound(before, rows, busy_s, min(self._recent), policy, cut=cut)
            longer = policy.target_s > self._policy.target_s
            self._late = self._late + 1 if cut and (longer or policy.target_s <= busy_s <= 1.5 * policy.target_s) else 0
            if self._late >= (TRY_FEWER if longer else self._patience):
                self.bound, self._late = max(policy.floor, before // 2), 0
                self._patience = min(2 * self._patience, TRY_FEWER_MOST)
            if self.bound < before:
                self._slow = rows, busy_s
            if teaches(before, self.bound, cut=cut):
                self._learned, self._learned_at = self.bound, self._keep
        return self.bound

    def _policy_for(self, rows: int, busy_s: float) -> BoundPolicy:
        """A batch that takes long whatever it reads may take twice that: half of it is for rows. With fewer the lag would only
        grow, and no batch would end sooner."""
        self._least_s = least_s(self._least_s, self._slow, rows, busy_s)
        return replace(self._policy, target_s=max(self._policy.target_s, 2.0 * self._least_s))

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
