"""One closed window of one pipeline as a flow network was measured in it: rows as they are, also wrong ones, for gates to judge.

None is "not measured". Rates are rows per second. Rows count where they cost: behind the shedder of the edge they came by, so
that a flow and the capacity it is compared with are the same kind of rows, and `arrival` alone says what was offered.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from spillway.model.capacity import Busy
from spillway.model.window import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFlow:
    operator: str
    application: str
    declared: int
    """Executors it should have."""
    measured: int
    finished: int
    """Batches that ended in the window."""
    batches: tuple[Busy, ...] = ()
    """Those of them that tell what it can do: hot, and with rows that were kept."""
    busy_share: float | None = None
    """Of the time in which the rows of its batches were taken."""
    overlap_s: float = 0.0
    """For so long two of its batches ran at once, which one query never does."""
    selectivity: float | None = None
    """Rows it put out for each row it kept."""
    skew: float | None = None
    """Of a keyed one: share of the fullest partition of its input, times their number."""
    uneven: float | None = None
    """Share of the rows that its busiest instance had, times the number of instances."""
    state_rows: int | None = None
    state_bytes: int | None = None
    ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFlow:
    edge: str
    producer: str | None
    topic: str
    consumer: str
    flow: float | None = None
    """What its consumer took of it and kept."""
    keep: float = 1.0
    """Share of what was read that stayed, over the window."""
    arrival: float | None = None
    """What was written to it."""
    backlog: float | None = None
    """Rows that were left by the last batch."""
    partitions: tuple[float, ...] = ()
    """The same by partition, in their order."""
    latency_ms: float | None = None
    latency_constraint_ms: float
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFlow:
    operator: str
    executor: str
    node: str
    rows: float | None = None
    """That its tasks read, as far as its driver told."""
    ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWindow:
    interval: Interval
    pipeline: str
    operators: tuple[OperatorFlow, ...]
    edges: tuple[EdgeFlow, ...]
    instances: tuple[InstanceFlow, ...] = ()

    def operator(self, name: str) -> OperatorFlow:
        return next(o for o in self.operators if o.operator == name)

    def unshared(self) -> list[str]:
        """Operators that feed others and have not shown yet what they make of their rows."""
        producers = {e.producer for e in self.edges}
        return [o.operator for o in self.operators if o.operator in producers and o.selectivity is None]

    def part(self) -> dict[str, Any]:
        """For the record."""
        return {
            "operators": [asdict(o) for o in self.operators],
            "edges": [asdict(e) for e in self.edges],
            "instances": [asdict(i) for i in self.instances],
        }
