"""A plan as ordered steps: what each waits for, how long it may, and what going back means from there.

Algorithm 3 of the paper, by the ways there are to make a change. Every step can be done again. Up to the point of no return a
plan is abandoned by dropping what was prepared; behind it the plan goes on, or back by the inverse plan.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from spillway.model.rescale import Kind
from spillway.model.rescale_plan import Answer, Reason, RescalePlan
from spillway.policy import Policy


class Back(StrEnum):
    """What is done when a step fails or takes too long."""

    ABANDON = "abandon"
    """Nothing that runs has changed: what was prepared is dropped."""
    FORWARD = "forward"
    """Between two states: the way on is as short as the way back, and safe."""
    INVERSE = "inverse"
    """The change is made and not good: the inverse plan takes it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    waits_for: str
    timeout_field: str
    """Field of the policy."""
    back: Back

    def timeout_s(self, policy: Policy) -> float:
        value: float = getattr(policy, self.timeout_field)
        return value


def _step(name: str, timeout: str, back: Back, waits_for: str) -> Step:
    field = f"rescale_{timeout}_timeout_s"
    assert field in {f.name for f in fields(Policy)}, field
    return Step(name=name, waits_for=waits_for, timeout_field=field, back=back)


VALIDATE = _step(
    "validate", "validate", Back.ABANDON, "all is as it was when the plan was made, and the state before is recorded"
)
VERIFY = _step("verify", "verify", Back.INVERSE, "the first batches are healthy, offsets go on without gap or overlap")
DIGEST = _step("digest", "digest", Back.INVERSE, "rows and checksum of all state are equal before and after")
DONE = _step("done", "validate", Back.FORWARD, "what is no longer needed is cleared away, and the outcome is recorded")
ORDER = _step("order", "order", Back.ABANDON, "what the driver is to do is written where it reads")
LAUNCH = _step("launch", "launch", Back.ABANDON, "a second application is up, without a lease")
CUTOVER = _step(
    "cutover", "take_over", Back.FORWARD, "the generation is raised, and the running query stops at a committed batch"
)
TAKEN_OVER = _step("taken_over", "take_over", Back.FORWARD, "the successor holds the lease and has committed a batch")

STEPS: dict[Kind, tuple[Step, ...]] = {
    Kind.RESTART: (
        VALIDATE,
        ORDER,
        _step(
            "stopped", "stop", Back.FORWARD, "the query is stopped at a committed batch, and its state has the buckets it should"
        ),
        _step("started", "start", Back.FORWARD, "the query runs again, with the executors it should have"),
        VERIFY,
        DIGEST,
        DONE,
    ),
    Kind.EXECUTORS: (
        VALIDATE,
        ORDER,
        _step("scaled", "scale", Back.INVERSE, "as many executors as wanted are registered, and no others"),
        VERIFY,
        DIGEST,
        DONE,
    ),
    Kind.HANDOVER: (
        VALIDATE,
        LAUNCH,
        _step("rehearsed", "rehearse", Back.ABANDON, "it ran batches of the query on a clone of the checkpoint, twice"),
        CUTOVER,
        TAKEN_OVER,
        VERIFY,
        DIGEST,
        DONE,
    ),
    Kind.SHADOW: (
        VALIDATE,
        LAUNCH,
        _step("repartitioned", "repartition", Back.ABANDON, "a clone of the state has the buckets it should"),
        _step(
            "caught_up", "catch_up", Back.ABANDON, "the clone has seen all that the running query committed, and wrote nothing"
        ),
        CUTOVER,
        TAKEN_OVER,
        VERIFY,
        DIGEST,
        DONE,
    ),
}


def steps(plan: RescalePlan) -> tuple[Step, ...]:
    """The steps of a plan, none where nothing changes.

    >>> [step.name for step in STEPS[Kind.EXECUTORS]]
    ['validate', 'order', 'scaled', 'verify', 'digest', 'done']
    """
    return STEPS[plan.kind] if plan.changes and plan.kind is not None else ()


def step(kind: Kind, name: str) -> Step:
    return next(one for one in STEPS[kind] if one.name == name)


def returns(kind: Kind, name: str) -> bool:
    """Whether a plan at this step can still be abandoned: it has not begun to change what runs.

    >>> returns(Kind.HANDOVER, "rehearsed"), returns(Kind.HANDOVER, "taken_over")
    (True, False)
    """
    return step(kind, name).back is Back.ABANDON


def inverse(plan: RescalePlan) -> RescalePlan:
    """The plan that takes a plan back, by the same kind.

    A shadow went by another checkpoint, so its way back is a shadow too: what the successor has added since is not lost.

    >>> from spillway.decide.rescale import plan_rescale
    >>> from spillway.decide.rescale.examples import ads
    >>> plan = plan_rescale(ads(), Policy()).plan("count")
    >>> back = inverse(plan)
    >>> (back.executors_from, back.executors_to, back.kind) == (plan.executors_to, plan.executors_from, plan.kind)
    True
    """
    if not plan.changes:
        raise ValueError(f"the plan for {plan.operator} changes nothing; there is nothing to take back")
    return RescalePlan(
        operator=plan.operator,
        application=plan.application,
        answer=Answer.CHANGE,
        reason=Reason.ROLL_BACK,
        words=f"takes back: {plan.words}",
        executors_from=plan.executors_to,
        executors_to=plan.executors_from,
        kind=plan.kind,
        buckets_from=plan.buckets_to,
        buckets_to=plan.buckets_from,
        node_from=plan.node_to,
        node_to=plan.node_from,
        needed_rate=plan.needed_rate,
        rate_before=plan.expected_rate,
        expected_rate=plan.rate_before,
        expected_pause_s=plan.expected_pause_s,
        state_rows=plan.state_rows,
        steps=plan.steps,
    )
