"""A rush that stays, played and watched until a rescale has been enough for it; for the demo and for a bench.

How high it is follows what the operator carries where it runs: it begins by a guess, and as soon as the operator's own batches
have told, all rates to come are multiplied so that its peak is as many times that as it should be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf

from spillway.demo.course import Batch, Factor, Rush, capacity, filled, height, in_force, lags, offered, pace, rush, scaled
from spillway.demo.elastic import CYCLES_WHOLE, Change, Elastic, elastic, whole_since
from spillway.demo.line import SHOW_EVERY_S, Line, Playing
from spillway.inject.scenario import Scenario
from spillway.store.rescale import Plan

KNOWN_BY = 2
"""Filled batches of the rush after which is known what the operator carries."""
MOSTLY = 0.75
"""Batches that kept less do not tell how many rows an operator carries."""
AHEAD_S = 1.0
"""Rates are changed for what is to be sent this much later: what is due now may be on its way already."""


class News:
    """What the controllers do, told once."""

    def __init__(self, line: Line, playing: Playing) -> None:
        self.line, self.playing, self.since = line, playing, line.now()
        self._told: set[str] = set()

    def tell(self) -> None:
        for made in self.line.settings(self.since, self.playing):
            self._once(f"decision {made.decision}: keep {made.keep:.2f} on {made.edge}")
        for _, names in self.line.named(self.since, self.playing):
            if names:
                self._once(f"spillway_capacity: {', '.join(names)} holds the pipeline back")
        if plan := self.line.plan(self.since):
            for step in plan.steps:
                if step.state == "done":
                    self._once(f"spillway_rescale: {plan}: {step.step}")

    @property
    def rescaled(self) -> bool:
        plan = self.line.plan(self.since)
        return plan is not None and plan.state == "done"

    def _once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.line.say(what)


@dataclass(slots=True)
class Lasting:
    """A scenario whose rates follow what an operator carries."""

    line: Line
    shape: Scenario
    operator: str
    overload: float
    """Its peak, as a multiple of what the operator carries."""
    cycle_s: float
    carries: float
    """Rows per second: a guess, until it is known."""
    known: bool = False
    factor: Factor = field(default_factory=lambda: Factor(1.0))

    def watch(self) -> Playing:
        """Plays it with the controllers in control, until a rescale has been enough for a while, or to its end."""
        line = self.line
        self.factor = Factor(self._factor())
        line.mode("advise")
        playing = line.play(scaled(self.shape, self.factor))
        news = News(line, playing)
        while playing.thread.is_alive():
            playing.thread.join(SHOW_EVERY_S)
            line.hand_over(playing, self.cycle_s)
            self.follow(playing, news.since)
            news.tell()
            line.say(f"in {playing.rate:>6,.0f}/s   {line.look()}")
            if news.rescaled and held_s(line, playing, news.since) > CYCLES_WHOLE * self.cycle_s + line.pipeline.batch_target_s:
                playing.end()
        playing.ended()
        if playing.ended_at is not None:
            playing.scenario = replace(playing.scenario, duration_s=playing.ended_at - playing.began)
        return playing

    def _factor(self) -> float:
        return self.overload * self.carries / rush(self.shape).peak

    def follow(self, playing: Playing, since: datetime) -> None:
        """Once its filled batches tell what the operator carries, the rates to come are moved to that; not any more once it is
        being rescaled."""
        if self.known or self.line.plan(since) is not None:
            return
        found = capacity(self._rushed(playing, since), self.line.pipeline.batch_target_s, least=KNOWN_BY)
        if found is not None:
            self.carries, self.known = found, True
            self.factor.set(playing.elapsed_s + AHEAD_S, self._factor())
            self.line.say(f"{self.operator} carries {found:,.0f} events a second: the rush is {self.overload:g} times that")

    def measured(self, playing: Playing, since: datetime) -> Elastic:
        """What became of it."""
        line, within = self.line, self.within(playing)
        plan, course = line.plan(since), line.course(since, playing)
        change = None if plan is None else _change(plan, playing)
        until = inf if change is None or change.told_s is None else change.told_s
        before = [b for b in self._rushed(playing, since) if b.ended_s < until]
        full = filled(before, line.pipeline.batch_target_s)
        return elastic(
            self.operator,
            within,
            line.named(since, playing),
            change,
            lags(line.pipeline, course, playing.scenario),
            in_force(line.pipeline, course),
            offered(playing.scenario, within.ends_s - 1.0) / pace(full) if full else None,
            self.cycle_s,
            height=self.height,
        )

    def _rushed(self, playing: Playing, since: datetime) -> list[Batch]:
        """The operator's batches of the rush, as far as they kept what they read: that a row is read costs something, too."""
        begins_s = rush(self.shape).begins_s
        course = self.line.course(since, playing)
        return [b for b in course if b.consumer == self.operator and b.began_s >= begins_s and b.keep >= MOSTLY]

    def within(self, playing: Playing) -> Rush:
        """When it was a rush, by the scenario's own rates: those that were played have a step where they were moved."""
        return rush(replace(self.shape, duration_s=playing.scenario.duration_s))

    @property
    def height(self) -> Rush:
        """When it is at its height."""
        return height(self.shape)


def _change(plan: Plan, playing: Playing) -> Change:
    told = plan.done("cutover") or plan.done("order")
    return Change(
        operator=plan.operator,
        words=f"{plan.changes}, by {plan.kind}",
        state=plan.state,
        asked_s=round(plan.requested_at.timestamp() - playing.began, 1),
        told_s=round(told.ended_at.timestamp() - playing.began, 1) if told and told.ended_at else None,
        pause_s=plan.observed.get("pause_s"),
        steady_s=plan.observed.get("steady_s"),
        more=plan.executors_to > plan.executors_from,
    )


def held_s(line: Line, playing: Playing, since: datetime) -> float:
    """How long everything has been kept for by now, after something was not."""
    now = replace(rush(playing.scenario), ends_s=playing.elapsed_s)
    return now.ends_s - whole_since(in_force(line.pipeline, line.course(since, playing)), now)
