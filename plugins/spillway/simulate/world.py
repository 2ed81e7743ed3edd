"""What is simulated. Durations in seconds, work in CPU seconds, CPU in percent of a core."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from spillway.inject.profiles import Profile


class WorldError(ValueError):
    """A world that cannot be simulated: one sentence with the name that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinNode:
    name: str
    cores: float
    background: float = 0.0
    """CPU that others on the machine take: drivers, the broker, the agent."""
    from_s: float = 0.0
    """When the node joins the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a batch of an operator costs."""

    fixed_s: float = 0.15
    """CPU of the instances for a batch without rows."""
    driver_s: float = 0.15
    """CPU of the driver per batch, before the instances begin; on the node of the first one, and part of no instance's CPU."""
    wait_s: float = 0.15
    """Time of a batch in which nothing computes: the broker's and the store's answers."""
    per_arrived_s: float = 0.0
    """CPU per row read, whether it is kept or not."""
    per_kept_s: float = 0.0
    """CPU per row that passes the shedder."""
    output: float = 1.0
    """Rows written per row kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinOperator:
    name: str
    nodes: tuple[str, ...]
    """One per instance."""
    costs: Costs = field(default_factory=Costs)
    slots: float = 1.0
    """Cores one instance can use."""
    trigger_s: float = 2.0
    target_s: float = 4.0
    """How long a batch may take under overload."""
    priority: int | None = None
    min_accuracy: float | None = None
    from_s: float = 0.0
    to_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinEdge:
    topic: str | None = None
    producer: str | None = None
    consumer: str

    @property
    def name(self) -> str:
        return f"{self.producer if self.producer is not None else self.topic}:{self.consumer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The events of one external topic: a profile times a factor."""

    topic: str
    rate: Profile
    times: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """How the twin behaves where the world's files say nothing. Assumptions, chosen like what two cores do; see docs/twin.md."""

    step_s: float = 0.1
    """Length of a simulated step. Batches that follow each other closer than this lose the rest of a step."""
    delay_s: float = 3.0
    """From the end of a window to the moment drivers know what was decided on it."""
    down_s: float = 30.0
    """How long an instance is away while it moves: its application is stopped, and one with new JVMs starts elsewhere."""
    cold_s: float = 20.0
    """How long an instance that started or moved is slower than usual."""
    cold_factor: float = 2.0
    """How many times the usual work costs at the very beginning; falls to 1 over `cold_s`."""
    cpu_noise: float = 0.01
    """Relative standard deviation of a measured CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    nodes: tuple[TwinNode, ...]
    operators: tuple[TwinOperator, ...]
    edges: tuple[TwinEdge, ...]
    loads: tuple[Load, ...]
    physics: Physics = field(default_factory=Physics)

    def __post_init__(self) -> None:
        for what, found in (
            ("node", [n.name for n in self.nodes]),
            ("operator", [o.name for o in self.operators]),
            ("edge", [e.name for e in self.edges]),
            ("topic", [load.topic for load in self.loads]),
        ):
            if twice := sorted({name for name in found if found.count(name) > 1}) if len(set(found)) < len(found) else []:
                raise WorldError(f"the {what} {twice[0]} is there twice: give each {what} a name of its own")
        self._check_references()

    def _check_references(self) -> None:
        nodes = {n.name for n in self.nodes}
        operators = {o.name for o in self.operators}
        topics = {load.topic for load in self.loads}
        for operator in self.operators:
            if not operator.nodes:
                raise WorldError(f"operator {operator.name} has no instance: give it at least one node")
            for node in operator.nodes:
                if node not in nodes:
                    raise WorldError(f"operator {operator.name} is placed on {node}, which is no node of this world")
        for edge in self.edges:
            if (edge.producer is None) == (edge.topic is None):
                raise WorldError(f"the edge into {edge.consumer} needs either a topic or a producer")
            if edge.consumer not in operators or edge.producer not in (None, *operators):
                raise WorldError(f"edge {edge.name} joins an operator that is not in this world")
            if edge.producer is None and edge.topic not in topics:
                raise WorldError(f"nothing is sent to topic {edge.topic}, which edge {edge.name} reads: give the topic a rate")
        consumers = {edge.consumer for edge in self.edges}
        for operator in self.operators:
            if operator.name not in consumers:
                raise WorldError(f"operator {operator.name} reads nothing: give it an edge")
