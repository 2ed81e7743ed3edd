"""Rescale: what is known of the operators of one pipeline when their parallelism is decided, and what was changed before.

Parallelism is the number of executors of an operator's application, so operators of one application have the same. Rates and
capacities are rows per second into the operator. None is "not known" and never zero. `RescaleWorld.from_json` reads and checks
the interchange of `spillway decide rescale`; values made in Python are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from spillway.model.qod import edge_name

ANYWHERE = "any"
"""Asked for as a node: executors may be on all of them."""


class Kind(StrEnum):
    """How a change is made."""

    RESTART = "restart"
    """The query is stopped at a committed batch and started again inside the living application."""
    EXECUTORS = "executors"
    """Executors are added, or decommissioned, under the running query."""
    HANDOVER = "handover"
    """A second application rehearses on a clone of the checkpoint, then takes over at a committed batch."""
    SHADOW = "shadow"
    """A clone of the state is repartitioned and catches up beside the running query, then takes over."""


class Outcome(StrEnum):
    """What came of a plan that was carried out."""

    DONE = "done"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"


class Effect(StrEnum):
    """Whether a change brought the capacity it was made for."""

    EFFECTIVE = "effective"
    INEFFECTIVE = "ineffective"
    TOO_EARLY = "too_early"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What an operator could carry at a parallelism it had."""

    parallelism: int
    capacity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLoad:
    """One operator: what it has, what it carries, what it should carry."""

    name: str
    application: str
    parallelism: int
    min: int = 1
    max: int | None = None
    """None: no bound is declared."""
    buckets: int | None = None
    """Partitions of its state, k; None where there is none."""
    stateful: bool = False
    state_rows: int | None = None
    state_bytes: int | None = None
    node: str | None = None
    committed: bool = True
    """Its checkpoint has a committed batch from which it can be started, cloned or handed over."""
    rate: float | None = None
    """What it carries."""
    capacity: float | None = None
    """What it could carry as it is: rows over busy time, or as capacity detection says."""
    utilisation: float | None = None
    """Share of the time it is busy."""
    needed: float | None = None
    """What it should carry if nothing were shed or throttled; edges may say more."""
    peak: float | None = None
    """The most it should have carried within the time `RescaleWorld.window_s`; edges may say more."""
    bottleneck_for: int = 0
    """Evaluations in a row that named it as a bottleneck."""
    instances_short: int = 0
    """Instances that the floors of its queries miss, as the decision on Quality of Data says."""
    seen: tuple[Sample, ...] = ()
    """Its capacity at other parallelisms, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """An edge: how many rows it carries for each row into its producer, or how many arrive from outside."""

    producer: str | None
    topic: str | None
    consumer: str
    selectivity: float = 1.0
    """Rows on it over rows into its producer."""
    arrival: float | None = None
    """Of an external topic: rows per second that are written to it."""
    peak: float | None = None
    """Of an external topic: the highest such rate within `RescaleWorld.window_s`."""
    backlog: float | None = None
    """Rows that wait."""

    @property
    def name(self) -> str:
        return edge_name(self.producer, self.topic, self.consumer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node, and what is left on it; None: nobody knows."""

    name: str
    free: int | None = None
    """How many more executors fit."""
    idle: float | None = None
    """Cores that nobody uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was begun before, as it is remembered."""

    at: datetime
    """When it was asked for."""
    operator: str
    application: str
    kind: Kind
    executors_from: int
    executors_to: int
    buckets_from: int | None = None
    buckets_to: int | None = None
    outcome: Outcome = Outcome.DONE
    decision: str | None = None
    """Changes of one decision count once against the quota; None: a person asked for it."""
    rate_before: float | None = None
    """Capacity before it."""
    expected_rate: float | None = None
    """Capacity that was expected of it."""
    observed_rate: float | None = None
    """Capacity after it."""
    effective: bool | None = None
    """None: not judged yet."""
    pause_s: float | None = None
    state_rows: int | None = None
    """Rows of state when it was made."""
    ended_at: datetime | None = None

    @property
    def over(self) -> datetime:
        """When it had ended: what is waited for after a change is waited for from then on."""
        return self.ended_at or self.at

    @property
    def up(self) -> bool:
        return self.executors_to > self.executors_from

    @property
    def down(self) -> bool:
        return self.executors_to < self.executors_from

    @property
    def rebuckets(self) -> bool:
        return self.buckets_to is not None and self.buckets_to != self.buckets_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """From when to when nothing may be changed, beside what the policy says."""

    start: datetime
    end: datetime
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks for; None: as it is, or as the planner sees fit."""

    operator: str
    to: int | None = None
    buckets: int | None = None
    node: str | None = None
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleWorld:
    """Everything a decision on the parallelism of one pipeline reads."""

    now: datetime
    operators: tuple[OperatorLoad, ...]
    edges: tuple[Flow, ...] = ()
    nodes: tuple[Room, ...] = ()
    """Empty: no node is checked."""
    history: tuple[Change, ...] = ()
    """Oldest first. Those of the last day count against the quota, those of the last week say what was had before, and older ones
    still how an operator scales."""
    running: tuple[str, ...] = ()
    """Applications with a plan under way."""
    frozen: tuple[Frozen, ...] = ()
    window_s: float = 0.0
    """How long the peaks go back."""
    floors_infeasible: bool = False
    repartition: bool = True
    """Whether the engine can change the number of buckets of a checkpoint."""
    repartition_why: str = ""
    """Why not."""
    request: Request | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the policy that are otherwise for this world."""

    def operator(self, name: str) -> OperatorLoad | None:
        return next((o for o in self.operators if o.name == name), None)

    def of_application(self, application: str) -> tuple[OperatorLoad, ...]:
        return tuple(o for o in self.operators if o.application == application)

    @property
    def applications(self) -> tuple[str, ...]:
        """In the order of their first operators."""
        return tuple(dict.fromkeys(o.application for o in self.operators))

    @classmethod
    def from_json(cls, text: str | bytes | dict[str, Any], *, now: datetime | None = None) -> RescaleWorld:
        """Reads the interchange that docs/algorithms.md shows; `now` holds where it says none. Raises ObservationError."""
        from spillway.model.rescale_json import read

        return read(text, now)

    def to_json(self) -> str:
        from spillway.model.rescale_json import world_dict

        return json.dumps(world_dict(self), separators=(",", ":"), allow_nan=False)
