"""Which applications of a pipeline get more or fewer executors, how, and why: target, then every pass that limits it.

The rules for when are of spec "When to rescale": up fast, down slow. Sizing by what the sources need, passed forward, is DS2's
(Kalavri et al., OSDI 2018); the operator's own curve, the passes and their reasons are as the Flink autoscaler and the HPA have
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spillway.decide.rescale import passes
from spillway.decide.rescale.demand import Demand, demand
from spillway.decide.rescale.kind import Wanted, choose_kind, failed_lately, pause_s
from spillway.decide.rescale.steps import STEPS
from spillway.decide.rescale.target import Sized, capacity, curve, executors, size_down, size_up, takes
from spillway.model.rescale import ANYWHERE, Kind, OperatorLoad, RescaleWorld
from spillway.model.rescale_plan import Answer, Pass, Reason, RescaleDecision, RescalePlan, Stage
from spillway.policy import Policy

NO_LIMIT = 1_000_000
"""What no parallelism reaches is asked for as this many executors; the passes make less of it."""


def plan_rescale(world: RescaleWorld, policy: Policy) -> RescaleDecision:
    """One plan for every application; most change nothing, and say why.

    Scaling up begins with operators that are a bottleneck for long enough, or that floors are infeasible for. Whoever else
    would hold back what is needed is sized in the same decision, as far as those that lead will let rows through. Only when
    nobody has to grow is somebody made smaller.

    >>> from spillway.decide.rescale.examples import ads
    >>> decision = plan_rescale(ads(), Policy())
    >>> [(plan.operator, plan.executors_from, plan.executors_to, plan.reason.value) for plan in decision.plans]
    [('parse', 2, 2, 'within_band'), ('count', 1, 3, 'bottleneck_persists')]
    >>> words, why = decision.plan("count").words.split(": ")
    >>> words
    'count from 1 to 3 executors by handover, with a pause of about 1.9 s'
    >>> why
    'needs 520 rows/s at 75 % utilisation and can carry 300 with 1 executor'
    """
    found = demand(world, policy.rescale_drain_horizon_s)
    plans = {
        name: RescalePlan.no_change(
            world.of_application(name)[0], Reason.PLAN_RUNNING, f"a plan for {world.running[0]} is under way"
        )
        for name in (world.applications if world.running else ())
    }
    if not plans:
        plans = _up(world, found, policy) or _down(world, found, policy)
    return RescaleDecision(
        plans=tuple(plans.get(name) or _stays(world.of_application(name), found, policy) for name in world.applications),
        needed=found.needed,
        missing=_missing(world, found),
    )


def _up(world: RescaleWorld, found: Demand, policy: Policy) -> dict[str, RescalePlan]:
    sized = [one for o in world.operators if (one := size_up(o, world, found, policy))]
    leads = _by_application(one for one in sized if one.leads)
    plans = {name: limited(one, world, policy) for name, one in leads.items()}
    if not plans:
        return {}
    share = min(_lets_through(one, plans[name]) for name, one in leads.items())
    follow = [one for o in world.operators if o.application not in leads and (one := size_up(o, world, found, policy, share))]
    return plans | {name: limited(one, world, policy) for name, one in _by_application(follow).items()}


def _lets_through(one: Sized, plan: RescalePlan) -> float:
    """Share of what is needed that an operator will carry."""
    carries = one.curve.capacity if plan.expected_rate is None else plan.expected_rate
    return min(1.0, carries / one.needed) if one.needed > 0.0 else 1.0


def _down(world: RescaleWorld, found: Demand, policy: Policy) -> dict[str, RescalePlan]:
    """Only without trouble anywhere, after a window that is long enough, and where all operators of an application allow it."""
    trouble = world.floors_infeasible or any(o.bottleneck_for for o in world.operators)
    if trouble or world.window_s < policy.rescale_down_window_s:
        return {}
    sized = {}
    for name in world.applications:
        allowed = [size_down(o, world, found, policy) for o in world.of_application(name)]
        known = [one for one in allowed if one is not None]
        if len(known) == len(allowed):
            sized[name] = max(known, key=lambda one: one.target)
    plans = {name: limited(one, world, policy) for name, one in sized.items()}
    total = sum(world.of_application(name)[0].parallelism for name in world.applications)
    saved = sum(plan.executors_from - plan.executors_to for plan in plans.values() if plan.changes)
    if saved >= policy.rescale_down_saves * total:
        return plans
    words = f"all that can be smaller would free {saved} of {total} executors, which is not worth a pause"
    return {
        name: RescalePlan.no_change(sized[name].operator, Reason.SAVES_LITTLE, words, passes=plan.passes)
        if plan.changes
        else plan
        for name, plan in plans.items()
    }


def _by_application(sized: Iterable[Sized]) -> dict[str, Sized]:
    """The largest of each application, for all of its operators share the executors."""
    found: dict[str, Sized] = {}
    for one in sized:
        name = one.operator.application
        if name not in found or one.target > found[name].target:
            found[name] = one
    return found


@dataclass(slots=True)
class _Course:
    """A target on its way through the passes."""

    current: int
    value: int
    passed: list[Pass]

    def through(self, stage: Stage, one: passes.Passed) -> None:
        if one.reason is not None:
            self.passed.append(Pass(stage=stage, before=self.value, after=one.value, reason=one.reason, words=one.words))
        self.value = one.value

    @property
    def stopped(self) -> bool:
        return self.value == self.current


def limited(one: Sized, world: RescaleWorld, policy: Policy) -> RescalePlan:
    """What the passes leave of a target."""
    lead, current = one.operator, one.operator.parallelism
    operators = world.of_application(lead.application)
    if uncommitted := next((o for o in operators if not o.committed), None):
        return RescalePlan.no_change(
            lead, Reason.STATE_NOT_COMMITTED, f"{uncommitted.name} has no committed batch to start from yet"
        )
    course = _Course(current, current, [])
    spread = passes.spread(lead, takes(one), world, policy) if one.target > current else None
    course.through(Stage.TARGET, passes.Passed(min(one.target, NO_LIMIT), one.why, one.words))
    stages: tuple[tuple[Stage, Callable[[], passes.Passed]], ...] = (
        (Stage.TOLERANCE, lambda: passes.tolerance(current, course.value, policy)),
        (Stage.STEP_LIMIT, lambda: passes.step_limit(current, course.value, policy)),
        (Stage.BOUNDS, lambda: passes.bounds(operators, course.value, world, spread=bool(spread))),
        (Stage.CPU, lambda: passes.cpu(current, course.value, one.reason, world, policy)),
        (Stage.BUCKETS, lambda: passes.buckets(lead, operators, course.value, world)[0]),
        (Stage.QUOTA, lambda: passes.quota(current, course.value, world, policy)),
        (Stage.COOL_DOWN, lambda: passes.cool_down(current, course.value, world, policy)),
        (Stage.FROZEN, lambda: passes.frozen(current, course.value, world, policy)),
        (Stage.INEFFECTIVE, lambda: passes.ineffective(lead.application, current, course.value, world, policy)),
    )
    for stage, run in stages:
        course.through(stage, run())
        if course.stopped or (course.value > current) != (one.target > current):
            return _stopped(one, course)
    _, buckets = passes.buckets(lead, operators, course.value, world)
    if buckets is not None and lead.buckets is not None and buckets != lead.buckets:
        course.passed.append(
            Pass(
                stage=Stage.BUCKETS,
                before=lead.buckets,
                after=buckets,
                reason=Reason.BUCKETS_RAISED,
                words=f"{executors(course.value)} need as many buckets at least",
            )
        )
    if spread:
        course.passed.append(
            Pass(stage=Stage.BOUNDS, before=course.value, after=course.value, reason=Reason.SPREAD_OVER_NODES, words=spread)
        )
    return made(
        lead,
        world,
        policy,
        to=course.value,
        buckets=buckets,
        node=ANYWHERE if spread else None,
        reason=one.reason,
        words=one.words,
        passed=course.passed,
        needed=one.needed,
    )


def _stopped(one: Sized, course: _Course) -> RescalePlan:
    last = course.passed[-1]
    though = "" if last.stage is Stage.TARGET else f" though it {one.words}"
    return RescalePlan.no_change(
        one.operator,
        last.reason,
        f"{one.operator.name} stays at {executors(one.operator.parallelism)}{though}: {last.words}",
        passes=tuple(course.passed),
        needed_rate=one.needed,
        rate_before=one.curve.capacity,
    )


def made(
    lead: OperatorLoad,
    world: RescaleWorld,
    policy: Policy,
    *,
    to: int,
    reason: Reason,
    words: str,
    buckets: int | None = None,
    node: str | None = None,
    kind: Kind | None = None,
    passed: Sequence[Pass] = (),
    needed: float | None = None,
) -> RescalePlan:
    """A plan that changes something: its kind, its pause, what it is expected to bring, its steps."""
    wanted = wants(lead, world, to=to, buckets=buckets, node=node)
    if kind is None:
        kind, _ = choose_kind(wanted, world.history, policy)
    pause = pause_s(kind, wanted, world.history, policy)
    bent = curve(lead, world, policy.rescale_serial_share if to > lead.parallelism else 0.0)
    what = [f"from {lead.parallelism} to {executors(to)}"] if wanted.executors else []
    what += [f"from {lead.buckets} to {buckets} buckets"] if wanted.buckets else []
    what += [f"from {lead.node or 'any node'} to {where(node) or 'any node'}"] if wanted.node else []
    return RescalePlan(
        operator=lead.name,
        application=lead.application,
        answer=Answer.CHANGE,
        reason=reason,
        words=f"{lead.name} {', '.join(what) or 'anew'} by {kind}, with a pause of about {pause:.1f} s{words and f': {words}'}",
        executors_from=lead.parallelism,
        executors_to=to,
        kind=kind,
        buckets_from=lead.buckets,
        buckets_to=buckets if wanted.buckets else lead.buckets,
        node_from=lead.node,
        node_to=where(node) if wanted.node else lead.node,
        passes=tuple(passed),
        needed_rate=needed,
        rate_before=capacity(lead),
        expected_rate=bent.at(to) if bent else None,
        expected_pause_s=round(pause, 3),
        state_rows=wanted.state_rows,
        steps=tuple(step.name for step in STEPS[kind]),
    )


def where(node: str | None) -> str | None:
    """The node that is meant by one that was asked for; None: any."""
    return None if node == ANYWHERE else node


def wants(lead: OperatorLoad, world: RescaleWorld, *, to: int, buckets: int | None, node: str | None) -> Wanted:
    operators = [o for o in world.of_application(lead.application) if o.stateful]
    rows = [o.state_rows for o in operators]
    free = passes.room(lead.node if node is None else where(node), world)
    return Wanted(
        executors=to != lead.parallelism,
        more=to > lead.parallelism,
        buckets=buckets is not None and buckets != lead.buckets,
        node=node is not None and where(node) != lead.node,
        state_rows=None if None in rows else sum(r for r in rows if r is not None),
        second_fits=free is None or free >= to,
        failed=failed_lately(lead.application, world.history, world.now),
    )


def _stays(operators: Sequence[OperatorLoad], found: Demand, policy: Policy) -> RescalePlan:
    """Nothing has to change; the operator that is nearest to it says why."""
    for operator in operators:
        if operator.bottleneck_for:
            times, enough = operator.bottleneck_for, policy.rescale_persist_evaluations
            if times < enough:
                words = f"{operator.name} is a bottleneck for {times} of {enough} evaluations"
                return RescalePlan.no_change(operator, Reason.NOT_PERSISTENT, words)
            words = f"{operator.name} is a bottleneck, but could carry what is needed"
            return RescalePlan.no_change(operator, Reason.WITHIN_BAND, words)
    for operator in operators:
        if capacity(operator) is None:
            return RescalePlan.no_change(operator, Reason.CAPACITY_UNKNOWN, f"nobody knows what {operator.name} could carry")
        if operator.name not in found.needed:
            return RescalePlan.no_change(operator, Reason.NEEDED_UNKNOWN, f"nobody knows what {operator.name} should carry")
    busiest = max(operators, key=lambda o: found.needed[o.name] / (capacity(o) or 1.0))
    busy = 100 * found.needed[busiest.name] / (capacity(busiest) or 1.0)
    return RescalePlan.no_change(
        busiest,
        Reason.WITHIN_BAND,
        f"{busiest.name} needs {busy:.0f} % of what it could carry with {executors(busiest.parallelism)}",
        needed_rate=found.needed[busiest.name],
        rate_before=capacity(busiest),
    )


def _missing(world: RescaleWorld, found: Demand) -> tuple[str, ...]:
    lost = [f"operators.{o.name}.capacity" for o in world.operators if capacity(o) is None]
    lost += [f"operators.{o.name}.needed" for o in world.operators if o.name not in found.needed]
    return tuple(lost)
