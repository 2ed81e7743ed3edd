"""A copy of a checkpoint at one committed batch, made while its query runs on.

Copied is what a query needs to go on from that batch and nothing else: two entries of each log, the sources, and of the state the
files of one version. Old versions are deleted under way by the query that runs, so a copy may fail for a file that is gone: then
it is made again, from a newer batch and to another place, because executors remember what they have seen at a place.
"""

from __future__ import annotations

import json
import logging
import uuid

from py4j.protocol import Py4JJavaError

from spark_jobs.runtime.checkpoint import COMMITS, OFFSETS, Checkpoint
from spark_jobs.runtime.state_files import STATE, StateIncomplete, state_of

log = logging.getLogger("spillway.clone")

SCRATCH = ".scratch"
"""Folder beside the pipelines' checkpoints, for copies that nothing depends on."""


class CloneFailed(RuntimeError):
    """The checkpoint could not be copied while its query ran on."""


def clone(source: Checkpoint, target: Checkpoint, *, back: int = 0) -> int:
    """Copies `source` as it was `back` committed batches ago, as far as it still knows that; returns the batch.

    The copy has an identity of its own: Spark runs no two queries of one identity.
    """
    committed = source.last_commit()
    if committed < 0:
        raise CloneFailed(f"the checkpoint at {source.location} has no committed batch yet: there is nothing to copy")
    batch = max(committed - back, min(committed, _oldest(source)))
    try:
        for part in state_of(source, batch):
            for name in part.files:
                source.copy_to(target.location, *part.folder, *name.split("/"))
        _copy_descriptions(source, target)
        if source.exists("sources"):
            source.copy_to(target.location, "sources")
        # At last what says that all of it is there: a copy that was cut short has no committed batch.
        for name in (OFFSETS, COMMITS):
            if batch > 0 and source.exists(name, str(batch - 1)):
                source.copy_to(target.location, name, str(batch - 1))
        source.copy_to(target.location, OFFSETS, str(batch))
        source.copy_to(target.location, COMMITS, str(batch))
    except (Py4JJavaError, StateIncomplete) as error:
        said = str(getattr(error, "java_exception", None) or error).splitlines()[0]
        raise CloneFailed(f"the checkpoint at {source.location} changed while it was copied: {said}") from error
    target.write_text("metadata", json.dumps({"id": str(uuid.uuid4())}))
    return batch


def _oldest(source: Checkpoint) -> int:
    """The oldest batch that can be gone on from: Spark wants the one before it too."""
    kept = source.committed()
    return kept[0] + 1 if len(kept) > 1 and kept[0] > 0 else kept[0]


def _copy_descriptions(source: Checkpoint, target: Checkpoint) -> None:
    """What operators and stores say about themselves."""
    for operator in (name for name in source.folders(STATE) if name.isdigit()):
        first = (STATE, operator, "0")
        stores = [(*first, name) for name in source.folders(*first) if not name.startswith((".", "_"))]
        folders: list[tuple[str, ...]] = [(STATE, operator), first, *stores]
        for folder in folders:
            if source.exists(*folder, "_metadata"):
                source.copy_to(target.location, *folder, "_metadata")
