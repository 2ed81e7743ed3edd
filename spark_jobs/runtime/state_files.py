"""Which files hold the state of a bucket at one version, as Spark's RocksDB provider lays them down.

A version is the newest snapshot up to it (`<version>.zip`, which names the immutable files it needs of `SSTs/`) and every change
since (`<version>.changelog`). Batch n leaves version n + 1.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.runtime.checkpoint import Checkpoint

STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """One store of one bucket. `files`: path below the store's folder → bytes."""

    folder: tuple[str, ...]
    """Below the checkpoint: state, operator, bucket and, where an operator has several, the store."""
    bucket: int
    version: int
    files: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


class StateIncomplete(RuntimeError):
    """The files of a version are not all there."""


def needed(names: Mapping[str, int], version: int) -> tuple[str | None, list[str]]:
    """The snapshot to begin with, None for an empty store, and the changelogs to apply to it, in order.

    >>> needed({"3.zip": 9, "3.changelog": 1, "4.changelog": 1, "5.changelog": 1, "6.zip": 9, "SSTs": 0}, 5)
    ('3.zip', ['4.changelog', '5.changelog'])
    """
    snapshots = [v for v in (_version(name, ".zip") for name in names) if v is not None and v <= version]
    base = max(snapshots, default=0)
    return (f"{base}.zip" if snapshots else None), [f"{v}.changelog" for v in range(base + 1, version + 1)]


def _version(name: str, ending: str) -> int | None:
    number = name.removesuffix(ending)
    return int(number) if name.endswith(ending) and number.isdigit() else None


def state_of(checkpoint: Checkpoint, batch_id: int) -> list[BucketFiles]:
    """The files that hold the state a batch left, bucket by bucket; none for a query without state."""
    found: list[BucketFiles] = []
    buckets = checkpoint.buckets(batch_id) or 0
    for operator in sorted(name for name in checkpoint.files(STATE) if name.isdigit()):
        for bucket in range(buckets):
            folder = (STATE, operator, str(bucket))
            stores = _stores(checkpoint, folder)
            found += [_files(checkpoint, (*folder, *store), bucket, batch_id + 1) for store in stores]
    return found


def snapshots(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Of every store that has some, by its folder below the checkpoint."""
    found: dict[str, list[str]] = {}
    for operator in sorted(name for name in checkpoint.folders(STATE) if name.isdigit()):
        for bucket in sorted(name for name in checkpoint.folders(STATE, operator) if name.isdigit()):
            for store in _stores(checkpoint, (STATE, operator, bucket)):
                folder = (STATE, operator, bucket, *store)
                names = sorted(name for name in checkpoint.files(*folder) if _version(name, ".zip") is not None)
                found |= {"/".join(folder): names} if names else {}
    return found


def _stores(checkpoint: Checkpoint, folder: tuple[str, ...]) -> list[tuple[str, ...]]:
    """An operator with one store has its files in the bucket's own folder."""
    names = checkpoint.files(*folder)
    if any(name.endswith((".zip", ".changelog")) for name in names):
        return [()]
    return [(name,) for name in sorted(names) if name not in ("SSTs", "logs") and not name.startswith((".", "_"))]


def _files(checkpoint: Checkpoint, folder: tuple[str, ...], bucket: int, version: int) -> BucketFiles:
    there = checkpoint.files(*folder)
    snapshot, changelogs = needed(there, version)
    files = {}
    if snapshot is not None:
        files[snapshot] = there[snapshot]
        files |= {f"SSTs/{name}": size for name, size in _immutable(checkpoint.read_bytes(*folder, snapshot)).items()}
    for name in changelogs:
        if name not in there:
            raise StateIncomplete(f"{'/'.join((checkpoint.location, *folder))} has no {name}, which version {version} needs")
        files[name] = there[name]
    return BucketFiles(folder=folder, bucket=bucket, version=version, files=files)


def _immutable(snapshot: bytes) -> dict[str, int]:
    with zipfile.ZipFile(io.BytesIO(snapshot)) as archive:
        _, text = archive.read("metadata").decode().split("\n", 1)
    listed = json.loads(text)
    return {f["dfsSstFileName"]: int(f["sizeBytes"]) for f in listed.get("sstFiles", [])}
