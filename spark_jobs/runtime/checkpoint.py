"""Reads a checkpoint through Hadoop's file system, so that it may lie on any store Spark can use."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self._jvm, self.location = jvm, location
        self._path = jvm.org.apache.hadoop.fs.Path
        conf = spark._jsc.hadoopConfiguration()
        self._fs = self._path(location).getFileSystem(conf)

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

    def _batches(self, log: str) -> list[int]:
        folder = self._child(log)
        if not self._fs.exists(folder):
            return []
        return sorted(int(f.getPath().getName()) for f in self._fs.listStatus(folder) if f.getPath().getName().isdigit())

    def last_commit(self) -> int:
        """The newest committed batch, -1 if there is none."""
        return max(self._batches("commits"), default=-1)

    def committed(self) -> list[int]:
        """The committed batches that the log still has, oldest first."""
        return self._batches("commits")

    def committed_at(self, batch_id: int) -> datetime:
        millis = self._fs.getFileStatus(self._child("commits", str(batch_id))).getModificationTime()
        return datetime.fromtimestamp(millis / 1000, UTC)

    def last_planned(self) -> int:
        """The newest batch that was begun, -1 if there is none."""
        return max(self._batches("offsets"), default=-1)

    def offsets(self, batch_id: int) -> dict[str, dict[int, int]] | None:
        """End offsets of a batch, by topic and partition; None when the log no longer has it."""
        text = self._read("offsets", str(batch_id))
        if text is None:
            return None
        found: dict[str, dict[int, int]] = {}
        for line in text.splitlines()[2:]:
            if line.startswith("{"):
                found.update({t: {int(p): int(o) for p, o in ps.items()} for t, ps in json.loads(line).items()})
        return found

    def oldest_offsets(self) -> dict[str, dict[int, int]]:
        """End offsets of the oldest batch the log still has."""
        kept = self._batches("offsets")
        return (self.offsets(kept[0]) if kept else None) or {}

    def first_offsets(self, sources: int) -> dict[str, dict[int, int]]:
        """Where the first batch began, as the Kafka source recorded it."""
        found: dict[str, dict[int, int]] = {}
        for i in range(sources):
            text = self._read("sources", str(i), "0") or ""
            start = text.find("{")
            if start >= 0:
                found.update({t: {int(p): int(o) for p, o in ps.items()} for t, ps in json.loads(text[start:]).items()})
        return found

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
