"""How many executors an operator should have: up when it holds back what is needed, down when a long past would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from spillway.decide.rescale.curve import Curve, fit
from spillway.decide.rescale.demand import Demand
from spillway.model.rescale import Change, OperatorLoad, Outcome, RescaleWorld, Sample
from spillway.model.rescale_plan import Reason
from spillway.policy import Policy

LEADING = (Reason.BOTTLENECK_PERSISTS, Reason.FLOORS_INFEASIBLE)
STREAK = timedelta(hours=12)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
ROOM_MOST = 0.6
"""Operators are left no less busy than this share of the target utilisation."""
ROOM_WORTH, WORTH = 0.25, 0.05
"""Room to spare is made while an executor brings this share of what the first one does; what is needed, while it brings that."""
BACK_MOST = 2.0
"""What is taken back of a scaling down is at most so many times what is needed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """What an operator should have and why, before any limit."""

    operator: OperatorLoad
    reason: Reason
    """Why it is sized at all."""
    target: int
    why: Reason
    """Why it is this number."""
    words: str
    needed: float
    curve: Curve

    @property
    def leads(self) -> bool:
        """It is not only sized because another one is."""
        return self.reason in LEADING


def capacity(operator: OperatorLoad) -> float | None:
    """What it could carry as it is: measured; all it carries, as a bottleneck; what it carries over the time it is busy.

    >>> from spillway.decide.rescale.examples import operator
    >>> capacity(operator(capacity=None)), capacity(operator(capacity=None, rate=90.0, bottleneck_for=0, utilisation=0.3))
    (300.0, 300.0)
    """
    if operator.capacity:
        return operator.capacity
    if operator.rate and operator.bottleneck_for:
        return operator.rate
    if operator.rate and operator.utilisation:
        return operator.rate / operator.utilisation
    return None


def curve(operator: OperatorLoad, world: RescaleWorld, prior: float) -> Curve | None:
    """Through what it can carry now, bent by what it could carry at other parallelisms; None when nothing is known."""
    now = capacity(operator)
    if now is None:
        return None
    changes = [c for c in world.history if c.operator == operator.name and c.outcome is Outcome.DONE and not c.rebuckets]
    before = [Sample(parallelism=c.executors_from, capacity=c.rate_before) for c in changes if c.rate_before]
    after = [Sample(parallelism=c.executors_to, capacity=c.observed_rate) for c in changes if c.observed_rate]
    return fit(operator.parallelism, now, (*operator.seen, *before, *after), prior)


def persists(operator: OperatorLoad, world: RescaleWorld, policy: Policy) -> Reason | None:
    """Why it has to be scaled up by itself, if it has to.

    Floors that cannot be kept are shed below at every moment, so then one evaluation is enough, and instances they miss as well.

    >>> from spillway.decide.rescale.examples import operator, world
    >>> persists(operator(), world(), Policy()), persists(operator(bottleneck_for=1), world(), Policy())
    (<Reason.BOTTLENECK_PERSISTS: 'bottleneck_persists'>, None)
    """
    if operator.bottleneck_for >= policy.rescale_persist_evaluations:
        return Reason.BOTTLENECK_PERSISTS
    if world.floors_infeasible and (operator.bottleneck_for or operator.instances_short):
        return Reason.FLOORS_INFEASIBLE
    return None


def size_up(operator: OperatorLoad, world: RescaleWorld, demand: Demand, policy: Policy, share: float = 1.0) -> Sized | None:
    """Executors with which it carries what is needed at the target utilisation; None when it does already.

    `share` of what is needed is what the operators that lead let through once they are larger. Where only a bottleneck is known
    and not what is needed, that is at least what it carries: a cautious step in the right direction. A bottleneck that is short
    of a little gets a step that is worth its pause.

    >>> from spillway.decide.rescale.demand import demand
    >>> from spillway.decide.rescale.examples import ads
    >>> (parse, count), policy = ads().operators, Policy()
    >>> found = size_up(count, ads(), demand(ads(), 600.0), policy)
    >>> found.target, found.reason.value, found.words
    (3, 'bottleneck_persists', 'needs 520 rows/s at 75 % utilisation and can carry 300 with 1 executor')
    >>> size_up(parse, ads(), demand(ads(), 600.0), policy) is None
    True
    """
    needed, reason = demand.needed.get(operator.name), persists(operator, world, policy)
    room = roomy(world, policy)
    if reason is Reason.BOTTLENECK_PERSISTS and not _short(operator, needed, policy):
        return None
    if reason is None and needed is not None:
        needed *= share
        reason = _follows(operator, world, needed, room, policy)
    bent = curve(operator, world, policy.rescale_serial_share) if reason else None
    if bent is None or reason is None:
        return None
    needed = bent.capacity if needed is None else needed
    busy = room * policy.rescale_target_utilisation
    target, why = _sized(bent, needed, busy)
    least, back = _least(operator, reason), _before_down(operator, world)
    if least > target:
        target, why = least, Reason.FLOOR_INSTANCES
    if target < back and why is not Reason.CURVE_SATURATES:
        target, why = max(target, min(back, math.ceil(BACK_MOST * target))), Reason.BACK_TO_BEFORE
    if target <= operator.parallelism:
        if why is not Reason.CURVE_SATURATES or reason not in LEADING:
            return None
        target = operator.parallelism
    elif reason in LEADING:
        target = max(target, math.floor(operator.parallelism * (1.0 + policy.rescale_tolerance)) + 1)
    words = f"needs {needed:,.0f} rows/s at {100 * busy:.0f} % utilisation and can carry {bent.capacity:,.0f} with "
    words += executors(operator.parallelism) + _because(why, back)
    return Sized(operator=operator, reason=reason, target=target, why=why, words=words, needed=needed, curve=bent)


def _short(operator: OperatorLoad, needed: float | None, policy: Policy) -> bool:
    """Whether it is too small for what is needed, as far as that is known: one that works off a backlog may be fast enough."""
    now = capacity(operator)
    return needed is None or (now is not None and needed > policy.rescale_up_utilisation * now)


def _follows(operator: OperatorLoad, world: RescaleWorld, needed: float, room: float, policy: Policy) -> Reason | None:
    """Why it grows when another one does: it would be the next bottleneck, or it would be busy and was made smaller before."""
    if _short(operator, needed / room, policy):
        return Reason.NEXT_BOTTLENECK
    busy = (now := capacity(operator)) is not None and needed > policy.rescale_down_utilisation * now
    return Reason.BACK_TO_BEFORE if busy and _before_down(operator, world) > operator.parallelism else None


def _least(operator: OperatorLoad, reason: Reason) -> int:
    """Executors that the floors miss."""
    return operator.parallelism + operator.instances_short if reason is Reason.FLOORS_INFEASIBLE else 0


def _because(why: Reason, back: int) -> str:
    if why is Reason.CURVE_SATURATES:
        return ", and further ones would bring next to nothing"
    return f", and had {executors(back)} within the last week" if why is Reason.BACK_TO_BEFORE else ""


def size_down(operator: OperatorLoad, world: RescaleWorld, demand: Demand, policy: Policy) -> Sized | None:
    """Executors with which the peak of the window would have kept it under the utilisation for scaling down.

    None when that is not known, or fewer are not enough. Without a past of its own an operator is taken to scale linearly here,
    which makes fewer executors look slower: the other caution than on the way up.

    >>> from spillway.decide.rescale.examples import operator, world
    >>> idle = operator(parallelism=8, capacity=800.0, rate=90.0, needed=90.0, peak=150.0, bottleneck_for=0)
    >>> found = size_down(idle, world(idle, window_s=21600.0), Demand(needed={"count": 90.0}, peak={"count": 150.0}), Policy())
    >>> found.target, found.words
    (3, 'had to carry 150 rows/s at most in 6 h, and could carry 800 with 8 executors')
    """
    now, peak = capacity(operator), demand.peak.get(operator.name)
    if now is None or peak is None:
        return None
    most = max(peak, demand.needed.get(operator.name, 0.0))
    bent = curve(operator, world, 0.0) if most < policy.rescale_down_utilisation * now else None
    target = bent.enough(most / policy.rescale_down_utilisation) if bent else operator.parallelism
    if bent is None or target >= operator.parallelism:
        return None
    words = (
        f"had to carry {most:,.0f} rows/s at most in {world.window_s / 3600:g} h, and could carry {bent.capacity:,.0f} with "
        f"{executors(operator.parallelism)}"
    )
    why = Reason.SIZED_BY_OWN_CURVE if bent.learned else Reason.SIZED_BY_PRIOR
    return Sized(operator=operator, reason=Reason.UNDERUSED, target=target, why=why, words=words, needed=most, curve=bent)


def _sized(bent: Curve, needed: float, busy: float) -> tuple[int, Reason]:
    """What carries the need, with room to spare as far as that is cheap; no more than what is worth anything.

    >>> _sized(Curve(parallelism=1, capacity=100.0, serial=0.04), 1000.0, 0.75)
    (24, <Reason.SIZED_BY_PRIOR: 'sized_by_prior'>)
    >>> _sized(Curve(parallelism=1, capacity=100.0, serial=0.04), 2600.0, 0.75)
    (85, <Reason.CURVE_SATURATES: 'curve_saturates'>)
    """
    roomy = min(bent.enough(needed / busy), bent.worth(ROOM_WORTH))
    target, most = max(bent.enough(needed), roomy), bent.worth(WORTH)
    if target > most:
        return most, Reason.CURVE_SATURATES
    return target, Reason.SIZED_BY_OWN_CURVE if bent.learned else Reason.SIZED_BY_PRIOR


def takes(one: Sized) -> float:
    """Cores that an operator would use more with its target: an executor that is busy takes one.

    One executor that is shed to what it can carry in four fifths of its time; two would be busy for two thirds of theirs:

    >>> from spillway.decide.rescale.demand import Demand
    >>> from spillway.decide.rescale.examples import operator, world
    >>> heavy = operator(parallelism=1, utilisation=0.8)
    >>> found = size_up(heavy, world(heavy), Demand(needed={"count": 400.0}, peak={}), Policy())
    >>> found.target, round(takes(found), 2)
    (2, 0.56)
    """
    operator, target = one.operator, one.target
    if operator.max is not None:
        target = max(operator.parallelism, min(target, operator.max))
    busy = 1.0 if operator.utilisation is None else operator.utilisation
    carries = one.curve.at(target)
    then = min(1.0, one.needed / carries) if carries > 0.0 else 1.0
    return max(0.0, target * then - operator.parallelism * busy)


def executors(count: int) -> str:
    return f"{count} executor{'' if count == 1 else 's'}"


def roomy(world: RescaleWorld, policy: Policy) -> float:
    """How busy operators may be after a scaling up, as a share of the target utilisation.

    Every further decision to scale up in a row leaves more room, the root of the target utilisation once more as a factor, so
    that a load that goes on rising takes few of them.

    >>> from spillway.decide.rescale.examples import NOW, world
    >>> from spillway.model.rescale import Kind
    >>> up = Change(at=NOW, operator="a", application="a", kind=Kind.RESTART, executors_from=1, executors_to=2)
    >>> [round(roomy(world(history=(up,) * n), Policy()), 2) for n in (0, 1)]
    [1.0, 0.87]
    """
    ups: set[object] = set()
    for change in reversed(world.history):
        if world.now - change.at > STREAK or (change.down and change.outcome is Outcome.DONE):
            break
        if change.up and change.outcome is Outcome.DONE:
            ups.add(change.decision or change.at)
    return max(ROOM_MOST, math.sqrt(policy.rescale_target_utilisation) ** len(ups))


def _before_down(operator: OperatorLoad, world: RescaleWorld) -> int:
    """What it had before it was made smaller within the last week; that is needed again, so all of it at once."""
    downs = [c.executors_from for c in _done(operator, world) if c.down and world.now - c.at <= WEEK]
    return max(downs, default=0)


def _done(operator: OperatorLoad, world: RescaleWorld) -> list[Change]:
    return [c for c in world.history if c.application == operator.application and c.outcome is Outcome.DONE]
