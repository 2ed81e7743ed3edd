"""What a driver that ended has left unsaid: how far its last batches read, and dead letters that it did not collect."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.runtime.checkpoint import Checkpoint, location
from spark_jobs.runtime.database import Connection, run
from spark_jobs.runtime.deadletter import dead_letter_sink, make_sweeper
from spark_jobs.runtime.muting import origin
from spark_jobs.runtime.operator import OperatorQuery
from spark_jobs.runtime.progress import positions
from spark_jobs.runtime.topics import Topics


def recover(query: OperatorQuery, connection: Connection, topics: Topics) -> None:
    """Called when the driver before this one has fallen silent, so that nothing more comes from it."""
    site, checkpoint = query.site, query.checkpoint
    _report(query, checkpoint, query.state.checkpoint, connection, last=query.found.committed, muted=query.muted)
    taken_over = origin(checkpoint)
    if taken_over is None:
        return
    number = taken_over.checkpoint
    original = Checkpoint(query.spark, location(site.checkpoints, site.pipeline.name, query.operator.name, number))
    if not original.exists():
        return
    _report(query, original, number, connection, last=original.last_commit(), muted=-1)
    if query.operator.schema:
        sink = dead_letter_sink(site, query.operator, number, topics)
        make_sweeper(query.spark, site, query.operator, original, sink, query.outlets.event).sweep_missed()


def _repartition(checkpoint: Checkpoint, batch: int) -> bool:
    """A batch that only gave its state other buckets: nobody reports it."""
    return batch > 0 and checkpoint.buckets(batch) != (checkpoint.buckets(batch - 1) or checkpoint.buckets(batch))


def _report(query: OperatorQuery, checkpoint: Checkpoint, number: int, connection: Connection, *, last: int, muted: int) -> None:
    """A driver that was killed may have committed batches whose metrics it could not write any more. How their rows were shed is
    gone with it; how far they read is in the checkpoint, and without it a quiet topic would seem unread for ever."""
    name = query.operator.name
    [(reported,)] = run(connection, "job_reported", pipeline=query.site.pipeline.name, operator=name, checkpoint=number)
    known = max(-1 if reported is None else reported, muted)
    silent = [batch for batch in checkpoint.committed() if known < batch <= last and not _repartition(checkpoint, batch)]
    context = replace(query.context(), checkpoint=number)
    for batch in silent:
        before = checkpoint.offsets(batch - 1) if batch else checkpoint.first_offsets(len(query.edges))
        end = checkpoint.offsets(batch)
        if before is not None and end is not None:
            query.outlets.buffer.put(positions(batch, before, end, checkpoint.committed_at(batch), context))
    if silent and reported is not None:
        which = f"batch {silent[0]} was" if len(silent) == 1 else f"batches {silent[0]} to {silent[-1]} were"
        text = f"{which} committed by a driver that ended before it reported them; only their offsets are known"
        query.outlets.event(name, "metrics_lost", text)
