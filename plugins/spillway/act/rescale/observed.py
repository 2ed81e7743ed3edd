"""How long a change was felt, from the batches around it. Pure.

A pause is the longest time between two committed batches that brought new rows; a batch that is repeated brings none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

FEW = 3
"""Gaps that are enough to call their median the steady one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    begun: datetime
    """The plan began to do something; what was before is the steady state."""
    changed: datetime
    """What runs was told to change."""
    settled: datetime
    """The first batches afterwards were healthy."""


def observed(batches: Iterable[Mapping[str, Any]], times: Times) -> dict[str, float | None]:
    """`pause_s` across the change, `steady_s` before the plan, `beside_s` the longest gap while something rehearsed, and the rate
    of the batches since the change; None where there are too few batches to tell.

    `batches`: rows of `rescale_batches`, in the order they ended."""
    new = _with_new_rows(batches)
    ends = [b["ended_at"] for b in new]
    gaps = [(a, b, (b - a).total_seconds()) for a, b in pairwise(ends)]
    steady = [length for _, end, length in gaps if end <= times.begun]
    beside = [length for _, end, length in gaps if times.begun < end <= times.changed]
    across = [length for start, end, length in gaps if end > times.changed and start < times.settled]
    after = [b for b in new if b["ended_at"] > times.changed]
    spent = (after[-1]["ended_at"] - after[0]["ended_at"]).total_seconds() if len(after) > 1 else 0.0
    return {
        "pause_s": _rounded(max(across)) if across else None,
        "steady_s": _rounded(median(steady)) if len(steady) >= FEW else None,
        "beside_s": _rounded(max(beside)) if beside else None,
        "rows_per_s": round(sum(b["input_rows"] for b in after[1:]) / spent, 1) if spent > 0 else None,
    }


def _with_new_rows(batches: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that read further than any before them; where offsets are not known, those with rows."""
    found, furthest = [], -1
    for batch in batches:
        read_to = batch["read_to"]
        if batch["input_rows"] > 0 and (read_to is None or read_to > furthest):
            found.append(batch)
        furthest = max(furthest, -1 if read_to is None else read_to)
    return found


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
