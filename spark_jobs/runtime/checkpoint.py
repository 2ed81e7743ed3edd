"""Reads and writes a checkpoint through Hadoop's file system, so that it may lie on any store Spark can use."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

OFFSETS, COMMITS = "offsets", "commits"
BUCKETS = "spark.sql.shuffle.partitions"
"""A setting that Spark writes down with every batch: in how many partitions its state lies."""
WRITERS = "spillway-writers"
"""File in the checkpoint: who writes the operator's rows."""

Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""


def location(checkpoints: str, pipeline: str, operator: str, number: int) -> str:
    """Where a checkpoint of an operator lies.

    >>> location("file:///data/", "taxi", "mean_tip", 3)
    'file:///data/taxi/mean_tip/3'
    """
    return "/".join((checkpoints.rstrip("/"), pipeline, operator, str(number)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest batch that was begun and the newest that was committed, -1 where there is none."""

    planned: int
    committed: int

    @property
    def settled(self) -> bool:
        """No batch was begun and not committed."""
        return self.planned <= self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What Spark wrote down when it began a batch: its settings, and where each source ends."""

    metadata: dict[str, Any]
    ends: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Entry:
        """
        >>> Entry.parse('v1\\n{"batchWatermarkMs":0,"conf":{}}\\n{"t":{"0":7}}').offsets
        {'t': {0: 7}}
        """
        _, metadata, *ends = text.splitlines()
        return cls(metadata=json.loads(metadata), ends=tuple(ends))

    @property
    def text(self) -> str:
        return "\n".join(("v1", json.dumps(self.metadata, separators=(",", ":")), *self.ends))

    @property
    def offsets(self) -> Offsets:
        found: Offsets = {}
        for line in self.ends:
            if line.startswith("{"):
                found.update({t: {int(p): int(o) for p, o in ps.items()} for t, ps in json.loads(line).items()})
        return found

    @property
    def buckets(self) -> int | None:
        value = self.metadata.get("conf", {}).get(BUCKETS)
        return None if value is None else int(value)


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self._spark, self._jvm, self.location = spark, jvm, location
        self._path = jvm.org.apache.hadoop.fs.Path
        self._conf = spark._jsc.hadoopConfiguration()
        self._fs = self._path(location).getFileSystem(self._conf)

    def _child(self, *parts: str) -> Any:
        return self._path("/".join((self.location, *parts)))

    def _read(self, *parts: str) -> str | None:
        path = self._child(*parts)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()

    def read_bytes(self, *parts: str) -> bytes:
        stream = self._fs.open(self._child(*parts))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _log(self, name: str, *, writable: bool = False) -> Any:
        """Spark's own view of one of its logs; `writable` makes the folder where there is none."""
        package = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        made = package.OffsetSeqLog if name == OFFSETS else package.CommitLog
        return made(self._spark._jsparkSession, self._child(name).toString(), not writable)

    def _batches(self, log: str) -> list[int]:
        return sorted(int(name) for name in self.files(log) if name.isdigit())

    def _newest(self, log: str) -> int:
        """One call into the JVM, while `_batches` makes several for every file."""
        if not self._fs.exists(self._child(log)):
            return -1
        found = self._log(log).getLatestBatchId()
        return int(found.get()) if found.isDefined() else -1

    # -- the logs

    def head(self) -> Head:
        """Commits first: a batch that is committed in between then looks unsettled, never the other way round."""
        committed = self._newest(COMMITS)
        return Head(planned=self._newest(OFFSETS), committed=committed)

    def last_commit(self) -> int:
        """The newest committed batch, -1 if there is none."""
        return self._newest(COMMITS)

    def committed(self) -> list[int]:
        """The committed batches that the log still has, oldest first."""
        return self._batches(COMMITS)

    def committed_at(self, batch_id: int) -> datetime:
        millis = self._fs.getFileStatus(self._child(COMMITS, str(batch_id))).getModificationTime()
        return datetime.fromtimestamp(millis / 1000, UTC)

    def took_s(self, batch_id: int) -> float | None:
        """From the moment a batch was begun to its commit; None where it is not committed, or forgotten."""
        begun, done = self._child(OFFSETS, str(batch_id)), self._child(COMMITS, str(batch_id))
        if not (self._fs.exists(begun) and self._fs.exists(done)):
            return None
        written = [self._fs.getFileStatus(path).getModificationTime() for path in (begun, done)]
        return (written[1] - written[0]) / 1000

    def last_planned(self) -> int:
        """The newest batch that was begun, -1 if there is none."""
        return self._newest(OFFSETS)

    def entry(self, batch_id: int) -> Entry | None:
        """What was written down for a batch; None when the log does not have it, or no longer."""
        text = self._read(OFFSETS, str(batch_id))
        return None if text is None else Entry.parse(text)

    def offsets(self, batch_id: int) -> Offsets | None:
        """End offsets of a batch; None when the log no longer has it."""
        entry = self.entry(batch_id)
        return None if entry is None else entry.offsets

    def buckets(self, batch_id: int) -> int | None:
        """In how many partitions the state of a batch lies; None when the log does not say."""
        entry = self.entry(batch_id)
        return None if entry is None else entry.buckets

    def next_watermark_ms(self, batch_id: int) -> int:
        """The watermark of the batch after a committed one."""
        text = self._read(COMMITS, str(batch_id)) or ""
        return int(json.loads(text.splitlines()[1])["nextBatchWatermarkMs"])

    def plan(self, batch_id: int, entry: Entry) -> bool:
        """Begins a batch as Spark itself does; False when somebody else has begun it."""
        log = self._log(OFFSETS, writable=True)
        stream = self._jvm.java.io.ByteArrayInputStream(bytearray(entry.text.encode()))
        return bool(log.add(batch_id, log.deserialize(stream)))

    def oldest_offsets(self) -> Offsets:
        """End offsets of the oldest batch the log still has."""
        kept = self._batches(OFFSETS)
        return (self.offsets(kept[0]) if kept else None) or {}

    def first_offsets(self, sources: int) -> Offsets:
        """Where the first batch began, as the Kafka source recorded it."""
        found: Offsets = {}
        for i in range(sources):
            text = self._read("sources", str(i), "0") or ""
            start = text.find("{")
            if start >= 0:
                found.update({t: {int(p): int(o) for p, o in ps.items()} for t, ps in json.loads(text[start:]).items()})
        return found

    # -- files

    def exists(self, *parts: str) -> bool:
        return bool(self._fs.exists(self._child(*parts)))

    def files(self, *parts: str) -> dict[str, int]:
        """Names of the files and folders below one, with their sizes; nothing where it does not exist."""
        return {f.getPath().getName(): int(f.getLen()) for f in self._listed(*parts)}

    def folders(self, *parts: str) -> list[str]:
        """Names of the folders below one."""
        return [f.getPath().getName() for f in self._listed(*parts) if f.isDirectory()]

    def _listed(self, *parts: str) -> list[Any]:
        folder = self._child(*parts)
        return list(self._fs.listStatus(folder)) if self._fs.exists(folder) else []

    def remove(self, *parts: str) -> None:
        """The checkpoint with all that is in it, or one folder of it."""
        self._fs.delete(self._child(*parts) if parts else self._path(self.location), True)

    def copy_to(self, location: str, *parts: str) -> None:
        """One file or folder of it to the same place below another location. What is there already is overwritten."""
        target = self._path("/".join((location, *parts)))
        self._fs.mkdirs(target.getParent())
        self._jvm.org.apache.hadoop.fs.FileUtil.copy(self._fs, self._child(*parts), self._fs, target, False, True, self._conf)

    def read_text(self, name: str) -> str | None:
        """What `write_text` wrote; a writer that was killed half-way has left the new text under its other name."""
        return self._read(name) or self._read(f".{name}.new") or None

    def write_text(self, name: str, text: str) -> None:
        """A small text beside the logs, written under another name first and then moved."""
        temporary, final = self._child(f".{name}.new"), self._child(name)
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.delete(final, False)
        self._fs.rename(temporary, final)


def writers_in(text: str | None) -> int | None:
    """How many writers a note about them names; None for those that do not depend on buckets.

    >>> writers_in("state partition, 8 of them"), writers_in("source partition"), writers_in(None)
    (8, None, None)
    """
    found = re.search(r", (\d+) of them$", text or "")
    return int(found[1]) if found else None


def refuse_lost(checkpoint: Checkpoint, pipeline: str, operator: str, reported: int | None) -> None:
    """A checkpoint that was removed, or put back from an older copy, would begin again under batch ids that were used before,
    and what the sinks have under those ids they take for the same rows."""
    planned = checkpoint.last_planned()
    if reported is not None and planned < reported:
        found = f"ends at batch {planned}" if planned >= 0 else "is empty"
        raise RuntimeError(
            f"the checkpoint of operator {operator} at {checkpoint.location} {found}, but batch {reported} was reported from it; "
            f"put the checkpoint back, or begin anew with `spillway reset {pipeline} {operator}`"
        )
