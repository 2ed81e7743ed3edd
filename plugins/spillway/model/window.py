"""One closed window as it was measured: rows as they are, also wrong ones. Gates judge them; the good ones make an Observation.

None is "not measured". Rows carry how old their newest measurement is at the end of the window, and how far the clock of whoever
measured runs ahead of the store's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from spillway.model.topology import Pipeline

BEYOND_CORES = 5.0
"""CPU, in percent of a core, that may be measured beyond the cores there are: two clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    node: str
    cores: int
    cpu: float | None
    age_s: float
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    pipeline: str
    operator: str
    executor: str
    node: str
    in_rate: float | None
    cpu: float | None
    warming: bool
    age_s: float
    ahead_s: float
    done_rate: float | None = None
    """Rows per second that the CPU was used for, where they are clearly fewer than came in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    pipeline: str
    operator: str
    application: str
    declared: int
    """Instances it should have."""
    measured: int
    warming: bool
    share: float | None
    """Rows that got in per row that arrived, over its inputs together."""
    out_rate: float | None
    batches: int
    """That finished in the window."""
    age_s: float | None
    """Of its last batch; None when it has run none."""
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow:
    pipeline: str
    edge: str
    producer: str | None
    topic: str
    consumer: str
    out_rate: float | None
    share: float | None
    keep: float
    decision_id: int | None
    lag: int | None
    age_s: float | None
    ahead_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A pipeline as it should have been at the end of the window."""

    pipeline: Pipeline
    version: int
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    interval: Interval
    declared: dict[str, Declared]
    nodes: tuple[NodeRow, ...]
    instances: tuple[InstanceRow, ...]
    operators: tuple[OperatorRow, ...]
    edges: tuple[EdgeRow, ...]
    unmoved: frozenset[tuple[str, str]] = frozenset()
    """Pipeline and application: a move was refused or failed lately, or a plan rescales it."""
    preparing: frozenset[tuple[str, str]] = frozenset()
    """Pipeline and application: a plan prepares a change beside what runs, and takes CPU for that now and then."""
    changing: frozenset[tuple[str, str]] = frozenset()
    """Pipeline and application: a plan changed what runs in this window, whose pause distorts what was measured."""
    settling: frozenset[tuple[str, str]] = frozenset()
    """Pipeline and application: such a change is not long ago, and what waits is left from its pause."""
    enlarged: frozenset[tuple[str, str]] = frozenset()
    """Pipeline and application: this is the first window after a plan gave it more executors."""

    def rescaled(self, pipeline: str) -> list[str]:
        """Applications that were being rescaled: until they have been, what is in force stays."""
        return sorted(a for p, a in self.changing if p == pipeline)

    def starting(self, pipeline: str) -> list[str]:
        """Applications that have not come up yet: nothing can be said of the pipeline before they have."""
        return sorted({o.application for o in self.operators if o.pipeline == pipeline and o.warming and not o.measured})

    def nodes_of(self, pipeline: str) -> set[str]:
        return {i.node for i in self.instances if i.pipeline == pipeline}

    def part(self, pipeline: str) -> dict[str, Any]:
        """The rows of one pipeline and of its nodes, for the record."""
        on = self.nodes_of(pipeline)
        return {
            "nodes": [asdict(n) for n in self.nodes if n.node in on],
            "instances": [asdict(i) for i in self.instances if i.pipeline == pipeline],
            "operators": [asdict(o) for o in self.operators if o.pipeline == pipeline],
            "edges": [asdict(e) for e in self.edges if e.pipeline == pipeline],
        }
