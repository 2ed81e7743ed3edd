"""Brings a checkpoint to what its operator is told, before its query starts on it.

Whatever a driver that died has left half-done is done to its end here: a repartition that was begun, a batch that was begun by
other writers than the next one is to have, a shadow that was to take over. Done again, all of it does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_jobs.runtime.checkpoint import WRITERS, writers_in
from spark_jobs.runtime.operator import OperatorQuery
from spark_jobs.runtime.orders import Phase
from spark_jobs.runtime.repartition import Unsupported, has_state, refusal, repartition, unfinished
from spark_jobs.runtime.shadow import align, waits
from spark_jobs.runtime.topics import Topics

log = logging.getLogger("spillway.settle")


def settle(query: OperatorQuery, topics: Topics, say: Callable[[Phase], None]) -> None:
    """The query must be stopped. Raises `Unsupported` when its state cannot be given the buckets it is told."""
    checkpoint, wanted = query.checkpoint, query.state.buckets
    if waits(query):
        align(query, topics)
    head = checkpoint.head()
    if head.planned < 0 and query.state.from_shadow:
        raise RuntimeError(
            f"the checkpoint of operator {query.operator.name} at {checkpoint.location} is gone, which its shadow had become: "
            f"put it back, or begin anew with `spillway reset {query.site.pipeline.name} {query.operator.name}`"
        )
    if head.planned < 0 or (head.settled and checkpoint.buckets(head.planned) == wanted):
        return
    stateful = has_state(checkpoint)
    if stateful and (begun := unfinished(checkpoint, head)) is not None:
        log.warning("%s was being given %d buckets when its driver ended: that is finished first", query.operator.name, begun)
        say(Phase.REPARTITIONING)
        repartition(query.spark, checkpoint.location, begun)
        head = checkpoint.head()
    lies_in = checkpoint.buckets(head.planned) if stateful else writers_in(checkpoint.read_text(WRITERS))
    if lies_in is None or lies_in == wanted:
        return
    if not head.settled:
        query.finish(topics, lies_in)
    if stateful:
        say(Phase.REPARTITIONING)
        repartition(query.spark, checkpoint.location, wanted)


def refuses(query: OperatorQuery, buckets: int) -> str | None:
    """Why the state of a query, which may be running, cannot be given other buckets; None when it can, or has none."""
    checkpoint = query.checkpoint
    if buckets == query.state.buckets or not has_state(checkpoint):
        return None
    return refusal(query.spark, checkpoint.location)


__all__ = ["Unsupported", "refuses", "settle"]
