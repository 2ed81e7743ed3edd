"""A driver plays the queries of its application, muted, on copies of the running checkpoints: afterwards nothing is cold.

What a first batch waits for in a new process (classes, compiled plans, Kafka's consumers, Python workers, loading of state) is
waited for here instead of in the pause of a hand-over.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from spillway.model.topology import Kind

from spark_jobs.runtime.checkpoint import Checkpoint
from spark_jobs.runtime.clone import SCRATCH, CloneFailed, clone
from spark_jobs.runtime.follow import rows_between
from spark_jobs.runtime.operator import OperatorQuery
from spark_jobs.runtime.shadow import silent
from spark_jobs.runtime.site import State
from spark_jobs.runtime.topics import Topics

log = logging.getLogger("spillway.rehearsal")

STARTS, BATCHES = 2, 3
"""The second start is for those with state, who load what they have written."""
LONGEST_S = 1.0
"""About as long a batch of an operator that is busy all the time takes at most: longer ones make nothing warmer, and take CPU
from what runs."""
_TRIES = 3
_PATIENCE_S = 20.0
"""For the batches of one start; a topic in which nothing arrives gives none."""


class RehearsalFailed(RuntimeError):
    """A query did not run on a copy of its checkpoint."""


STRAGGLERS_S = 90.0
"""So long after a query was stopped its executors may still write to its checkpoint, and so make it anew: a task that was told to
end, and the state store's upkeep, which looks once a minute."""


def scratch_of(query: OperatorQuery, *more: str) -> str:
    """Where copies of an operator's checkpoints go."""
    return "/".join((query.site.checkpoints.rstrip("/"), SCRATCH, query.site.pipeline.name, query.operator.name, *more))


def sweep_scratch(queries: list[OperatorQuery]) -> None:
    """Of whoever made them: only one driver at a time rehearses."""
    for query in queries:
        Checkpoint(query.spark, scratch_of(query)).remove()


def sweep_stragglers(queries: list[OperatorQuery]) -> None:
    """The driver's own copies alone, for while it leads its successor may rehearse."""
    for query in queries:
        Checkpoint(query.spark, scratch_of(query, str(query.site.generation))).remove()


def rehearse(queries: list[OperatorQuery], topics: Topics, at: Callable[[str], None], played: Callable[[int], None]) -> None:
    """All queries of an application at once. `at("cloning")`, `at("rehearsing")` tell where it is, and may raise to end it."""
    for attempt in range(1, _TRIES + 1):
        try:
            _play(queries, topics, at, played)
            return
        except (CloneFailed, RehearsalFailed) as error:
            log.warning("rehearsal %d of %d: %s", attempt, _TRIES, error)
            if attempt == _TRIES:
                raise
        finally:
            sweep_scratch(queries)


def _play(queries: list[OperatorQuery], topics: Topics, at: Callable[[str], None], played: Callable[[int], None]) -> None:
    at("cloning")
    actors = [actor for query in queries if (actor := _actor(query)) is not None]
    at("rehearsing")
    try:
        for _ in range(STARTS if any(actor.operator.kind is not Kind.STATELESS for actor in actors) else 1):
            for actor in actors:
                actor.start(topics)
            _await_batches(actors, at, played)
            for actor in actors:
                actor.rest(drain_s=5.0)
    finally:
        for actor in actors:
            if actor.query is not None:
                actor.query.stop()
    for query, actor in ((q, a) for q in queries for a in actors if a.operator.name == q.operator.name):
        query.utilities = actor.utilities


def _actor(query: OperatorQuery) -> OperatorQuery | None:
    """A muted query on a copy of the checkpoint as it was a few batches ago, so that there is something to read; None when the
    operator has never run a batch."""
    place = scratch_of(query, str(query.site.generation), uuid.uuid4().hex[:12])
    source, target = query.checkpoint, Checkpoint(query.spark, place)
    if source.last_commit() < 0:
        return None
    batch = clone(source, target, back=BATCHES)
    before, end = source.offsets(batch), source.offsets(batch + 1)
    rows = rows_between(before, end) if before and end else 0
    share = min(1.0, LONGEST_S / query.site.pipeline.batch_target_s)
    state = rehearsed(query.state, rows, query.site.policy.batch_rows_min, share)
    return OperatorQuery(query.spark, query.site, query.operator, state, silent(query.outlets), scratch=place)


def rehearsed(state: State, rows: int, least: int, share: float = 1.0) -> State:
    """As on a copy from which nothing was reported, with batches of so many rows, if any, and of no more than a share of what
    the operator manages in a batch: the copy ends some batches ago, and that is no loss."""
    most = rows if state.max_rows is None else min(rows, int(share * state.max_rows))
    return replace(state, reported=None, max_rows=max(least, most) if rows else state.max_rows)


def _await_batches(actors: list[OperatorQuery], at: Callable[[str], None], played: Callable[[int], None]) -> None:
    wanted = {actor.operator.name: actor.batches + BATCHES for actor in actors}
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        for actor in actors:
            if not actor.alive:
                raise RehearsalFailed(f"{actor.operator.name} ended on a copy of its checkpoint: {actor.failure()}")
            actor.collect()
        played(sum(actor.batches for actor in actors))
        if all(actor.batches >= wanted[actor.operator.name] for actor in actors):
            return
        at("rehearsing")
        time.sleep(0.1)


def keep_warm(spark: SparkSession, tasks: int) -> None:
    """A look at every executor: Spark ends Python workers that had nothing to do for a minute."""

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        import spark_jobs.sinks.kafka  # noqa: F401

        yield from batches

    spark.range(0, tasks, 1, tasks).mapInArrow(part, "id bigint").write.format("noop").mode("overwrite").save()
