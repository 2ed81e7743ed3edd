"""What a person asks for: a plan, or one sentence why it is refused.

A request is bound by what would break something (bounds, buckets, commits, the engine) and by what the platform team has
forbidden (quota, frozen periods). What keeps an automaton from flapping or from asking in vain (tolerance, step limit, CPU,
cool-down, ineffective changes) does not bind a person.
"""

from __future__ import annotations

from collections.abc import Callable

from spillway.decide.rescale import passes
from spillway.decide.rescale.demand import demand
from spillway.decide.rescale.kind import Wanted, lacks
from spillway.decide.rescale.plan import made, wants, where
from spillway.decide.rescale.target import executors
from spillway.model.qod_check import close
from spillway.model.rescale import ANYWHERE, Kind, OperatorLoad, Request, RescaleWorld
from spillway.model.rescale_plan import Reason, RescalePlan
from spillway.policy import Policy

ANEW = (Kind.RESTART, Kind.HANDOVER)
"""Kinds that make sense though nothing changes: the query, or its driver, is started anew."""
Refusal = tuple[Reason, str] | None


def plan_request(world: RescaleWorld, request: Request, policy: Policy) -> RescalePlan:
    """The plan for a request; `answer` is refused where it cannot or may not be done, and `words` says why and what to do.

    >>> from spillway.decide.rescale.examples import ads
    >>> plan_request(ads(), Request(operator="count", to=4), Policy()).words
    'count from 1 to 4 executors by handover, with a pause of about 1.9 s'
    >>> plan_request(ads(), Request(operator="count", to=9), Policy()).words
    'count cannot have 9 executors: its bounds are 1 to 8; ask for a number within them, or change them in the topology'
    >>> plan_request(ads(), Request(operator="cuont", to=2), Policy()).words
    'there is no operator cuont; did you mean count?'
    """
    lead = world.operator(request.operator)
    if lead is None:
        nobody = OperatorLoad(name=request.operator, application=request.operator, parallelism=1)
        words = f"there is no operator {request.operator}{close(request.operator, (o.name for o in world.operators))}"
        return RescalePlan.refused(nobody, Reason.UNKNOWN_OPERATOR, words)
    to = lead.parallelism if request.to is None else request.to
    buckets = lead.buckets if request.buckets is None else request.buckets
    wanted = wants(lead, world, to=to, buckets=buckets, node=request.node)
    if not (wanted.executors or wanted.buckets or wanted.node) and request.kind not in ANEW:
        return RescalePlan.no_change(lead, Reason.NOTHING_ASKED, f"{lead.name} has all that already")
    checks: tuple[Callable[[], Refusal], ...] = (
        lambda: _running(lead, world),
        lambda: _out_of_bounds(lead, world, to),
        lambda: _node(lead, world, to, wanted, request.node),
        lambda: _buckets(lead, world, to, buckets, wanted),
        lambda: _committed(lead, world),
        lambda: _kind(lead, request.kind, wanted),
        lambda: _quota(world, policy),
        lambda: _frozen(world, policy),
    )
    for check in checks:
        if refusal := check():
            return RescalePlan.refused(lead, *refusal)
    needed = demand(world, policy.rescale_drain_horizon_s).needed.get(lead.name)
    return made(
        lead,
        world,
        policy,
        to=to,
        buckets=buckets,
        node=request.node,
        kind=request.kind,
        reason=Reason.REQUESTED,
        words="",
        needed=needed,
    )


def _running(lead: OperatorLoad, world: RescaleWorld) -> Refusal:
    if lead.application not in world.running:
        return None
    return Reason.PLAN_RUNNING, f"a plan for {lead.application} is under way; wait until it has ended"


def _out_of_bounds(lead: OperatorLoad, world: RescaleWorld, to: int) -> Refusal:
    for operator in world.of_application(lead.application):
        if to == lead.parallelism or (to >= max(1, operator.min) and (operator.max is None or to <= operator.max)):
            continue
        span = f"{operator.min} to {operator.max}" if operator.max is not None else f"{operator.min} and more"
        whose = "its bounds are" if operator.name == lead.name else f"the bounds of {operator.name} in the same application are"
        way = "ask for a number within them, or change them in the topology"
        return Reason.OUT_OF_BOUNDS, f"{lead.name} cannot have {executors(to)}: {whose} {span}; {way}"
    return None


def _node(lead: OperatorLoad, world: RescaleWorld, to: int, wanted: Wanted, node: str | None) -> Refusal:
    names = [n.name for n in world.nodes]
    if node is not None and node != ANYWHERE and wanted.node and names and node not in names:
        return Reason.UNKNOWN_NODE, f"there is no node {node}{close(node, names)}"
    at = where(node) if wanted.node else lead.node
    free, more = passes.room(at, world), to if wanted.node else to - lead.parallelism
    if free is not None and more > free:
        left = executors(free) if free else "no executor"
        words = f"{at} has room for {left} more, and this takes {more}; ask for fewer, or another node"
        return Reason.NODE_FULL, words
    return None


def _buckets(lead: OperatorLoad, world: RescaleWorld, to: int, buckets: int | None, wanted: Wanted) -> Refusal:
    if wanted.buckets and not lead.stateful:
        return Reason.NO_BUCKETS, f"{lead.name} keeps no state, so it has no buckets to change"
    if wanted.buckets and not world.repartition:
        why = world.repartition_why or "the engine cannot repartition a checkpoint"
        return Reason.NO_REPARTITION, f"the buckets of {lead.name} cannot be changed: {why}"
    for operator in world.of_application(lead.application):
        has = buckets if operator.name == lead.name else operator.buckets
        if operator.stateful and has is not None and has < to:
            way = f"ask for {to} buckets at least" if operator.name == lead.name else "ask for fewer executors"
            words = (
                f"{operator.name} would have {has} bucket{'' if has == 1 else 's'} for {executors(to)}, some of them idle; {way}"
            )
            return Reason.BUCKETS_BELOW_PARALLELISM, words
    return None


def _committed(lead: OperatorLoad, world: RescaleWorld) -> Refusal:
    for operator in world.of_application(lead.application):
        if not operator.committed:
            words = f"{operator.name} has no committed batch to go on from yet; wait until its first batch is committed"
            return Reason.STATE_NOT_COMMITTED, words
    return None


def _kind(lead: OperatorLoad, kind: Kind | None, wanted: Wanted) -> Refusal:
    if kind is None:
        return None
    if what := lacks(kind, wanted):
        able = " or ".join(k for k in Kind if lacks(k, wanted) is None)
        return Reason.KIND_CANNOT, f"{kind} cannot {what}; {able} can, or leave the kind to the planner"
    if kind is Kind.SHADOW and not lead.stateful:
        return Reason.KIND_CANNOT, f"shadow is for state, and {lead.name} keeps none; leave the kind to the planner"
    return None


def _quota(world: RescaleWorld, policy: Policy) -> Refusal:
    used, most = passes.used_today(world), policy.rescale_quota_per_day
    if used < most:
        return None
    return Reason.QUOTA, f"{used} of {most} changes within 24 hours are used up; wait, or raise rescale_quota_per_day"


def _frozen(world: RescaleWorld, policy: Policy) -> Refusal:
    why = passes.frozen_now(world, policy)
    return (Reason.FROZEN_PERIOD, f"{why}; wait until it is over") if why else None
