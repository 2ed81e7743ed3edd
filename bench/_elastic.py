"""Planted worlds under a rule that sizes operators: ours, or one of those it is measured against.

Every rule gets the same measurements: parallelism, capacities as they were measured, shares of the edges, rates at the sources,
what waits.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from _ds2 import Sizing, narrowest, target_rates
from spillway.decide.capacity import detect
from spillway.decide.rescale import judge, plan_rescale
from spillway.model.rescale import Change, Effect, Flow, OperatorLoad, RescaleWorld, Sample
from spillway.model.rescale_plan import Reason, Stage
from spillway.policy import Policy
from spillway.simulate.planted import NeverEnough, PlantedWorld

BEGIN = datetime(2031, 5, 5, tzinfo=UTC)
DAY_MIN = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One evaluation: what was measured in the last minute."""

    at: datetime
    order: tuple[str, ...]
    """Operators, producers first."""
    parallelism: Mapping[str, int]
    capacity: Mapping[str, float]
    edges: tuple[Flow, ...]
    bottlenecks: frozenset[str]
    window_s: float = 0.0
    """How long the peaks of the sources go back."""

    @property
    def targets(self) -> dict[str, float]:
        return target_rates(self.order, self.edges)


class Rule(Protocol):
    def evaluate(self, seen: Seen) -> dict[str, int]:
        """Operators that get another parallelism now."""


class Ours:
    """`plan_rescale`, with what it remembers; what the drivers would do is done at once."""

    def __init__(self, policy: Policy, *, every: int = 1) -> None:
        self.policy = policy
        self.every = every
        """While nobody is a bottleneck, only every so many evaluations are planned on: scaling down has time."""
        self.history: list[Change] = []
        self.named: dict[str, int] = {}
        self.evaluations = 0
        self.quota_held = 0
        """Evaluations in which somebody was not scaled up because the quota was used up."""

    def evaluate(self, seen: Seen) -> dict[str, int]:
        self.evaluations += 1
        self.named = {n: self.named.get(n, 0) + 1 for n in seen.bottlenecks}
        if not seen.bottlenecks and self.evaluations % self.every:
            return {}
        self._learn(seen)
        decision = plan_rescale(
            RescaleWorld(
                now=seen.at,
                operators=tuple(
                    OperatorLoad(
                        name=n,
                        application=n,
                        parallelism=seen.parallelism[n],
                        capacity=seen.capacity[n],
                        bottleneck_for=self.named.get(n, 0),
                    )
                    for n in seen.order
                ),
                edges=seen.edges,
                history=tuple(self.history),
                window_s=seen.window_s,
            ),
            self.policy,
        )
        self.quota_held += any(p.reason is Reason.QUOTA and p.passes[0].stage is Stage.TARGET for p in decision.plans)
        self.history += [
            Change(
                at=seen.at,
                operator=p.operator,
                application=p.application,
                kind=p.kind,
                executors_from=p.executors_from,
                executors_to=p.executors_to,
                decision=str(self.evaluations),
                rate_before=p.rate_before,
                expected_rate=p.expected_rate,
            )
            for p in decision.changes
            if p.kind is not None
        ]
        if decision.changes:
            self.named = {}
        return {p.operator: p.executors_to for p in decision.changes}

    def _learn(self, seen: Seen) -> None:
        """Compares what changes brought with what was expected; forgets what is too old to matter."""
        for number, change in enumerate(self.history):
            if change.effective is None and seen.parallelism[change.operator] == change.executors_to:
                observed = Sample(parallelism=change.executors_to, capacity=seen.capacity[change.operator])
                effect = judge(change, observed, self.policy, now=seen.at)
                if effect is not Effect.TOO_EARLY:
                    worked = effect is Effect.EFFECTIVE
                    self.history[number] = replace(change, effective=worked, observed_rate=observed.capacity)
        self.history = [c for c in self.history if seen.at - c.at < timedelta(days=14)]


class Published:
    """DS2 or the Flink autoscaler: means over a window, nothing for a while after a change, scaling down only after a delay."""

    def __init__(self, sizing: Sizing, *, window: int, settle: int, down_after: int = 0) -> None:
        self.sizing, self.window, self.settle, self.down_after = sizing, window, settle, down_after
        self.targets: list[dict[str, float]] = []
        self.quiet = 0
        self.lower_since: int | None = None
        self.evaluations = 0

    def evaluate(self, seen: Seen) -> dict[str, int]:
        self.evaluations += 1
        self.targets = [*self.targets[1 - self.window :], seen.targets] if self.window > 1 else [seen.targets]
        if self.quiet > 0:
            self.quiet -= 1
            return {}
        mean = {n: sum(t[n] for t in self.targets) / len(self.targets) for n in seen.order}
        waits = {n: sum(e.backlog or 0.0 for e in seen.edges if e.consumer == n) for n in seen.order}
        wanted = self.sizing.parallelism(seen.parallelism, seen.capacity, mean, waits)
        changed = {n: count for n, count in wanted.items() if count != seen.parallelism[n]}
        if changed and all(count < seen.parallelism[n] for n, count in changed.items()):
            self.lower_since = self.evaluations if self.lower_since is None else self.lower_since
            if self.evaluations - self.lower_since < self.down_after:
                return {}
        if changed:
            self.quiet, self.lower_since = self.settle, None
        elif wanted == dict(seen.parallelism):
            self.lower_since = None
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """How a rule got from the beginning of a world to enough parallelism."""

    named: bool
    """The right operators were named at the beginning."""
    steps: int | None
    """Changes until every operator had what is needed; None: it never had."""
    excess: float
    """Instances of the operators that were changed or should have been, over what they need."""


def farthest(world: PlantedWorld, instances: int) -> float:
    """The largest rate of the source at which no operator needs more than so many instances, found by halving."""

    def fits(rate: float) -> bool:
        try:
            return max(world.needed(rate).values()) <= instances
        except NeverEnough:
            return False

    low, high = world.sustained, world.sustained * 2.0
    while fits(high):
        low, high = high, high * 2.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def climb(world: PlantedWorld, rate: float, rule: Rule, policy: Policy, *, looks: int = 40) -> Climb:
    """Evaluates every ten minutes until nothing is short any more; the detector names bottlenecks."""
    parallelism, needed = dict(world.parallelism), world.needed(rate)
    short = {n for n in needed if parallelism[n] < needed[n]}
    touched, named, steps = set(short), True, 0
    for look in range(looks):
        if all(parallelism[n] >= needed[n] for n in needed):
            break
        seen, right = _look(world, parallelism, rate, policy, look, isinstance(rule, Ours))
        named = named if look else right
        changed: dict[str, int] = {}
        for minute in range(policy.rescale_persist_evaluations):
            changed = changed or rule.evaluate(replace(seen, at=seen.at + timedelta(minutes=minute)))
        parallelism |= changed
        touched |= set(changed)
        steps += bool(changed)
    enough = all(parallelism[n] >= needed[n] for n in needed)
    excess = sum(parallelism[n] for n in touched) / sum(needed[n] for n in touched)
    return Climb(named=named, steps=steps if enough else None, excess=excess)


def _look(
    world: PlantedWorld, parallelism: Mapping[str, int], rate: float, policy: Policy, look: int, detects: bool
) -> tuple[Seen, bool]:
    """What is measured now, and whether the right operators are named."""
    watched = world.observe(parallelism, rate, seed=look)
    finding = detect(watched, policy)
    seen = Seen(
        at=BEGIN + timedelta(minutes=10 * look),
        order=tuple(o.name for o in world.operators),
        parallelism=dict(parallelism),
        capacity={o.operator: o.capacity or 0.0 for o in finding.operators},
        edges=tuple(
            Flow(
                producer=e.producer,
                topic=e.topic,
                consumer=e.consumer,
                selectivity=e.share,
                arrival=e.arrival if e.producer is None else None,
                backlog=e.backlog,
            )
            for e in watched.edges
        ),
        bottlenecks=frozenset(finding.bottlenecks),
    )
    named = seen.bottlenecks if detects else narrowest(seen.capacity, seen.targets)
    return seen, named == world.truth(parallelism, rate)


@dataclass(slots=True)
class Days:
    """Simulated days of one world under one rule."""

    rescales: list[int] = field(default_factory=list)
    """Decisions that changed something, by day."""
    most_of_one: int = 0
    """The most changes of one operator on one day."""
    behind: int = 0
    """Minutes in which more than a minute of arrivals waited somewhere."""
    minutes: int = 0
    instances: float = 0.0
    """Instance-minutes over those that would just have been needed."""


def load(world: PlantedWorld, days: int) -> list[float]:
    """Rates by minute: five times as high at noon as at night, noise that lasts, bursts, and half of it in the second half."""
    rng = random.Random(f"diurnal {world.seed}")
    drift, burst, left, found = 0.0, 1.0, 0, []
    for minute in range(days * DAY_MIN):
        day = 0.5 - 0.5 * math.cos(2.0 * math.pi * (minute % DAY_MIN) / DAY_MIN)
        drift = 0.9 * drift + rng.gauss(0.0, 0.035)
        left -= 1
        if left <= 0:
            burst = 1.0
            if rng.random() < 2.0 / DAY_MIN:
                burst, left = rng.uniform(1.2, 1.6), rng.randint(5, 15)
        level = 1.0 if minute < days * DAY_MIN / 2 else 0.5
        found.append(level * world.rate * (0.2 + 0.8 * day**1.5) * math.exp(drift) * burst)
    return found


def peak_share(world: PlantedWorld, rates: list[float]) -> Days:
    """What it costs to have always what the highest rate needs, and never to rescale."""
    hourly = [sum(world.needed(rate).values()) for rate in rates[::60]]
    most = sum(world.needed(max(rates)).values())
    share = sum(most / needed for needed in hourly) / len(hourly)
    return Days(rescales=[0] * (len(rates) // DAY_MIN), minutes=len(rates), instances=share)


def live(world: PlantedWorld, rule: Rule, rates: list[float], policy: Policy, *, noise: float = 0.03) -> Days:
    """Minute by minute: rows wait in front of whoever cannot follow; busy all the time with rows waiting is a bottleneck.

    The detector is not asked here: 1 440 times a day would take hours, and that it names the right one is measured apart.
    """
    rng = random.Random(f"live {world.seed}")
    parallelism = dict(world.parallelism)
    names = tuple(o.name for o in world.operators)
    into = {n: [e for e in world.edges if e.consumer == n] for n in names}
    queue = dict.fromkeys(names, 0.0)
    window = round(policy.rescale_down_window_s / 60.0)
    days, today = Days(), Counter[str]()
    for minute, rate in enumerate(rates):
        taken: dict[str, float] = {}
        full, late = set(), False
        for n in names:
            asked = sum(e.share * (_source(world, e.topic, rate) if e.producer is None else taken[e.producer]) for e in into[n])
            most = world.capacity(n, parallelism[n])
            taken[n] = min(most, asked + queue[n] / 60.0)
            queue[n] = max(0.0, queue[n] + (asked - taken[n]) * 60.0)
            if queue[n] > 0.0 and taken[n] >= most:
                full.add(n)
            late = late or queue[n] > asked * 60.0
        days.behind += late
        days.minutes += 1
        if minute % 60 == 0:
            ideal = sum(world.needed(rate).values())
            days.instances += sum(parallelism.values()) / ideal
        peak = max(rates[max(0, minute - window) : minute + 1])
        changed = rule.evaluate(
            Seen(
                at=BEGIN + timedelta(minutes=minute),
                order=names,
                parallelism=dict(parallelism),
                capacity={n: world.capacity(n, parallelism[n]) * max(0.5, rng.gauss(1.0, noise)) for n in names},
                edges=_flows(world, rate, peak, queue),
                bottlenecks=frozenset(full),
                window_s=60.0 * min(minute, window),
            )
        )
        parallelism |= changed
        today.update(["", *changed] if changed else [])
        if (minute + 1) % DAY_MIN == 0:
            days.rescales.append(today.pop("", 0))
            days.most_of_one = max(days.most_of_one, *today.values(), 0)
            today.clear()
    days.instances /= max(1, math.ceil(len(rates) / 60))
    return days


def _flows(world: PlantedWorld, rate: float, peak: float, queue: Mapping[str, float]) -> tuple[Flow, ...]:
    first: set[str] = set()
    found = []
    for e in world.edges:
        found.append(
            Flow(
                producer=e.producer,
                topic=e.topic,
                consumer=e.consumer,
                selectivity=e.share,
                arrival=_source(world, e.topic, rate) if e.producer is None else None,
                peak=_source(world, e.topic, peak) if e.producer is None else None,
                backlog=0.0 if e.consumer in first else queue[e.consumer],
            )
        )
        first.add(e.consumer)
    return tuple(found)


def _source(world: PlantedWorld, topic: str | None, rate: float) -> float:
    return rate if topic == world.topic else world.others[topic or ""]
