"""Batches of a checkpoint that write nothing, because another checkpoint has written their rows.

A shadow is a copy of an operator's checkpoint with other buckets. Its query repeats, muted, what the running one does, until it
takes over; from then on `ALIGNED` in the checkpoint says up to which batch it only repeats.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from spark_jobs.runtime.checkpoint import Checkpoint

SHADOW = "spillway-shadow"
"""File in the checkpoint of a shadow: what it is a copy of."""
ALIGNED = "spillway-aligned"
"""File in the checkpoint of a shadow that has taken over."""
ALWAYS = 2**62
"""Muted for good: a rehearsal, or a shadow that has not taken over."""
NEVER = -1
UNMUTED = "spark.sql.spillway.mutedUntil"
"""Property of the session of a query that followed another one, once it has taken over in its place: up to which batch it only
repeated. Spark hands the properties of a session to every task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a shadow is a copy of: another checkpoint of the operator, at a committed batch of it."""

    checkpoint: int
    batch: int
    plan: int


def origin(checkpoint: Checkpoint) -> Origin | None:
    text = checkpoint.read_text(SHADOW)
    return None if text is None else Origin(**json.loads(text))


def write_origin(checkpoint: Checkpoint, found: Origin) -> None:
    checkpoint.write_text(SHADOW, json.dumps(asdict(found)))


def muted_until(checkpoint: Checkpoint) -> int | None:
    """The last batch that only repeats what another checkpoint has written; None for a checkpoint that is nobody's shadow."""
    text = checkpoint.read_text(ALIGNED)
    return None if text is None else int(json.loads(text)["muted_until"])


def write_aligned(checkpoint: Checkpoint, batch: int) -> None:
    checkpoint.write_text(ALIGNED, json.dumps({"muted_until": batch}))
