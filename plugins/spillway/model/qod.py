"""Quality of Data: what is observed of nodes, operators and edges in one closed window, and what is decided on it.

None is "not known" and never zero. CPU is in percent of a core (100 = one full core), rates in rows per second, accuracies and
keeps are fractions. `Observation.from_json` reads and checks the interchange of `spillway decide qod`; values made in Python are
taken as they are, `check` finds what is wrong with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DEFAULT_PRIORITY = 1
DEFAULT_FLOOR = 0.0


class ObservationError(ValueError):
    """One sentence: what is wrong with an observation, where, and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    cores: float
    cpu: float | None
    """Used by everything on the machine, summed over its cores: 0 … 100·cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One executor's share of an operator, on one node."""

    node: str
    in_rate: float | None
    """Rows per second behind the shedder."""
    cpu: float | None
    done_rate: float | None = None
    """Rows per second that the CPU was used for, where they are fewer than came in: load rises, and many are still in flight."""
    warming: bool = False
    movable: bool = True
    """False: it stays where it is, for a move was refused or failed lately; floors do not count on one."""
    executor: str | None = None
    """Of instances of several operators that share the cores of one executor; None: it shares them with none."""
    cores: float = 1.0
    """What its executor can use at most: as many tasks run there at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU of one instance: `fixed + per_arrived · rows/s read + per_kept · rows/s kept`, in percent of a core."""

    fixed: float
    per_arrived: float
    per_kept: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSample:
    """One batch of an operator, over the time from its start to the start of the next; a `Cost` is learned from several."""

    arrived: float
    """Rows per second and instance that were read."""
    kept: float
    """Of these, rows per second behind the shedder."""
    cpu: float
    """Percent of a core per instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    name: str
    instances: tuple[Instance, ...]
    priority: int | None = None
    """Of a query (nothing downstream): higher matters more; None means the default of a topology, 1."""
    min_accuracy: float | None = None
    """The floor of a query; None means the default of a topology, 0."""
    may_rise: bool = True
    """False: a query is not raised, but to its floor, for a change of what runs on the way to it is being prepared."""
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    producer: str | None
    """None: the rows come from the external `topic`."""
    topic: str | None
    consumer: str
    out_rate: float | None
    """Rows per second before the shedder; of an external topic, what producers write to it."""
    keep: float | None = 1.0
    """In force at present; what `previous` says of it counts more."""
    lag: float | None = None
    """Rows that wait in the topic."""

    @property
    def name(self) -> str:
        return edge_name(self.producer, self.topic, self.consumer)


def edge_name(producer: str | None, topic: str | None, consumer: str) -> str:
    """`producer:consumer`, or `topic:consumer` where the producer is outside."""
    return f"{producer if producer is not None else topic}:{consumer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """What damping remembers from the decision before: `Decision.remember`, handed back unchanged."""

    keeps: Mapping[str, float] = field(default_factory=dict)
    """The keep last published, by name of the edge."""
    raise_ready: Mapping[str, int] = field(default_factory=dict)
    """For how many cycles in a row a higher accuracy was possible, by name of the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A closed window: aligned ends, only batches that finished inside, and None for what is missing."""

    nodes: tuple[Node, ...]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    previous: Previous | None = None
    age_s: float | None = None
    """Age of the oldest metric the decision needs."""
    cycle_s: float | None = None
    now: str | None = None
    """End of the window, ISO 8601."""

    @classmethod
    def from_json(cls, text: str | bytes | dict[str, Any]) -> Observation:
        """Reads the interchange that docs/algorithms.md shows; raises ObservationError with one sentence."""
        from spillway.model.qod_json import read

        return read(text)

    def check(self) -> None:
        """Raises ObservationError at the first thing no observation may have: a cycle, an undeclared node, a negative rate."""
        from spillway.model.qod_check import check

        check(self)

    def to_json(self) -> str:
        from spillway.model.qod_json import observation_dict

        return json.dumps(observation_dict(self), separators=(",", ":"), allow_nan=False)


class Reason(StrEnum):
    """Why an edge keeps what it keeps, for programs; `EdgeKeep.reason` says it to people."""

    NOTHING_TO_SHED = "nothing_to_shed"
    SHED_EARLIER = "shed_earlier"
    """This edge hands on all that arrives; what has to go was dropped above it."""
    CPU_BOUND = "cpu_bound"
    CORE_BOUND = "core_bound"
    """An executor cannot use more cores than it has; mostly one."""
    AT_FLOOR = "at_floor"
    WARMING = "warming"
    BELOW_FLOOR = "below_floor"
    WITHIN_TOLERANCE = "within_tolerance"
    ON_THE_WAY = "on_the_way"
    """Rows that were shed above by the keeps before are not to fall below the floor."""
    RAISE_WAITS = "raise_waits"
    RAISE_LIMITED = "raise_limited"
    LAG_UNKNOWN = "lag_unknown"
    KEEP_UNKNOWN = "keep_unknown"
    METRICS_STALE = "metrics_stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeKeep:
    producer: str | None
    topic: str | None
    consumer: str
    keep: float
    """In force once this decision is."""
    published: bool
    """False: this is the keep that is in force already."""
    code: Reason
    reason: str
    expected_accuracy: float
    """Share of the source events that reach the consumer through this edge."""

    @property
    def name(self) -> str:
        return edge_name(self.producer, self.topic, self.consumer)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    desired: float
    """The accuracy that the keeps of this decision deliver."""
    floor: float
    priority: int
    possible: float | None = None
    """The accuracy the CPU allows, before damping; None when the decision is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    operator: str
    instance: int
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """The floors cannot all be met."""

    queries: tuple[str, ...]
    """Those below their floor, highest priority first."""
    cores_needed: float | None
    """The smallest addition of cores that would fix it, with the instances below; None when that cannot be known."""
    at: Mapping[str, float] = field(default_factory=dict)
    """Where: cores by node. What `cores_needed` has beyond that is for further instances, on whichever node."""
    instances_needed: Mapping[str, int] = field(default_factory=dict)
    """By operator: so many more, because those there are would need more cores than their executors have."""


def shortage(infeasible: Mapping[str, Any]) -> str:
    """What is missing, in words, from the interchange of an `Infeasible`.

    >>> shortage({"cores_needed": 0.6})
    '0.6 cores are missing'
    >>> shortage({"cores_needed": 1.25, "instances_needed": {"heavy": 1}})
    '1.2 cores and 1 more of heavy are missing'
    >>> shortage({"cores_needed": None})
    'how many cores are missing is not known'
    """
    cores = infeasible["cores_needed"]
    if cores is None:
        return "how many cores are missing is not known"
    instances = [f"{count} more of {name}" for name, count in infeasible.get("instances_needed", {}).items()]
    words = [*([f"{cores:.2g} cores"] if cores or not instances else []), *instances]
    return f"{' and '.join(words)} are missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the world should look like once the decision is in force; `verify` compares."""

    accuracy: Mapping[str, float] = field(default_factory=dict)
    """By operator."""
    cpu: Mapping[str, float] = field(default_factory=dict)
    """By node, everything on the machine; only nodes whose CPU is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    feasible: bool
    edges: tuple[EdgeKeep, ...]
    queries: Mapping[str, QueryState]
    moves: tuple[Move, ...] = ()
    missing: tuple[str, ...] = ()
    """Fields of the observation that were needed and absent, such as `operators.bill.instances[0].cpu`."""
    infeasible: Infeasible | None = None
    held: str | None = None
    """`METRICS_STALE`: nothing was decided, the last decision stays."""
    remember: Previous = field(default_factory=Previous)
    expected: Expected = field(default_factory=Expected)

    def keep(self, edge: str) -> float:
        return next(e.keep for e in self.edges if e.name == edge)

    def as_dict(self) -> dict[str, Any]:
        from spillway.model.qod_json import decision_dict

        return decision_dict(self)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)
