"""What a gate says, per pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = "quality_unknown"
"""The rule that failed when a gate could not be evaluated at all: then nothing is known, and nothing passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    suite: str
    rule: str
    meaning: str
    """The rule in words."""
    evidence: dict[str, Any]
    """The rows that break it."""

    def __str__(self) -> str:
        found = self.evidence.get("rows") or [self.evidence]
        rows = ", ".join(_row(r) for r in found[:3])
        more = self.evidence.get("count", len(found)) - 3
        return f"{self.rule}: {self.meaning} ({rows}{f' and {more} more' if more > 0 else ''})"


def _row(row: Mapping[str, Any]) -> str:
    rest = " ".join(f"{k} {v}" for k, v in row.items() if k != "subject")
    return f"{row['subject']}: {rest}" if "subject" in row else rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    gate: str
    """`observation` or `decision`."""
    rules: int
    """How many rules were evaluated."""
    failures: Mapping[str, tuple[Failure, ...]] = field(default_factory=dict)
    """By pipeline; one that is not named passed."""

    def passed(self, pipeline: str) -> bool:
        return not self.failures.get(pipeline)
