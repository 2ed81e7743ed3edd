"""Capacity and bottleneck: what is measured of a pipeline as a flow network, and what is found in it.

Rates are rows per second on the edge they belong to; what is found is in rows at the source under study per second. None is "not
known" and never zero. `CapacityWorld.from_json` reads and checks the interchange of `spillway decide capacity`; values made in
Python are taken as they are, `check` finds what is wrong with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spillway.model.qod import edge_name

ALL_ROWS = 1.0
"""Selectivity of an edge that does not say it."""


class Estimator(StrEnum):
    """Where a capacity came from."""

    GIVEN = "given"
    USEFUL_RATE = "useful_rate"
    """Rows over the time in which they were worked on."""
    BANDWIDTH = "bandwidth"
    """The initial capacity of the paper, from what the network leaves for data."""
    FEEDBACK = "feedback"
    """One of the others, regulated by measured latency."""
    NONE = "none"
    """Nothing says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Rows, and the seconds spent on nothing but them: one batch of an operator, or one of its instances."""

    rows: float
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOperator:
    name: str
    parallelism: int
    capacity: float | None = None
    """Rows per second that all its instances together take from all its inputs together."""
    confidence: float | None = None
    """Of `capacity`, 0 … 1: by what share of it the truth may be off, taken from 1."""
    batches: tuple[Busy, ...] = ()
    """Of the whole operator. Uneven instances make its batches longer, so what is measured with them has the skew in it."""
    instances: tuple[Busy, ...] = ()
    """One each."""
    skew: float | None = None
    """Of a keyed operator: share of its rows that its fullest bucket gets, times the number of buckets. None: balanced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """What (9) and (10) need, in bytes and bytes per second."""

    link: float
    system: float
    heartbeat: float
    checkpoint: float
    others: float
    row_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEdge:
    producer: str | None
    """None: the rows come from the external `topic`, a source."""
    topic: str | None
    consumer: str
    flow: float | None = None
    """Rows per second that the consumer takes from it."""
    capacity: float | None = None
    """Rows per second that it could take from it, were there no other inputs."""
    confidence: float | None = None
    backlog: float | None = None
    """Rows that wait."""
    partitions: tuple[float, ...] = ()
    """The same by partition of the topic; empty: not known."""
    selectivity: float | None = None
    """Rows on it ÷ rows into its producer (rows at the source, of an external topic); None means 1."""
    arrival: float | None = None
    """Rows per second that are written to it."""
    links: tuple[float, ...] = ()
    """Capacity into each instance of the consumer, where each has one of its own."""
    bandwidth: Bandwidth | None = None
    latency_ms: float | None = None
    latency_constraint_ms: float | None = None
    carried: float | None = None
    """The largest flow that was lately carried within the constraint."""

    @property
    def name(self) -> str:
        return edge_name(self.producer, self.topic, self.consumer)

    @property
    def share(self) -> float:
        return ALL_ROWS if self.selectivity is None else self.selectivity


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityWorld:
    """A pipeline as it was measured in one closed window."""

    operators: tuple[FlowOperator, ...]
    edges: tuple[FlowEdge, ...]

    @classmethod
    def from_json(cls, text: str | bytes | dict[str, Any]) -> CapacityWorld:
        """Reads the interchange that docs/algorithms.md shows; raises ObservationError with one sentence."""
        from spillway.model.capacity_json import read

        return read(text)

    def check(self) -> None:
        """Raises ObservationError at the first thing no world may have: a cycle, an unknown operator, a negative number."""
        from spillway.model.capacity_check import check

        check(self)

    def to_json(self) -> str:
        from spillway.model.capacity_json import world_dict

        return json.dumps(world_dict(self), separators=(",", ":"), allow_nan=False)


class Verdict(StrEnum):
    """What is to be done about the source under study, for programs; `CapacityFinding.reason` says it to people."""

    BOTTLENECK = "bottleneck"
    """No optimisation path is left: more rows at the source would only wait somewhere."""
    DISPATCH = "dispatch"
    """Rows wait and there is room for them: admit more."""
    KEEPS_UP = "keeps_up"
    """There is room, and nothing waits for it."""
    NOT_KNOWN = "not_known"
    """Something that is needed was not measured."""
    NO_SOURCE = "no_source"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPath:
    """An optimisation path, and by how much admission at its source can be raised."""

    path: tuple[str, ...]
    """The topic, then operators down to one with nothing below it."""
    value: float


class Fork(StrEnum):
    """What an operator with several edges does to its rows, as far as their shares can tell."""

    COPY = "copy"
    """More rows leave than come in: branches get the same ones."""
    SPLIT = "split"
    """Every row goes to one branch."""
    FILTER = "filter"
    """Fewer leave than come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLimit:
    """What an operator alone would let through."""

    operator: str
    parallelism: int
    capacity: float | None
    """Rows per second into it."""
    flow: float | None
    """Rows per second that it takes at present."""
    estimator: Estimator
    confidence: float
    gain: float
    """Rows into it for each row at the source under study."""
    limit: float | None
    """The largest rate of the source under study that it can follow, the other sources as they are; None: any, or not known."""
    fork: Fork | None
    """None: it has no two edges below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCapacity:
    """As it was estimated; the next evaluation goes on from it."""

    producer: str | None
    topic: str | None
    consumer: str
    flow: float | None
    capacity: float | None
    estimator: Estimator
    confidence: float
    backlog: float | None
    carried: float | None

    @property
    def name(self) -> str:
        return edge_name(self.producer, self.topic, self.consumer)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityFinding:
    max_flow: float | None
    """The largest rate of the source under study; None: nothing that is known bounds it."""
    cut_value: float | None
    """The same from the other side: what the cut lets through of this source."""
    cut: tuple[tuple[str, str], ...]
    """Edges of the minimum partition, from X to Y."""
    bottlenecks: tuple[str, ...]
    """The first operators in Y, while no optimisation path is left."""
    potential: tuple[str, ...]
    """The first operators in Y of every partition that is filled up to λ: those of the bottleneck too."""
    drain: tuple[DrainPath, ...]
    verdict: Verdict
    reason: str
    source: str | None = None
    """The topic under study."""
    present: float | None = None
    """Rows per second that are admitted at it."""
    arrival: float | None = None
    """Rows per second that are written to it."""
    operators: tuple[OperatorLimit, ...] = ()
    edges: tuple[EdgeCapacity, ...] = ()
    missing: tuple[str, ...] = ()
    """Fields that were needed and absent, such as `edges.parse:count.capacity`."""
    in_source_units: bool = field(default=True, init=False)

    @property
    def limits(self) -> Mapping[str, OperatorLimit]:
        return {o.operator: o for o in self.operators}

    def as_dict(self) -> dict[str, Any]:
        from spillway.model.capacity_json import finding_dict

        return finding_dict(self)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)
