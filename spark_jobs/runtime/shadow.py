"""Another driver, or other buckets for a large state, without a long pause: a copy is made, repartitioned where it has to be, and
followed up while the original runs.

The copy gets a checkpoint number of its own, and its query follows the running one, muted. Whoever holds the lease aligns it:
finishes and seals the original, repeats what is missing up to its last committed batch, and notes up to which batch nothing was
written. Each of these can be done again, so any later driver heals a crash in between. A driver that was thought dead does no
harm: a batch of the original that it begins was begun by the seal, and one of the copy never ends beyond the original.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError

from spark_jobs.runtime.checkpoint import Checkpoint, Entry, location
from spark_jobs.runtime.clone import CloneFailed, clone
from spark_jobs.runtime.deadletter import MARK
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.follow import Follower, FollowFailed, Unlike
from spark_jobs.runtime.metrics import Buffer
from spark_jobs.runtime.muting import SHADOW, Origin, muted_until, origin, write_aligned, write_origin
from spark_jobs.runtime.operator import OperatorQuery
from spark_jobs.runtime.repartition import repartition
from spark_jobs.runtime.site import Outlets, State
from spark_jobs.runtime.state_files import STATE, snapshots
from spark_jobs.runtime.topics import Topics, marker_of

log = logging.getLogger("spillway.shadow")

SEALED = "spillway-sealed"
"""File in a checkpoint that a shadow has taken over from: the batch that nobody can begin any more."""
ANEW = "spillway-anew"
"""File in a copy that was made anew where a query had run before: up to which version its snapshots are known, and which."""
_TRIES = 3


def silent(outlets: Outlets) -> Outlets:
    """For a query that only rehearses: what it measures is nobody's business."""
    return Outlets(buffer=Buffer(1), effective=outlets.effective, event=lambda *_: None)


def make_shadow(query: OperatorQuery, topics: Topics, running: State, plan: int, repartitions: Callable[[], None]) -> Checkpoint:
    """Copies the running checkpoint to the place of that of `query`, and gives the copy its buckets."""
    source, target = _original(query, running.checkpoint), query.checkpoint
    try:
        _forget_writers(query, topics, running.checkpoint)
    except (RuntimeError, KafkaException) as error:
        log.warning("topics of writers that write no more are left: %s", error)
    _clear_superseded(query, running.checkpoint)
    if muted_until(target) is not None or (target.exists() and origin(target) is None):
        raise RuntimeError(f"there is a checkpoint at {target.location} already: it is not overwritten")
    for attempt in range(1, _TRIES + 1):
        target.remove()
        try:
            batch = clone(source, target)
            break
        except CloneFailed:
            if attempt == _TRIES:
                raise
    write_origin(target, Origin(checkpoint=running.checkpoint, batch=batch, plan=plan))
    if query.state.buckets != running.buckets:
        repartitions()
        repartition(query.spark, target.location, query.state.buckets)
    return target


def _clear_superseded(query: OperatorQuery, running: int) -> None:
    """State that nobody goes on from any more: of what was taken over from, whose logs stay, since they hold the seal, and of
    copies that never took over."""
    for number in (n for n in range(query.state.checkpoint) if n != running):
        old = _original(query, number)
        if old.read_text(SEALED) is not None:
            old.remove(STATE)
        elif _given_up(old):
            old.remove()


def _given_up(copy: Checkpoint) -> bool:
    return origin(copy) is not None and muted_until(copy) is None


def _forget_writers(query: OperatorQuery, topics: Topics, running: int) -> None:
    """Removes the markers of checkpoints that nobody writes from any more. Kept are those of the running one and of the one that
    it took over from, whose last batch a recovery may look for. Raises RuntimeError."""
    taken_over = origin(_original(query, running))
    kept = {running, query.state.checkpoint, running if taken_over is None else taken_over.checkpoint}
    found: dict[int, list[str]] = {}
    for name in topics.partitions():
        if (number := marker_of(query.site.pipeline.name, query.operator.name, name)) is not None and number not in kept:
            found.setdefault(number, []).append(name)
    over = [n for n in found if (old := _original(query, n)).read_text(SEALED) is not None or _given_up(old) or not old.exists()]
    if over:
        topics.remove([name for number in over for name in found[number]])


def follower_of(query: OperatorQuery, topics: Topics, running: int) -> Follower:
    """The muted query on the shadow of `query`, not started yet; `running` is the number of the checkpoint it follows."""
    actor = OperatorQuery(query.spark, query.site, query.operator, query.state, silent(query.outlets), scratch=query.location)
    actor.utilities = query.utilities
    made = origin(query.checkpoint)
    return Follower(actor, _original(query, running), topics, None if made is None else made.batch)


def _original(query: OperatorQuery, number: int) -> Checkpoint:
    site = query.site
    return Checkpoint(query.spark, location(site.checkpoints, site.pipeline.name, query.operator.name, number))


def practise(query: OperatorQuery, place: Checkpoint) -> None:
    """Does once at another place what `align` does while everybody waits: the first time takes a quarter of a second longer."""
    done = query.checkpoint
    if (entry := done.entry(done.last_commit())) is None:
        return
    place.plan(0, entry)
    place.head()
    place.write_text(SEALED, "0")
    write_aligned(place, 0)
    place.remove()


def waits(query: OperatorQuery) -> bool:
    """Whether the checkpoint of `query` is a shadow that has not been aligned."""
    return origin(query.checkpoint) is not None and muted_until(query.checkpoint) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    repeated: int
    """The last batch that only repeated."""
    running: Follower | None
    """What followed, at rest after that batch; None: it was stopped."""


def align(query: OperatorQuery, topics: Topics, follower: Follower | None = None) -> Aligned:
    """Makes the shadow the checkpoint of `query`; the lease is held and the original is stopped. A `follower` that was given is
    not stopped, where nothing is left to be repeated."""
    shadow = query.checkpoint
    found = origin(shadow)
    assert found is not None
    original = _original(query, found.checkpoint)
    _seal(query, original, found, topics)
    log.info("%s: nobody begins another batch of checkpoint %d", query.operator.name, found.checkpoint)
    if follower is None:  # nobody knows any more by which keeps it has repeated
        _make_anew(query, found.checkpoint)
    at_end = _follow_to_the_end(query, topics, follower or follower_of(query, topics, found.checkpoint), found.checkpoint)
    log.info("%s: all of it is repeated", query.operator.name)
    stays = at_end is follower and not _evicted(original)
    if not stays:
        at_end.actor.rest(drain_s=5.0, at_once=True)
    repeated = _repeat_eviction(original, shadow)
    sweep_late(shadow)
    shadow.write_text(MARK, str(repeated))
    write_aligned(shadow, repeated)
    log.info("%s goes on from batch %d of its checkpoint %d", query.operator.name, repeated, query.state.checkpoint)
    return Aligned(repeated=repeated, running=at_end if stays else None)


def _follow_to_the_end(query: OperatorQuery, topics: Topics, follower: Follower, original: int) -> Follower:
    """A driver that was taken for dead may still follow here too: one of the two then loses a batch to the other, and ends.
    Returns who has got there, with no batch under way."""
    for attempt in range(1, _TRIES + 2):
        try:
            if not follower.actor.alive:
                follower.start()
            follower.reach_end()
            if follower.actor.hold() and follower.actor.drained(time.monotonic() + 5.0):
                return follower
            raise FollowFailed(f"the query on {follower.actor.location} does not come to rest")
        except (FollowFailed, Py4JJavaError) as error:
            log.warning("%s does not follow, try %d of %d: %s", query.operator.name, attempt, _TRIES, first_line(error))
            if follower.actor.query is not None:
                follower.actor.query.stop()  # the next one works on the same checkpoint
            anew = attempt == _TRIES or follower.shed or isinstance(error, Unlike)
            if attempt > _TRIES:
                raise
            if anew:
                _make_anew(query, original)
            time.sleep(1.0)
            follower = follower_of(query, topics, original)
    raise AssertionError("the last try has raised")


def _make_anew(query: OperatorQuery, number: int) -> None:
    """Another copy of the original, which is sealed, is what following comes to; where it has other buckets it takes longer.

    Executors that ran a query here may write one more snapshot of its state later (`sweep_late`)."""
    source, target, found = _original(query, number), query.checkpoint, origin(query.checkpoint)
    assert found is not None
    log.warning("%s is copied once more from checkpoint %d, where it stopped", query.operator.name, number)
    for name in target.files():
        if name != SHADOW:  # which says what it is, should this be the end of whoever copies
            target.remove(name)
    write_origin(target, replace(found, batch=clone(source, target)))
    if target.buckets(target.last_commit()) != query.state.buckets:
        repartition(query.spark, target.location, query.state.buckets)
    target.write_text(ANEW, json.dumps({"version": target.last_commit() + 1, "snapshots": snapshots(target)}))


def sweep_late(checkpoint: Checkpoint) -> None:
    """Removes snapshots of state that were written into a copy after it was made anew, by the upkeep of a query that had run
    there before: Spark would begin with the newest one. Whoever goes on writes later versions."""
    if (text := checkpoint.read_text(ANEW)) is None:
        return
    made = json.loads(text)
    for folder, names in snapshots(checkpoint).items():
        for name in names:
            if name not in made["snapshots"].get(folder, ()) and int(name.removesuffix(".zip")) <= made["version"]:
                log.warning("%s/%s/%s came late and is removed", checkpoint.location, folder, name)
                checkpoint.remove(*folder.split("/"), name)


def _seal(query: OperatorQuery, original: Checkpoint, found: Origin, topics: Topics) -> None:
    """After this nobody can begin another batch of the original. One that was begun is finished first: some of its writers may
    have written."""
    while True:
        head = original.head()
        if head.settled:
            entry = original.entry(head.committed)
            assert entry is not None
            if original.plan(head.committed + 1, entry):
                original.write_text(SEALED, str(head.committed + 1))
                return
        elif original.read_text(SEALED) == str(head.planned):
            return
        else:
            buckets = original.buckets(head.planned) or query.state.buckets
            state = replace(query.state, checkpoint=found.checkpoint, buckets=buckets, reported=None)
            old = OperatorQuery(query.spark, query.site, query.operator, state, query.outlets)
            old.finish(topics, buckets)
            old.close()


def _evicted(original: Checkpoint) -> bool:
    """A last batch without input has moved the state on by the watermark alone, and written what that evicted."""
    last = original.last_commit()
    entry, before = original.entry(last), original.entry(last - 1) if last else None
    return entry is not None and before is not None and entry.offsets == before.offsets and entry.buckets == before.buckets


def _repeat_eviction(original: Checkpoint, shadow: Checkpoint) -> int:
    """What was evicted at last is begun here too, to be repeated muted. Returns the last batch that only repeats."""
    mine = shadow.last_commit()
    if not _evicted(original):
        return mine
    own = shadow.entry(mine)
    assert own is not None
    metadata = {**own.metadata, "batchWatermarkMs": shadow.next_watermark_ms(mine)}
    shadow.plan(mine + 1, Entry(metadata=metadata, ends=own.ends))
    return mine + 1
