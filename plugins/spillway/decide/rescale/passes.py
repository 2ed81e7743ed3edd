"""What limits a target, one pass after the other: each returns the number that is left of it and, where it changed, why.

The order is: tolerance, step limit, bounds, CPU, buckets, quota, cool-down, frozen period, ineffective change. A pass that
forbids the change returns the present number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from spillway.decide.rescale.target import DAY, WEEK, executors
from spillway.model import periods
from spillway.model.rescale import Change, OperatorLoad, Outcome, RescaleWorld
from spillway.model.rescale_plan import Reason
from spillway.policy import Policy


class Passed(NamedTuple):
    value: int
    reason: Reason | None = None
    """None: as it was."""
    words: str = ""


def tolerance(current: int, target: int, policy: Policy) -> Passed:
    """A change by a few percent is not worth a pause.

    >>> tolerance(20, 21, Policy())
    Passed(value=20, reason=<Reason.WITHIN_TOLERANCE: 'within_tolerance'>, words='a change by 5 % is not worth a pause')
    >>> tolerance(1, 2, Policy())
    Passed(value=2, reason=None, words='')
    """
    off = abs(target - current) / current
    if target == current or off > policy.rescale_tolerance:
        return Passed(target)
    return Passed(current, Reason.WITHIN_TOLERANCE, f"a change by {100 * off:.0f} % is not worth a pause")


def step_limit(current: int, target: int, policy: Policy) -> Passed:
    """At most so many times as many executors, or a part of them, but always one more or less.

    >>> step_limit(2, 100, Policy()).value, step_limit(9, 1, Policy()).value
    (64, 5)
    """
    up, down = policy.rescale_step_factor, policy.rescale_down_factor
    most = max(current + 1, math.floor(current * up))
    least = min(current - 1, math.ceil(current / down))
    limited = min(max(target, least), most)
    if limited == target:
        return Passed(target)
    words = f"at most {up:g} times as many at once" if target > current else f"at most {down:g} times fewer at once"
    return Passed(limited, Reason.STEP_LIMITED, words)


def bounds(operators: Sequence[OperatorLoad], target: int, world: RescaleWorld, *, spread: bool = False) -> Passed:
    """What the topology declares for every operator of the application, and what fits on its node if it stays there.

    >>> from spillway.decide.rescale.examples import operator, world
    >>> bounds([operator(max=4)], 6, world())
    Passed(value=4, reason=<Reason.CLAMPED_TO_MAX: 'clamped_to_max'>, words='max of count is 4')
    """
    current = operators[0].parallelism
    found = Passed(target)
    for operator in operators:
        if found.value < operator.min:
            found = Passed(operator.min, Reason.CLAMPED_TO_MIN, f"min of {operator.name} is {operator.min}")
    for operator in operators:
        if operator.max is not None and found.value > operator.max:
            found = Passed(operator.max, Reason.CLAMPED_TO_MAX, f"max of {operator.name} is {operator.max}")
    free = None if spread else room(operators[0].node, world)
    if free is not None and found.value > current + free:
        words = f"{operators[0].node} has room for {executors(free) if free else 'no executor'} more"
        found = Passed(current + free, Reason.CLAMPED_TO_NODE, words)
    return found


def spread(lead: OperatorLoad, takes: float, world: RescaleWorld, policy: Policy) -> str | None:
    """Why executors should no longer be on one node: it has no CPU for what they would do there, and another one has some.

    `takes` is how many cores more they would use (see `target.takes`). What a query leaves idle while it is shed is no room for
    all that it does not do.

    >>> from spillway.decide.rescale.examples import operator, world
    >>> from spillway.model.rescale import Room
    >>> nodes = Room(name="n1", idle=0.6), Room(name="n2", idle=0.25)
    >>> spread(operator("heavy", node="n2"), 0.8, world(nodes=nodes), Policy())
    'heavy would take 0.80 cores more, n2 has 0.25 left and n1 0.60, so its executors may be on any node'
    >>> [spread(operator(node=node), 0.2, world(nodes=nodes), Policy()) for node in ("n1", "n2", None)]
    [None, None, None]
    """
    idle = {n.name: n.idle for n in world.nodes if n.idle is not None}
    others = {name: cores for name, cores in idle.items() if name != lead.node}
    if lead.node is None or lead.node not in idle or not others:
        return None
    own, (emptiest, most) = idle[lead.node], max(others.items(), key=lambda item: item[1])
    if own >= max(takes, policy.rescale_node_idle) or most < max(own, policy.rescale_node_idle):
        return None
    has = f"{lead.node} has {own:.2f} left and {emptiest} {most:.2f}"
    return f"{lead.name} would take {takes:.2f} cores more, {has}, so its executors may be on any node"


def cpu(current: int, target: int, why: Reason, world: RescaleWorld, policy: Policy) -> Passed:
    """More executors bring nothing while every node is busy: they would take from each other, and from what runs beside them. For
    a floor they may: then somebody else has to give way.

    >>> from spillway.decide.rescale.examples import world
    >>> from spillway.model.rescale import Room
    >>> full, free = (world(nodes=(Room(name="n1", idle=idle), Room(name="n2", idle=0.0))) for idle in (0.08, 0.3))
    >>> cpu(1, 2, Reason.BOTTLENECK_PERSISTS, full, Policy()).words
    'no node has CPU for another executor, the emptiest one is n1 with 0.08 idle cores'
    >>> [cpu(1, 2, Reason.BOTTLENECK_PERSISTS, seen, Policy()).value for seen in (full, free, world())]
    [1, 2, 2]
    >>> cpu(1, 2, Reason.FLOORS_INFEASIBLE, full, Policy()).value
    2
    """
    idle = {n.name: n.idle for n in world.nodes if n.idle is not None}
    if target <= current or why is Reason.FLOORS_INFEASIBLE or not idle or max(idle.values()) >= policy.rescale_node_idle:
        return Passed(target)
    emptiest, most = max(idle.items(), key=lambda item: item[1])
    words = f"no node has CPU for another executor, the emptiest one is {emptiest} with {most:.2f} idle cores"
    return Passed(current, Reason.NO_IDLE_CPU, words)


def room(node: str | None, world: RescaleWorld) -> int | None:
    """How many more executors fit on a node, where that is known."""
    return next((n.free for n in world.nodes if n.name == node), None)


def buckets(lead: OperatorLoad, operators: Sequence[OperatorLoad], target: int, world: RescaleWorld) -> tuple[Passed, int | None]:
    """An executor without a bucket has nothing to do: k ≥ parallelism (8). Returns the target, and the buckets it takes.

    The buckets of the operator it is done for are doubled until they are enough, where the engine can do that. Those of others
    in its application stay, for each of them would cost a pause of its own.

    >>> from spillway.decide.rescale.examples import operator, world
    >>> keyed = operator(stateful=True, buckets=8)
    >>> buckets(keyed, [keyed], 12, world())
    (Passed(value=12, reason=None, words=''), 16)
    >>> buckets(keyed, [keyed], 12, world(repartition=False))[0]
    Passed(value=8, reason=<Reason.CLAMPED_TO_BUCKETS: 'clamped_to_buckets'>, words='count has 8 buckets')
    """
    found, wanted = Passed(target), lead.buckets
    for operator in operators:
        fixed = operator.name != lead.name or not world.repartition
        if operator.stateful and operator.buckets is not None and fixed and found.value > operator.buckets:
            found = Passed(operator.buckets, Reason.CLAMPED_TO_BUCKETS, f"{operator.name} has {operator.buckets} buckets")
    if lead.stateful and wanted is not None:
        while wanted < found.value:
            wanted *= 2
    return found, wanted


def quota(current: int, target: int, world: RescaleWorld, policy: Policy) -> Passed:
    """So many decisions a day. Scaling down may use half of them: who is too large can wait, who is too small cannot.

    >>> from spillway.decide.rescale.examples import world
    >>> quota(2, 4, world(), Policy(rescale_quota_per_day=0))
    Passed(value=2, reason=<Reason.QUOTA: 'quota'>, words='0 of 0 changes a day are used up')
    """
    used, most = used_today(world), policy.rescale_quota_per_day
    if target == current:
        return Passed(target)
    if used >= most:
        return Passed(current, Reason.QUOTA, f"{used} of {most} changes a day are used up")
    if target < current and used >= most - most // 2:
        return Passed(current, Reason.QUOTA_KEPT, f"{used} of {most} changes a day are used, the rest is kept for scaling up")
    return Passed(target)


def used_today(world: RescaleWorld) -> int:
    """Decisions and requests of the last day that changed something, or began to."""
    recent = [c for c in world.history if world.now - c.at < DAY]
    return len({c.decision for c in recent if c.decision is not None}) + sum(c.decision is None for c in recent)


def cool_down(current: int, target: int, world: RescaleWorld, policy: Policy) -> Passed:
    """After a change anywhere in the pipeline the load of all that follows is another one: measure again before the next.

    >>> from datetime import timedelta
    >>> from spillway.decide.rescale.examples import NOW, world
    >>> from spillway.model.rescale import Kind
    >>> ago = NOW - timedelta(seconds=60)
    >>> up = Change(at=ago, operator="a", application="a", kind=Kind.RESTART, executors_from=1, executors_to=2)
    >>> cool_down(2, 4, world(history=(up,)), Policy())
    Passed(value=2, reason=<Reason.COOL_DOWN: 'cool_down'>, words='a was changed 60 s ago, and for 180 s nothing is scaled up')
    """
    last = max(world.history, key=lambda c: c.over, default=None)
    if target == current or last is None:
        return Passed(target)
    wait, way = (policy.rescale_cooldown_up_s, "up") if target > current else (policy.rescale_cooldown_down_s, "down")
    ago = (world.now - last.over).total_seconds()
    if ago >= wait:
        return Passed(target)
    return Passed(
        current, Reason.COOL_DOWN, f"{last.operator} was changed {ago:.0f} s ago, and for {wait:g} s nothing is scaled {way}"
    )


def frozen(current: int, target: int, world: RescaleWorld, policy: Policy) -> Passed:
    """
    >>> from spillway.decide.rescale.examples import world
    >>> frozen(2, 4, world(), Policy(rescale_frozen="09:30-10:30"))
    Passed(value=2, reason=<Reason.FROZEN_PERIOD: 'frozen_period'>, words='nothing is changed in 09:30-10:30 UTC')
    """
    until = frozen_now(world, policy)
    return Passed(target) if until is None or target == current else Passed(current, Reason.FROZEN_PERIOD, until)


def frozen_now(world: RescaleWorld, policy: Policy) -> str | None:
    """Why nothing may be changed now, if so."""
    for period in periods.parse(policy.rescale_frozen):
        if period.covers(world.now):
            return f"nothing is changed in {period}"
    for one in world.frozen:
        if one.start <= world.now < one.end:
            return f"nothing is changed until {one.end:%Y-%m-%d %H:%M %Z}{f': {one.why}' if one.why else ''}"
    return None


def ineffective(application: str, current: int, target: int, world: RescaleWorld, policy: Policy) -> Passed:
    """What did not work is not done again, and not more of it either; what was rolled back waits, unless it is something else.

    >>> from datetime import timedelta
    >>> from spillway.decide.rescale.examples import NOW, world
    >>> from spillway.model.rescale import Kind
    >>> ago = NOW - timedelta(hours=2)
    >>> up = Change(
    ...     at=ago, operator="a", application="a", kind=Kind.RESTART, executors_from=1, executors_to=2, effective=False
    ... )
    >>> ineffective("a", 2, 4, world(history=(up,)), Policy()).words
    'the last scaling up, from 1 to 2 executors, brought nothing'
    """
    if target == current:
        return Passed(target)
    way = "up" if target > current else "down"
    same = [c for c in world.history if c.application == application and (c.up if way == "up" else c.down)]
    last = _newest(c for c in same if c.outcome is Outcome.DONE and c.effective is not None)
    if last is not None and not last.effective and _within(last.over, policy.rescale_block_s, world.now):
        what = f"the last scaling {way}, from {last.executors_from} to {executors(last.executors_to)},"
        return Passed(
            current, Reason.INEFFECTIVE_BEFORE, f"{what} {'brought nothing' if way == 'up' else 'cost more than it should'}"
        )
    if way == "down" and (soon := _taken_back(application, world)):
        words = f"it had to grow again after it was scaled down to {executors(soon.executors_to)} within the last week"
        return Passed(current, Reason.INEFFECTIVE_BEFORE, words)
    undone = _newest(c for c in same if c.outcome is not Outcome.DONE and (c.executors_from, c.executors_to) == (current, target))
    if undone is not None and _within(undone.over, policy.rescale_retry_s, world.now):
        words = f"the same change was {undone.outcome.replace('_', ' ')} {(world.now - undone.over).total_seconds():.0f} s ago"
        return Passed(current, Reason.ROLLED_BACK_BEFORE, words)
    return Passed(target)


def _taken_back(application: str, world: RescaleWorld) -> Change | None:
    """A scaling down of the last week after which the application had to grow again."""
    done = [c for c in world.history if c.application == application and c.outcome is Outcome.DONE]
    last_up = max((c.at for c in done if c.up), default=None)
    recent = [c for c in done if c.down and world.now - c.at <= WEEK and last_up is not None and c.at < last_up]
    return _newest(recent)


def _newest(changes: Iterable[Change]) -> Change | None:
    return max(changes, key=lambda c: c.at, default=None)


def _within(at: datetime, seconds: float, now: datetime) -> bool:
    return now - at < timedelta(seconds=seconds)
