"""A pipeline as it was declared: operators, edges, applications.

The values here are complete (defaults already filled in) and checked; `spillway.topology` makes them from YAML, Postgres
stores them as JSON (`to_json`), and drivers read them back (`from_json`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Shed(StrEnum):
    """Which events go first when an edge keeps less than everything."""

    RANDOM = "random"
    BY_KEY = "by_key"
    BY_UTILITY = "by_utility"


class Silent(StrEnum):
    """What a job does when a keep has outlived its time to live."""

    HOLD = "hold"
    OPEN = "open"


class Kind(StrEnum):
    """What an operator does with its rows; decides which shedding is right in front of it."""

    STATELESS = "stateless"
    AGGREGATE = "aggregate"
    DEDUP = "dedup"
    JOIN = "join"
    SESSION = "session"


class SinkType(StrEnum):
    KAFKA = "kafka"
    POSTGRES = "postgres"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    start: int = 1
    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The promise of an operator with nothing downstream (the papers' query)."""

    priority: int = 1
    min_accuracy: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the rows of a query go."""

    type: SinkType = SinkType.KAFKA
    topic: str | None = None
    table: str | None = None
    keys: tuple[str, ...] = ()
    delivery: Delivery = Delivery.EXACTLY_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    name: str
    function: str
    """`package.module:function`, a `DataFrame -> DataFrame`."""
    kind: Kind = Kind.STATELESS
    schema: str | None = None
    """DDL of the JSON in `value`; the function then gets parsed columns, and what does not parse is a dead letter.
    None: the function gets Kafka's raw columns."""
    key: str | None = None
    """Output column that becomes the Kafka key."""
    weight: bool = False
    """Give the function a column `weight`: how many source events a row stands for after all shedding above."""
    output_mode: str = "append"
    buckets: int = 8
    parallelism: Parallelism = field(default_factory=Parallelism)
    query: Query | None = None
    output: Output | None = None
    args: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, from the YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    name: str
    """`producer:consumer`, or `topic:consumer` where the producer is outside."""
    topic: str
    producer: str | None
    consumer: str
    partitions: int
    delivery: Delivery = Delivery.EXACTLY_ONCE
    shed: Shed = Shed.RANDOM
    utility: str | None = None
    """With `by_utility`: an SQL number over the columns of the consumer's schema and Kafka's own; the lowest goes first."""
    when_silent: Silent = Silent.HOLD
    starting: str = "earliest"
    shared: bool = False
    """An external topic that other pipelines read as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A Spark application: the operators that share a driver, a node and executors."""

    name: str
    operators: tuple[str, ...]
    node: str | None = None
    executors: int = 1
    slots: int = 1
    """Tasks one executor runs at a time."""
    driver_memory_mb: int = 512
    executor_memory_mb: int = 512
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    description: str = ""
    trigger_s: float = 1.0
    latency_constraint_s: float = 10.0
    batch_target_s: float = 4.0
    """How long a batch may take under overload; the bound on its rows follows from it."""
    lineage: bool = False
    """Carry the source topic, partition and offset of every row along as `lineage`."""
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    applications: tuple[Application, ...]

    def operator(self, name: str) -> Operator:
        return next(o for o in self.operators if o.name == name)

    def application(self, name: str) -> Application:
        return next(a for a in self.applications if a.name == name)

    def inputs(self, operator: str) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.consumer == operator)

    def outputs(self, operator: str) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.producer == operator)

    def carries_weight(self, operator: str) -> bool:
        """Whether an operator further down asks for weights: then the rows of this one say theirs."""
        below, pending = set[str](), [operator]
        while pending:
            consumers = {e.consumer for e in self.outputs(pending.pop())} - below
            below |= consumers
            pending.extend(consumers)
        return any(o.weight for o in self.operators if o.name in below)

    def queries(self) -> tuple[Operator, ...]:
        return tuple(o for o in self.operators if not self.outputs(o.name))

    def dead_letter_topic(self, operator: str) -> str:
        return f"{self.name}.{operator}.dead"

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | dict[str, Any]) -> Pipeline:
        raw = json.loads(text) if isinstance(text, str) else text
        return cls(
            **{k: v for k, v in raw.items() if k not in ("operators", "edges", "applications")},
            operators=tuple(_operator(o) for o in raw["operators"]),
            edges=tuple(_edge(e) for e in raw["edges"]),
            applications=tuple(Application(**{**a, "operators": tuple(a["operators"])}) for a in raw["applications"]),
        )


def _operator(raw: dict[str, Any]) -> Operator:
    output = raw.get("output")
    return Operator(
        **{
            **raw,
            "kind": Kind(raw["kind"]),
            "parallelism": Parallelism(**raw["parallelism"]),
            "query": Query(**raw["query"]) if raw.get("query") else None,
            "output": Output(
                **{
                    **output,
                    "type": SinkType(output["type"]),
                    "delivery": Delivery(output["delivery"]),
                    "keys": tuple(output["keys"]),
                }
            )
            if output
            else None,
        }
    )


def _edge(raw: dict[str, Any]) -> Edge:
    return Edge(
        **{
            **raw,
            "delivery": Delivery(raw["delivery"]),
            "shed": Shed(raw["shed"]),
            "when_silent": Silent(raw["when_silent"]),
        }
    )
