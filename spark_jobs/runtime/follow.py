"""A muted query that repeats another one's batches, and ends exactly where that one has committed.

Spark fixes what a batch reads when it begins; but a Kafka source that was told of `Trigger.AvailableNow` reads up to offsets that
it keeps in a field, and that field can be set. Until it is set, the query admits nothing. So the follower never begins what the
other one has not begun, and at any committed batch of that it can be brought to rest with the same state. It does not wait for
the commit of a batch: one that was begun is finished with the same rows, whoever finishes it, and so both are done at about the
same time.

Where the plan has a watermark it matters which rows share a batch: then each batch is repeated as it was. Otherwise several are
taken together.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from spark_jobs.runtime.bound import SUPPORTED, Admission
from spark_jobs.runtime.checkpoint import Checkpoint, Offsets
from spark_jobs.runtime.muting import UNMUTED
from spark_jobs.runtime.operator import OperatorQuery
from spark_jobs.runtime.topics import Topics

log = logging.getLogger("spillway.follow")

UNLIMITED = 2**60
TIMES, TIMES_MOST = 4, 64
"""So many bounds of the query it follows are read at once, twice as many after every batch that was not enough: nobody waits for
what follows, but what is bound to be a little too slow would be so for ever."""
WARM, WARM_MOST = 3, 16
"""What follows is level once it has done so many batches and is warm, or the second number of them: its first ones start what a
cold process starts, and whoever took over then would wait for that."""
LAST, STEADY = 4, 0.95
"""The best of so many batches was no quicker than so much of the best before them: it becomes no quicker any more."""
_QUIET_S = 20.0
"""After so long without anything to read it is level all the same."""
_END = "allDataForTriggerAvailableNow"
_TRIGGER_S = 0.02
"""How soon a batch begins that is to be repeated: what is late here is waited for at a cut-over."""
_TOLD_S = 0.2


class FollowFailed(RuntimeError):
    """The query that follows has ended, or cannot follow."""


class Unlike(FollowFailed):
    """What follows has not done what the original did."""


def rows_between(begin: Offsets, end: Offsets) -> int:
    """
    >>> rows_between({"t": {0: 5, 1: 7}}, {"t": {0: 9, 1: 7}})
    4
    """
    return sum(offset - begin.get(topic, {}).get(p, offset) for topic, ps in end.items() for p, offset in ps.items())


def ahead(mine: Offsets, theirs: Offsets) -> bool:
    """Whether some partition was read further than by the other one."""
    return any(offset > theirs.get(topic, {}).get(p, 0) for topic, ps in mine.items() for p, offset in ps.items())


def next_batch(ends: list[tuple[int, Offsets]], mine: Offsets, *, singly: bool, most_rows: int) -> tuple[int, Offsets] | None:
    """Of the batches after one's own, with their ends, the one to read up to; None when there is nothing to read.

    >>> ends = [(7, {"t": {0: 10}}), (8, {"t": {0: 10}}), (9, {"t": {0: 30}}), (10, {"t": {0: 60}})]
    >>> next_batch(ends, {"t": {0: 10}}, singly=True, most_rows=1000)
    (9, {'t': {0: 30}})
    >>> next_batch(ends, {"t": {0: 10}}, singly=False, most_rows=1000)
    (10, {'t': {0: 60}})
    >>> next_batch(ends[:2], {"t": {0: 10}}, singly=False, most_rows=1000)
    """
    chosen = None
    for batch, end in ends:
        rows = rows_between(mine, end)
        if rows and (chosen is None or (not singly and rows <= most_rows)):
            chosen = (batch, end)
    return chosen


def warm(took: list[float], theirs: float | None) -> bool:
    """Whether what took so long for its batches, one after the other, is as quick as the original, or as quick as it will be.

    As quick as the original, which writes what the other one does not, it is done with a batch when that one is.

    >>> warm([18.0, 4.0, 1.3], 1.3), warm([18.0, 4.0], 5.0), warm([18.0, 4.0, 2.4, 2.3, 2.0], 1.3)
    (True, False, False)
    >>> warm([18.0, 4.0, 2.4, 2.0, 1.8, 1.8, 1.8, 1.8, 1.9], 1.3), warm([18.0 / n for n in range(1, 17)], None)
    (True, True)
    """
    if len(took) < WARM:
        return False
    if len(took) >= WARM_MOST or (theirs is not None and took[-1] <= theirs):
        return True
    return len(took) > LAST and min(took[-LAST:]) >= STEADY * min(took[:-LAST])


def _set_field(of: Any, name: str, value: Any) -> None:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    field.set(of, value)


class Follower:
    def __init__(self, actor: OperatorQuery, original: Checkpoint, topics: Topics, copied: int | None = None) -> None:
        """`actor`: a query that only rehearses, on a copy of `original` as it was at batch `copied`."""
        if not actor.spark.version.startswith(SUPPORTED):
            raise FollowFailed(
                f"a query can be made to follow another one on Spark {SUPPORTED[0]}x, this is {actor.spark.version}"
            )
        self.actor, self._original, self._topics, self._copied = actor, original, topics, copied
        self._singly = False
        self._admission: Admission | None = None
        self._read: Offsets = {}
        self._done = -1
        """The batch of the original that has been repeated, itself or with later ones."""
        self._target: tuple[int, Offsets] | None = None
        self._times = TIMES
        self._took: list[float] = []
        """Seconds, of each batch it has done until it was warm."""
        self._warm = self._slow = False
        """`_slow`: warm, and yet not as quick as the original."""
        self._ended = 0.0
        self._begun = self._quiet_since = time.monotonic()
        self.shed = False
        """Rows were shed while it repeated a batch: by the keeps of now, which may not be those of the original."""
        self.level = False
        """It is warm, and what it read last, or reads now, was all that the original had begun by then."""

    def start(self) -> None:
        actor = self.actor
        actor.trigger_s = _TRIGGER_S
        actor.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        prepared = actor.prepare(self._topics, held=True)
        self._singly = prepared.watermarked
        actor.start(self._topics, prepared)
        self._await(lambda: actor.checkpoint.head().settled and actor.looked_at_sources, "did not come up")
        query: Any = actor.query
        self._admission = Admission(query, actor.spark, {e.name: e.topic for e in actor.edges})
        self._read = actor.checkpoint.offsets(actor.checkpoint.last_commit()) or {}
        known = [b for b, end in self._ends(-1) if end == self._read]
        if not known and self._fresh and not self._singly:  # the original has gone on for longer than its log goes back
            known = [self._copied or 0]
        if not known:
            raise FollowFailed(f"{actor.location} stands where {self._original.location} never stood")
        self._done, self._quiet_since = known[-1], time.monotonic()

    @property
    def _fresh(self) -> bool:
        """Whether it still stands where the copy was made."""
        return self._copied is not None and self.actor.checkpoint.offsets(self._copied) == self._read

    def _await(self, what: Callable[[], bool], but: str) -> None:
        while not what():
            if not self.actor.alive:
                raise FollowFailed(f"the query on {self.actor.location} {but}: {self.actor.failure()}")
            time.sleep(0.02)

    def _ends(self, after: int) -> list[tuple[int, Offsets]]:
        """The batches of the original after one of them, also the one that runs, and where they end."""
        last = self._original.last_planned()
        first = after + 1 if after >= 0 else max(0, last - 90)
        found = [(batch, self._original.offsets(batch)) for batch in range(first, last + 1)]
        return [(batch, end) for batch, end in found if end is not None]

    def advance(self, *, may_rest: bool = False) -> int:
        """One look: reads on when there is more. Returns how many rows the original has begun and this one has not done.

        `may_rest`: nobody waits for it. One that is slower than the original, as beside it on one core, is always in the middle
        of a batch that is not the last one when it is told to take over; so it rests as long as a batch takes, and then repeats
        several at once. Told meanwhile, it begins the last one at once."""
        if not self.actor.alive:
            raise FollowFailed(f"the query on {self.actor.location} has ended: {self.actor.failure()}")
        self.actor.collect()
        if self._target is not None:
            if self.actor.position[1] != self._target[1]:
                return self._behind()
            (self._done, self._read), self._target = self._target, None
            self.shed = self.shed or self.actor.sheds
            self._ended = time.monotonic()
            if not self._warm:
                self._took.append(self._ended - self._begun)
                theirs = self._original.took_s(self._original.last_commit())
                self._warm = warm(self._took, theirs)
                self._slow = self._warm and (theirs is None or self._took[-1] > theirs)
        ends = self._ends(self._done)
        if self._singly and ends and ends[0][0] != self._done + 1:
            raise FollowFailed(f"{self._original.location} has forgotten batch {self._done + 1}: what follows it is too slow")
        if may_rest and self._rests:
            return rows_between(self._read, ends[-1][1]) if ends else 0
        self._target = next_batch(ends, self._read, singly=self._singly, most_rows=self._times * self.actor.max_rows)
        if self._target is not None:
            self._begun = time.monotonic()
            self.shed = self.shed or self.actor.sheds
            self._read_up_to(self._target[1])
        elif ends:
            self._done = ends[-1][0]
        at_end = self._target is None or self._target[0] == ends[-1][0]
        if self._target is not None:
            self._quiet_since = time.monotonic()
        self.level = at_end and (self._warm or time.monotonic() - self._quiet_since > _QUIET_S)
        self._times = TIMES if at_end else min(2 * self._times, TIMES_MOST)
        return rows_between(self._read, ends[-1][1]) if ends else 0

    @property
    def _rests(self) -> bool:
        return self.level and self._slow and not self._singly and time.monotonic() - self._ended < self._took[-1]

    def _behind(self) -> int:
        end = self._original.offsets(self._original.last_planned())
        return rows_between(self._read, end) if end else 0

    def stop(self) -> None:
        if self.actor.query is not None:
            self.actor.query.stop()

    def reach_end(self) -> None:
        """Up to the last committed batch of the original, which is stopped and has none under way. Raises Unlike where what was
        repeated on the way may not be what the original did."""
        end = self._original.offsets(self._original.last_commit()) or {}
        if ahead(self._read, end):
            raise FollowFailed(f"{self.actor.location} has read further than {self._original.location} has committed")
        while self.advance() or self._target is not None:
            time.sleep(0.01)
        if self.shed:
            raise Unlike(f"rows were shed while {self.actor.location} repeated batches")

    # -- in the place of what it followed

    @property
    def query(self) -> StreamingQuery:
        assert self.actor.query is not None
        return self.actor.query

    def go_on(self, trigger_s: float, muted: int) -> None:
        """The query reads whatever its limits admit from now on, and writes what comes after batch `muted`. It must be at rest
        there, and held: then no batch is under way, and none begins before its limits are opened."""
        execution: Any = self.query._jsq.streamingQuery()
        execution.sparkSessionForStream().conf().set(UNMUTED, str(muted))
        paced = execution.triggerExecutor()
        _set_field(paced, "intervalMs", int(trigger_s * 1000))
        sources = execution.uniqueSources().keysIterator()
        while sources.hasNext():
            source = sources.next()
            # In this order, and while the query admits nothing: the other way round a trigger in between would note what is there
            # at that moment as the end of all it ever reads.
            _set_field(source, "isTriggerAvailableNow", False)
            _set_field(source, _END, None)

    def _read_up_to(self, end: Offsets) -> None:
        """First the ends, then the limits: in between the query admits nothing. Of several sources one would else be read further
        than the other in the same batch, which matters where there is a watermark."""
        query: Any = self.actor.query
        sources = query._jsq.streamingQuery().uniqueSources().keysIterator()
        assert self._admission is not None
        if len(self.actor.edges) > 1:
            self._admission.set({e.name: 0 for e in self.actor.edges})
            time.sleep(_TOLD_S)  # a trigger that has begun with the limits from before has ended
        while sources.hasNext():
            source = sources.next()
            topic = next((t for t in end if f"[{t}]" in source.toString()), None)
            if topic is None:
                continue
            text = json.dumps({topic: {str(p): offset for p, offset in end[topic].items()}})
            _set_field(source, _END, source.deserializeOffset(text).partitionToOffsets())
            source.prepareForTriggerAvailableNow()
        self._admission.set({e.name: UNLIMITED for e in self.actor.edges})
