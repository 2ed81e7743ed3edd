"""What a step of a plan looks at, read once per pass, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spillway.act.launch import Launcher
from spillway.model.rescale import Kind
from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.store.pipelines import load
from spillway.store.queries import row
from spillway.store.rescale import Plan, Step

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

RUNNING = "running"
OVER = ("stopped", "failed", "fenced")


class State(StrEnum):
    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a step came to in one pass: it is done, it waits, or it has failed; in words, with what shows it."""

    state: State
    words: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    stays: bool = False
    """Of a failure: what was ordered stands, for it is no reason to go back."""

    @classmethod
    def done(cls, words: str, **evidence: Any) -> Finding:
        return cls(state=State.DONE, words=words, evidence=evidence)

    @classmethod
    def waits(cls, words: str, **evidence: Any) -> Finding:
        return cls(state=State.WAITING, words=words, evidence=evidence)

    @classmethod
    def failed(cls, words: str, *, stays: bool = False, **evidence: Any) -> Finding:
        return cls(state=State.FAILED, words=words, evidence=evidence, stays=stays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    store: str
    up_since: datetime
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One row of `rescale_facts`: the application and the operator as they should be, as their driver says, and the successor."""

    desired: str
    version: int
    generation: int
    node: str | None
    launched_node: str | None
    executors: int
    handle: str | None
    launcher: str | None
    launched_at: datetime | None
    checkpoint: int
    buckets: int
    incarnation: int
    operator_kind: str
    beat: str | None
    beat_at: datetime | None
    beat_started_at: datetime | None
    registered: int | None
    beat_version: int | None
    beat_before: str | None
    """What the driver that ran when the plan was made last said."""
    beat_before_at: datetime | None
    actual_generation: int | None
    actual_checkpoint: int | None
    actual_buckets: int | None
    actual_incarnation: int | None
    phase: str | None
    batch_id: int | None
    offsets: Mapping[str, Any] | None
    stopped_batch: int | None
    stopped_at: datetime | None
    started_at: datetime | None
    actual_detail: str | None
    actual_at: datetime | None
    successor_plan: int | None
    successor_generation: int | None
    successor_desired: str | None
    successor_launcher: str | None
    successor_handle: str | None
    successor_launched_at: datetime | None
    successor_state: str | None
    successor_at: datetime | None
    successor_batches: int | None
    behind_rows: int | None
    successor_detail: str | None
    moving: str | None

    @property
    def stateful(self) -> bool:
        return self.operator_kind != "stateless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One pass over one plan, whose row is held."""

    conn: Connection
    launcher: Launcher
    policy: Policy
    store: Store
    plan: Plan
    step: Step
    facts: Facts

    @property
    def now(self) -> datetime:
        return self.store.now

    @property
    def name(self) -> str:
        return f"{self.plan.pipeline}/{self.plan.application}"

    @property
    def who(self) -> dict[str, str]:
        return {"pipeline": self.plan.pipeline, "application": self.plan.application}

    @property
    def kind(self) -> Kind:
        return Kind(self.plan.kind)

    def spec(self) -> Pipeline:
        return load(self.conn, self.plan.pipeline)

    def age_s(self, then: datetime | None) -> float:
        """Seconds since then, counted only while the store was there to be written to."""
        if then is None:
            return float("inf")
        return max(0.0, (self.now - max(then, self.store.up_since)).total_seconds())

    @property
    def waited_s(self) -> float:
        """How long the step is at work."""
        return self.age_s(self.step.began_at)

    @property
    def lives(self) -> bool:
        """The driver of the newest generation runs."""
        return self.facts.beat == RUNNING and self.age_s(self.facts.beat_at) <= self.policy.silent_s

    @property
    def stopped_by_someone(self) -> Finding | None:
        """A person wins over a plan, also over one that has ordered something already."""
        if self.facts.desired == RUNNING:
            return None
        return Finding.failed(f"{self.name} was stopped before {self.plan.changes} could be verified", stays=True)

    def since(self, *names: str) -> datetime | None:
        """When the first of these steps was done."""
        return next((s.ended_at for name in names if (s := self.plan.done(name))), None)

    def evidence(self, name: str) -> Mapping[str, Any]:
        """Of a step before this one."""
        return next((s.evidence for s in self.plan.steps if s.step == name), {})


def read_facts(conn: Connection, plan: Plan) -> Facts | None:
    """None: the application is no longer declared."""
    found = row(conn, "rescale_facts", id=plan.id)
    return Facts(**found) if found else None


def overtaken(scene: Scene) -> str | None:
    """Why a plan that has not ordered anything yet is no longer about what it was made for: a person wins over a plan."""
    plan, facts = scene.plan, scene.facts
    if facts.desired != RUNNING:
        return f"{scene.name} was stopped meanwhile"
    if facts.generation != plan.generation_from:
        return f"{scene.name} was launched anew meanwhile, as generation {facts.generation}"
    if facts.node != plan.node_from:
        return f"{scene.name} was given {f'the node {facts.node}' if facts.node else 'any node'} meanwhile"
    if facts.executors != plan.executors_from:
        return f"{scene.name} was given {facts.executors} executors meanwhile"
    if (facts.checkpoint, facts.buckets) != (plan.checkpoint_from, plan.buckets_from):
        return f"{plan.operator} was given checkpoint {facts.checkpoint} with {facts.buckets} buckets meanwhile"
    return None
