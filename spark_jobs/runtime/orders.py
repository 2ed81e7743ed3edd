"""What a driver is told, and what it says it really runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_jobs.runtime.checkpoint import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOrder:
    """How an operator should be run. A raised incarnation has its query stopped at a committed batch and started again, with the
    buckets that are given then."""

    checkpoint: int
    buckets: int
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How an application should be run."""

    generation: int
    desired: str
    executors: int
    operators: Mapping[str, OperatorOrder] = field(default_factory=dict)

    @classmethod
    def from_row(cls, generation: int, desired: str, executors: int, operators: dict[str, dict[str, int]]) -> Orders:
        told = {name: OperatorOrder(**order) for name, order in operators.items()}
        return cls(generation=generation, desired=desired, executors=executors, operators=told)

    def end(self, generation: int) -> str | None:
        """Why the driver of `generation` should stop, if it should.

        >>> Orders(generation=4, desired="running", executors=2).end(3)
        'fenced: generation 4 exists, this is 3'
        """
        if self.generation > generation:
            return f"fenced: generation {self.generation} exists, this is {generation}"
        return "asked to stop" if self.desired == "stopped" else None


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    REPARTITIONING = "repartitioning"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What a driver really runs of an operator; a row of `operator_actual`."""

    operator: str
    checkpoint: int
    buckets: int
    incarnation: int
    phase: Phase
    batch_id: int | None = None
    """The newest committed batch."""
    offsets: Offsets = field(default_factory=dict)
    """Where it ended."""
    stopped_batch: int | None = None
    """Where the query last came to rest."""
    stopped_at: datetime | None = None
    started_at: datetime | None = None
    detail: str = ""

    @property
    def run(self) -> tuple[object, ...]:
        """What is run, whatever it has got to."""
        return self.checkpoint, self.buckets, self.incarnation, self.phase, self.stopped_at, self.started_at, self.detail

    def parameters(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "checkpoint": self.checkpoint,
            "buckets": self.buckets,
            "incarnation": self.incarnation,
            "phase": self.phase.value,
            "batch_id": self.batch_id,
            "offsets": json.dumps(self.offsets),
            "stopped_batch": self.stopped_batch,
            "stopped_at": self.stopped_at,
            "started_at": self.started_at,
            "detail": self.detail.replace("\0", "")[:500],
        }
