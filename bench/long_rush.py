"""A rush that stays: the operator that holds the pipeline back is named and rescaled, and all is kept again under the same load.

The taxi pipeline on all services: a rush at twice what its heavy query carries, and then somewhat more than that, which stays.
Airflow's DAGs are in control: `spillway_qod` sheds, `spillway_capacity` names the bottleneck and asks for more executors,
`spillway_rescale` carries that out. It ends when everything was kept for a while, or after four minutes of it.

How much a second executor brings depends on what else there is to do on the cores: with two of them, Kafka, Postgres, Airflow,
drivers and the other operators take about one.

    make bench NAME=long_rush
    make bench NAME=long_rush ARGS="--overload 1.8"
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

from _common import REPO, exit_code, fail, finish, say
from _line import ELASTIC, Strangers, on_airflow
from spillway.demo.control import CYCLES_LAGGING, controlled
from spillway.demo.course import scaled
from spillway.demo.elastic import CYCLES_WHOLE, Elastic
from spillway.demo.flood import warm
from spillway.demo.hand import Hand
from spillway.demo.lasting import Lasting
from spillway.demo.line import Line, LineFailed
from spillway.inject.scenario import Scenario, load
from spillway.policy import Policy

HEAVY = "heavy"


def goals(found: Elastic, floors_kept: bool, cycle_s: float) -> dict[str, bool]:
    """What is promised of a rush that stays: it is not shed for longer than it takes to rescale."""
    return {
        "bottleneck_is_named": found.is_named,
        "it_is_rescaled": found.is_rescaled,
        f"lag_is_back_within_{CYCLES_LAGGING}_cycles": found.lag_is_back(cycle_s),
        f"all_is_kept_for_{CYCLES_WHOLE}_cycles_though_it_stays": found.stays_whole(cycle_s),
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
    guess = warm(line, scenario, HEAVY, Hand(say, line.pipeline.name))
    since, strangers, cycle_s = line.now(), Strangers(stack), policy.qod_cycle_s
    rushing = Lasting(line=line, shape=scenario, operator=HEAVY, overload=overload, cycle_s=cycle_s, carries=guess)
    playing = rushing.watch()
    others, within = strangers.cpu_pct(), rushing.within(playing)
    line.drain()
    found = rushing.measured(playing, since)
    course, settings = line.course(since, playing), line.settings(since, playing)
    control = controlled(line.pipeline, playing.scenario, within, course, settings, cycle_s, height=rushing.height)
    met = goals(found, control.floors_kept, cycle_s)
    finish(
        "long_rush",
        {
            "capacity_per_s": round(rushing.carries, 1),
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
        "--overload", type=float, default=2.0, help="its height as a multiple of what the query carries; 0.59 of it stay"
    )
    parser.add_argument("--pipeline", type=Path, default=REPO / "pipelines" / "taxi.yaml", help="another declaration of taxi")
    parser.add_argument("--rates", type=float, default=1.0, help="what is sent before it is known how much that one carries")
    args = parser.parse_args(argv)
    scenario = scaled(replace(load(REPO / "scenarios" / "long_rush.yaml"), pipelines=()), args.rates)
    try:
        with on_airflow(args.pipeline, ELASTIC) as (stack, line, policy):
            return run(stack, line, policy, scenario, args.overload)
    except LineFailed as error:
        return fail(str(error))


if __name__ == "__main__":
    sys.exit(main())
