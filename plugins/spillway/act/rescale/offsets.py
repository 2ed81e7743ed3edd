"""Offsets of batches in a row: does each begin where the one before it ended? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What a row of batches shows, partition by partition."""

    joints: tuple[dict[str, Any], ...] = ()
    """Where two batches meet: what lies between them (`gap`), and what both have read (`overlap`)."""
    unknown: int = 0
    """Places where a batch between the two was not reported, so that nothing can be said."""

    @property
    def broken(self) -> bool:
        return any(j["gap"] or j["overlap"] for j in self.joints)


def chain(rows: Iterable[Mapping[str, Any]], *, from_checkpoint: int | None = None) -> Chain:
    """Rows of `partition_metric` in the order of their batches, oldest first.

    `from_checkpoint`: the batches of this one came before those of another one, whose first batches only repeat, muted, what the
    old one has written; they are left out until they get beyond it.

    >>> rows = [dict(edge="a", partition=0, checkpoint=1, batch_id=b, start_offset=s, end_offset=e) for b, s, e in
    ...         ((7, 0, 10), (8, 10, 25), (9, 24, 30))]
    >>> [(j["batch_id"], j["gap"], j["overlap"]) for j in chain(rows).joints]
    [(8, 0, 0), (9, 0, 1)]
    """
    ends: dict[tuple[str, int], tuple[int, int, int]] = {}
    joints: list[dict[str, Any]] = []
    unknown = 0
    for row in rows:
        key = row["edge"], row["partition"]
        start, end, checkpoint, batch = row["start_offset"], row["end_offset"], row["checkpoint"], row["batch_id"]
        before = ends.get(key)
        other = before is not None and before[1] != checkpoint
        if other and before is not None and from_checkpoint == before[1] and end <= before[0]:
            continue  # muted
        ends[key] = end, checkpoint, batch
        if before is None or start is None:
            continue
        between = start - before[0]
        if between > 0 and not other and batch > before[2] + 1:
            unknown += 1
            continue
        subject = f"{row['edge']}[{row['partition']}]"
        joints.append({"subject": subject, "batch_id": batch, "gap": max(between, 0), "overlap": max(-between, 0)})
    return Chain(joints=tuple(joints), unknown=unknown)
