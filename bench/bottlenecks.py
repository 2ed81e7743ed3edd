"""Is the right operator named, in how many steps is there enough, how often is rescaled? (`make bench NAME=bottlenecks`)

On random pipelines of 3 to 40 operators whose limits are known by construction: selectivities, forks that copy or split, joins,
several sources, one or two bottlenecks. The source is raised to a rate between 1.3 and 4 times what can be followed, and then
as far as 26 instances of an operator reach; operators scale linearly, or so that 26 of them reach 54 % of that; measurements
are exact, or off by 3 %. A load that rises and falls every day, with noise and bursts, is then followed for some days, and
halved after the first half of them.

Beside it, on the same worlds and measurements, the published rule of DS2 and of the Flink autoscaler (`_ds2.py`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from _common import exit_code, finish, say
from _ds2 import DS2, FLINK
from _elastic import Climb, Days, Ours, Published, Rule, climb, farthest, live, load, peak_share
from spillway.policy import Policy
from spillway.simulate.planted import Law, planted

T = TypeVar("T")
POLICY = Policy()
NOISE = 0.03
FAR = 26
"""Instances that a sub-linear operator is raised to at most: there it reaches 54 % of linear."""
STEPS_MOST, ONE_STEP_LEAST, RESCALES_MOST = 3, 0.6, 4
RULES: Mapping[str, Callable[[], Rule]] = {
    "ours": lambda: Ours(POLICY),
    "ds2": lambda: Published(DS2, window=1, settle=0),
    "flink": lambda: Published(FLINK, window=1, settle=0),
}
DAILY: Mapping[str, Callable[[], Rule]] = {
    "ours": lambda: Ours(POLICY, every=15),
    "ds2": lambda: Published(DS2, window=10, settle=5),
    "flink": lambda: Published(FLINK, window=15, settle=5, down_after=60),
}
"""Evaluated every minute. Ours looks every quarter of an hour at what could be smaller. DS2 looks at means of ten minutes, and
not within five minutes of a change; the autoscaler has its defaults: means of 15 minutes, 5 to settle, an hour before it scales
down."""


def climbs(seeds: Sequence[int]) -> dict[str, dict[str, list[Climb]]]:
    """By case and rule."""
    cases = {
        f"{law}{' far' if far else ''}{' noisy' if noise else ''}": (law, far, noise)
        for law in Law
        for far in (False, True)
        for noise in (0.0, NOISE)
    }
    found: dict[str, dict[str, list[Climb]]] = {}
    for case, (law, far, noise) in cases.items():
        say(f"{len(seeds)} worlds, {case}")
        of = on_all_cores(partial(climbed, law=law, far=far, noise=noise), seeds)
        found[case] = {name: [one[name] for one in of] for name in RULES}
    return found


def climbed(seed: int, law: Law, far: bool, noise: float) -> dict[str, Climb]:
    """One world, by rule."""
    world = planted(seed, law=law, noise=noise)
    rate = farthest(world, FAR) if far else world.rate
    return {name: climb(world, rate, rule(), POLICY) for name, rule in RULES.items()}


def on_all_cores(of: Callable[[int], T], seeds: Sequence[int]) -> list[T]:
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        return list(pool.map(of, seeds, chunksize=max(1, len(seeds) // 40)))


def daily(seeds: Sequence[int], days: int) -> dict[str, list[Days]]:
    """By rule; every other world is sub-linear."""
    found: dict[str, list[Days]] = {}
    for name in (*DAILY, "peak"):
        say(f"{days} days of {len(seeds)} worlds, {name}")
        found[name] = on_all_cores(partial(lived, days=days, name=name), seeds)
    return found


def lived(seed: int, days: int, name: str) -> Days:
    world = planted(seed, law=list(Law)[seed % 2])
    if name == "peak":
        return peak_share(world, load(world, days))
    return live(world, DAILY[name](), load(world, days), POLICY)


def summary(found: Sequence[Climb]) -> dict[str, float]:
    """Shares of the worlds; steps of those that never had enough count as infinitely many, and `most` says so by None."""
    steps = [one.steps for one in found]
    within = [s for s in steps if s is not None]
    return {
        "named": round(statistics.mean(one.named for one in found), 4),
        "one_step": round(steps.count(1) / len(found), 4),
        "within_3": round(sum(s <= STEPS_MOST for s in within) / len(found), 4),
        "never": len(found) - len(within),
        "most": max(within, default=0),
        "excess": round(statistics.mean(one.excess for one in found), 3),
    }


def by_day(found: Sequence[Days]) -> dict[str, float]:
    rescales = [count for one in found for count in one.rescales]
    return {
        "mean": round(statistics.mean(rescales), 2),
        "most": max(rescales),
        "most_of_one_operator": max(one.most_of_one for one in found),
        "behind_pct": round(100.0 * sum(one.behind for one in found) / sum(one.minutes for one in found), 3),
        "instances": round(statistics.mean(one.instances for one in found), 2),
    }


def conclude(climbed_: Mapping[str, Mapping[str, Sequence[Climb]]], lived_: Mapping[str, Sequence[Days]]) -> int:
    """The goals are ours; what the published rules reach stands beside them."""
    steps = {case: {name: summary(found) for name, found in of.items()} for case, of in climbed_.items()}
    head = f"{'right one named':>17}{'in one step':>13}{'in at most 3':>14}{'most':>6}{'never':>7}{'instances/needed':>18}"
    print(f"{'':<24}{'':<8}{head}")
    for case, of in steps.items():
        for name, one in of.items():
            shares = f"{one['named']:>17.1%}{one['one_step']:>13.1%}{one['within_3']:>14.1%}"
            print(f"{case if name == 'ours' else '':<24}{name:<8}{shares}{one['most']:>6}{one['never']:>7}{one['excess']:>18.2f}")
    days = {name: by_day(found) for name, found in lived_.items()}
    print(f"{'':<32}{'rescales a day':>17}{'most':>6}{'of one operator':>17}{'behind':>10}{'instances/needed':>18}")
    for name, one in days.items():
        often = f"{one['mean']:>17.2f}{one['most']:>6}{one['most_of_one_operator']:>17}"
        print(f"{'':<24}{name:<8}{often}{one['behind_pct']:>9.2f}%{one['instances']:>18.2f}")
    exact = {case: of["ours"] for case, of in steps.items() if "noisy" not in case}
    ours = {case: of["ours"] for case, of in steps.items()}
    goals = {
        "the_right_one_named_in_all": all(one["named"] == 1.0 for one in exact.values()),
        "enough_in_3_steps_in_all": all(one["within_3"] == 1.0 for one in ours.values()),
        "enough_in_one_step_in_60_pct": all(one["one_step"] >= ONE_STEP_LEAST for one in ours.values()),
        "at_most_4_rescales_a_day": days["ours"]["most"] <= RESCALES_MOST,
    }
    result: dict[str, Any] = {"worlds": len(next(iter(climbed_.values()))["ours"]), "steps": steps, "days": days, "goals": goals}
    finish("bottlenecks", result)
    return exit_code(goals)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="worlds that are raised to what they should carry")
    parser.add_argument("--daily", type=int, default=20, help="worlds that are followed for days")
    parser.add_argument("--days", type=int, default=8, help="how long")
    args = parser.parse_args(argv)
    return conclude(climbs(range(args.seeds)), daily(range(args.daily), args.days))


if __name__ == "__main__":
    sys.exit(main())
