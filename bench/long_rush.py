"""A rush that stays: the operator that holds the pipeline back is named and rescaled, and all is kept again under the same load.

The taxi pipeline on all services: a rush at twice what its heavy query carries, and then a third more than that, which stays.
Airflow's DAGs are in control: `spillway_qod` sheds, `spillway_capacity` names the bottleneck and asks for more executors,
`spillway_rescale` carries that out. It ends when everything was kept for a while, or after five minutes of it.

How much a second executor brings depends on what else there is to do on the cores: with two of them, Kafka, Postgres, Airflow,
drivers and the other operators take about one.

    make bench NAME=long_rush
    make bench NAME=long_rush ARGS="--overload 1.8"
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

from _common import REPO, exit_code, fail, finish, say
from _line import Strangers, on_airflow
from spillway.demo.control import CYCLES_LAGGING, controlled
from spillway.demo.course import Rush, cycles, height, in_force, lags, offered, rush, scaled
from spillway.demo.elastic import CYCLES_WHOLE, Change, Elastic, elastic, whole_since
from spillway.demo.flood import saturate
from spillway.demo.hand import Hand
from spillway.demo.line import SHOW_EVERY_S, Line, LineFailed, Playing
from spillway.inject.scenario import Scenario, load
from spillway.policy import Policy

HEAVY = "heavy"
TUNABLES: dict[str, Any] = {
    "capacity_cycle_s": 20, "rescale_persist_evaluations": 2, "rescale_interval_s": 10, "rescale_cooldown_up_s": 0,
}  # fmt: skip
"""A bottleneck of a minute is rescaled here; with the defaults it takes three."""


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
                self._once(f"bottleneck: {', '.join(names)}")
        if plan := self.line.plan(self.since):
            for step in plan.steps:
                if step.state == "done":
                    self._once(f"{plan}: {step.step}")

    @property
    def rescaled(self) -> bool:
        plan = self.line.plan(self.since)
        return plan is not None and plan.state == "done"

    def _once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            say(what)


def watch(line: Line, scenario: Scenario, cycle_s: float) -> Playing:
    """Plays the scenario until a rescale has been enough for a while, or to its end."""
    line.mode("advise")
    playing = line.play(scenario)
    news = News(line, playing)
    while playing.thread.is_alive():
        playing.thread.join(SHOW_EVERY_S)
        line.hand_over(playing, cycle_s)
        news.tell()
        say(f"in {playing.rate:>6,.0f}/s   {line.look()}")
        if news.rescaled and held_s(line, playing, news.since) > CYCLES_WHOLE * cycle_s + SHOW_EVERY_S:
            playing.end()
    playing.ended()
    if playing.ended_at is not None:
        playing.scenario = replace(scenario, duration_s=playing.ended_at - playing.began)
    return playing


def held_s(line: Line, playing: Playing, since: datetime) -> float:
    """How long everything has been kept for by now, after something was not."""
    now = replace(rush(playing.scenario), ends_s=playing.elapsed_s)
    return now.ends_s - whole_since(in_force(line.pipeline, line.course(since, playing)), now)


def measured(line: Line, playing: Playing, since: datetime, within: Rush, capacity: float, cycle_s: float) -> Elastic:
    plan, course = line.plan(since), line.course(since, playing)
    change = None
    if plan is not None:
        told = plan.done("cutover") or plan.done("order")
        change = Change(
            operator=plan.operator,
            words=f"{plan.changes}, by {plan.kind}",
            state=plan.state,
            asked_s=round(plan.requested_at.timestamp() - playing.began, 1),
            told_s=round(told.ended_at.timestamp() - playing.began, 1) if told and told.ended_at else None,
            pause_s=plan.observed.get("pause_s"),
            steady_s=plan.observed.get("steady_s"),
            more=plan.executors_to > plan.executors_from,
        )
    return elastic(
        HEAVY,
        within,
        line.named(since, playing),
        change,
        lags(line.pipeline, course, playing.scenario),
        in_force(line.pipeline, course),
        offered(playing.scenario, within.ends_s - 1.0) / capacity,
        cycle_s,
    )


def goals(found: Elastic, floors_kept: bool, cycle_s: float) -> dict[str, bool]:
    """What is promised of a rush that stays: it is not shed for longer than it takes to rescale."""
    change = found.change
    return {
        "bottleneck_is_named": found.named == (found.operator,),
        "it_is_rescaled": bool(change and change.operator == found.operator and change.more and change.state == "done"),
        f"lag_is_back_within_{CYCLES_LAGGING}_cycles": cycles(found.lagging_s, cycle_s) <= CYCLES_LAGGING,
        f"all_is_kept_for_{CYCLES_WHOLE}_cycles_though_it_stays": found.held_s >= CYCLES_WHOLE * cycle_s and found.load > 1.0,
        "floors_are_kept": floors_kept,
    }


def result(found: Elastic) -> dict[str, Any]:
    """For JSON, which has no infinity: what did not come to pass is null."""
    return {
        name: None if value == inf else round(value, 2) if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }


def run(stack: Any, line: Line, policy: Policy, scenario: Scenario, overload: float) -> int:
    line.start("off")
    capacity = saturate(line, scenario, HEAVY, Hand(say, line.pipeline.name))
    scenario = scaled(scenario, overload * capacity / rush(scenario).peak)
    since, strangers, cycle_s = line.now(), Strangers(stack), policy.qod_cycle_s
    playing = watch(line, scenario, cycle_s)
    others, within = strangers.cpu_pct(), rush(playing.scenario)
    line.drain()
    found = measured(line, playing, since, within, capacity, cycle_s)
    course, settings = line.course(since, playing), line.settings(since, playing)
    control = controlled(line.pipeline, playing.scenario, within, course, settings, cycle_s, height=height(playing.scenario))
    met = goals(found, control.floors_kept, cycle_s)
    finish(
        "long_rush",
        {
            "capacity_per_s": round(capacity, 1),
            **result(found),
            "least_accuracy": {q: round(a, 3) for q, a in control.least.items()},
            "strangers_cpu_pct": others,
            "goals": met,
        },
    )
    return exit_code(met)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--overload", type=float, default=2.0, help="its height as a multiple of what the query carries; two thirds of it stay"
    )
    parser.add_argument("--pipeline", type=Path, default=REPO / "pipelines" / "taxi.yaml", help="another declaration of taxi")
    parser.add_argument("--rates", type=float, default=1.0, help="what is sent before it is known how much that one carries")
    args = parser.parse_args(argv)
    scenario = scaled(replace(load(REPO / "scenarios" / "long_rush.yaml"), pipelines=()), args.rates)
    try:
        with on_airflow(args.pipeline, **TUNABLES) as (stack, line, policy):
            return run(stack, line, policy, scenario, args.overload)
    except LineFailed as error:
        return fail(str(error))


if __name__ == "__main__":
    sys.exit(main())
