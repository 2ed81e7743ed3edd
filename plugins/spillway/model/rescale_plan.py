"""A plan to rescale: what changes, how, why, which passes made it so, and what is expected of it. "Nothing" is a plan too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spillway.model.rescale import Kind, OperatorLoad


class Reason(StrEnum):
    """Why a plan is as it is, for programs; its words say it to people."""

    # why something changes
    BOTTLENECK_PERSISTS = "bottleneck_persists"
    FLOORS_INFEASIBLE = "floors_infeasible"
    NEXT_BOTTLENECK = "next_bottleneck"
    """It would hold back what another one is made larger for."""
    UNDERUSED = "underused"
    REQUESTED = "requested"
    ROLL_BACK = "roll_back"
    # why the target is what it is
    SIZED_BY_OWN_CURVE = "sized_by_own_curve"
    SIZED_BY_PRIOR = "sized_by_prior"
    CURVE_SATURATES = "curve_saturates"
    """More executors would bring next to nothing."""
    FLOOR_INSTANCES = "floor_instances"
    BACK_TO_BEFORE = "back_to_before"
    """A scaling down of the last week is taken back as a whole."""
    STEP_LIMITED = "step_limited"
    CLAMPED_TO_MAX = "clamped_to_max"
    CLAMPED_TO_MIN = "clamped_to_min"
    CLAMPED_TO_NODE = "clamped_to_node"
    CLAMPED_TO_BUCKETS = "clamped_to_buckets"
    BUCKETS_RAISED = "buckets_raised"
    SPREAD_OVER_NODES = "spread_over_nodes"
    """Its node has no CPU left for another executor, others have."""
    NO_IDLE_CPU = "no_idle_cpu"
    """No node has CPU left for another executor: it would only take from what runs there."""
    # why nothing changes
    WITHIN_BAND = "within_band"
    WITHIN_TOLERANCE = "within_tolerance"
    NOT_PERSISTENT = "not_persistent"
    NEEDED_UNKNOWN = "needed_unknown"
    CAPACITY_UNKNOWN = "capacity_unknown"
    SAVES_LITTLE = "saves_little"
    """What scaling down would free of the pipeline's executors is not worth a pause."""
    QUOTA_KEPT = "quota_kept"
    """What is left of the quota is kept for scaling up."""
    COOL_DOWN = "cool_down"
    INEFFECTIVE_BEFORE = "ineffective_before"
    ROLLED_BACK_BEFORE = "rolled_back_before"
    NOTHING_ASKED = "nothing_asked"
    # why nothing changes, and why a request is refused
    PLAN_RUNNING = "plan_running"
    STATE_NOT_COMMITTED = "state_not_committed"
    QUOTA = "quota"
    FROZEN_PERIOD = "frozen_period"
    # why a request is refused
    UNKNOWN_OPERATOR = "unknown_operator"
    UNKNOWN_NODE = "unknown_node"
    OUT_OF_BOUNDS = "out_of_bounds"
    NODE_FULL = "node_full"
    BUCKETS_BELOW_PARALLELISM = "buckets_below_parallelism"
    NO_BUCKETS = "no_buckets"
    NO_REPARTITION = "no_repartition"
    KIND_CANNOT = "kind_cannot"


class Stage(StrEnum):
    """The passes, in their order."""

    TARGET = "target"
    TOLERANCE = "tolerance"
    STEP_LIMIT = "step_limit"
    BOUNDS = "bounds"
    CPU = "cpu"
    BUCKETS = "buckets"
    QUOTA = "quota"
    COOL_DOWN = "cool_down"
    FROZEN = "frozen_period"
    INEFFECTIVE = "ineffective"


class Answer(StrEnum):
    CHANGE = "change"
    NO_CHANGE = "no_change"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass that changed the target: executors, or buckets for the stage of that name."""

    stage: Stage
    before: int
    after: int
    reason: Reason
    words: str

    def as_dict(self) -> dict[str, Any]:
        return {"pass": self.stage, "from": self.before, "to": self.after, "reason": self.reason, "words": self.words}


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan:
    """What becomes of one application, and the operator it is done for."""

    operator: str
    application: str
    answer: Answer
    reason: Reason
    words: str
    executors_from: int
    executors_to: int
    kind: Kind | None = None
    """None where nothing changes."""
    buckets_from: int | None = None
    buckets_to: int | None = None
    node_from: str | None = None
    node_to: str | None = None
    passes: tuple[Pass, ...] = ()
    needed_rate: float | None = None
    """What the operator should carry."""
    rate_before: float | None = None
    """What it can carry before."""
    expected_rate: float | None = None
    """What it should be able to carry afterwards."""
    expected_pause_s: float | None = None
    state_rows: int | None = None
    """Of all operators of the application, when the plan was made."""
    steps: tuple[str, ...] = ()
    """Names of its steps, in order."""

    @classmethod
    def no_change(cls, current: OperatorLoad, reason: Reason, words: str = "", **more: Any) -> RescalePlan:
        """Everything stays.

        >>> plan = RescalePlan.no_change(OperatorLoad(name="a", application="a", parallelism=2), Reason.WITHIN_BAND)
        >>> plan.executors_to, plan.changes, plan.words
        (2, False, 'stays at 2 executors: within band')
        """
        return cls._stays(current, Answer.NO_CHANGE, reason, words, **more)

    @classmethod
    def refused(cls, current: OperatorLoad, reason: Reason, words: str) -> RescalePlan:
        """A request that is not carried out, and why."""
        return cls._stays(current, Answer.REFUSED, reason, words)

    @classmethod
    def _stays(cls, current: OperatorLoad, answer: Answer, reason: Reason, words: str, **more: Any) -> RescalePlan:
        count = f"{current.parallelism} executor{'' if current.parallelism == 1 else 's'}"
        return cls(
            operator=current.name,
            application=current.application,
            answer=answer,
            reason=reason,
            words=words or f"stays at {count}: {reason.replace('_', ' ')}",
            executors_from=current.parallelism,
            executors_to=current.parallelism,
            buckets_from=current.buckets,
            buckets_to=current.buckets,
            node_from=current.node,
            node_to=current.node,
            **more,
        )

    @property
    def changes(self) -> bool:
        return self.answer is Answer.CHANGE

    @property
    def up(self) -> bool:
        return self.executors_to > self.executors_from

    @property
    def down(self) -> bool:
        return self.executors_to < self.executors_from

    @property
    def rebuckets(self) -> bool:
        return self.buckets_to != self.buckets_from

    @property
    def moves(self) -> bool:
        return self.node_to != self.node_from

    def as_dict(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "application": self.application,
            "answer": self.answer,
            "reason": self.reason,
            "words": self.words,
            "kind": self.kind,
            "executors": {"from": self.executors_from, "to": self.executors_to},
            "buckets": {"from": self.buckets_from, "to": self.buckets_to},
            "node": {"from": self.node_from, "to": self.node_to},
            "target": self.executors_to,
            "passes": [one.as_dict() for one in self.passes],
            "needed_rate": self.needed_rate,
            "rate_before": self.rate_before,
            "expected_rate": self.expected_rate,
            "expected_pause_s": self.expected_pause_s,
            "state_rows": self.state_rows,
            "steps": list(self.steps),
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleDecision:
    """One plan for every application of the pipeline; most of them change nothing."""

    plans: tuple[RescalePlan, ...]
    needed: Mapping[str, float] = field(default_factory=dict)
    """By operator: what it should carry, as far as that is known."""
    missing: tuple[str, ...] = ()
    """What was needed and absent, such as `operators.count.capacity`."""

    @property
    def changes(self) -> tuple[RescalePlan, ...]:
        return tuple(plan for plan in self.plans if plan.changes)

    def plan(self, application: str) -> RescalePlan:
        return next(plan for plan in self.plans if plan.application == application)

    def as_dict(self) -> dict[str, Any]:
        return {
            "plans": [plan.as_dict() for plan in self.plans],
            "needed": dict(self.needed),
            "missing": list(self.missing),
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)
