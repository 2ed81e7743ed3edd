"""How far from the best possible is the way CPU is shared, and what would the best cost? (`make bench NAME=qod_optimum`)

On small random worlds that have to shed, a linear program (HiGHS) gives the largest sum of accuracies the highest priority can
have; against it stand the papers' literal cycle and ours. Worlds in which several queries have that priority are counted apart:
there the largest sum is had by leaving the expensive ones behind, which the least accuracy over the floor shows. Then one rung of
the program and the whole of `decide` are timed side by side on the world of `qod_scale`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from _common import exit_code, finish, say
from qod_scale import observation
from scipy.optimize import linprog
from scipy.sparse import coo_array
from spillway.decide.qod import decide
from spillway.decide.qod.accuracy import current, demand
from spillway.decide.qod.cpu import available, proportional
from spillway.decide.qod.propagate import upward
from spillway.decide.qod.uses import uses
from spillway.decide.qod.world import columns
from spillway.policy import Policy

from tests.support.qod_lp import best_by_priority
from tests.support.qod_oracle import Oracle
from tests.support.qod_worlds import up_to_date, world

EXACT = Policy(qod_tolerance=0.0, qod_headroom=0.0)


def small_worlds(count: int) -> dict[str, list[dict[str, float]]]:
    """By whether one or several queries have the highest priority: what each way of sharing leaves it short of the optimum."""
    found: dict[str, list[dict[str, float]]] = {"one": [], "several": []}
    for seed in range(count):
        seen = up_to_date(world(seed, calm=True))
        oracle = Oracle(seen)
        everything = dict.fromkeys(oracle.operators, 1.0)
        if any(oracle.share(n) == 0.0 or oracle.cpu(n, everything) == 0.0 for n in oracle.operators):
            continue  # the papers bet on operators that stand still, the program does not
        ours, papers = decide(seen, EXACT), decide(seen, EXACT, paper=True)
        if not ours.feasible or ours.moves or not oracle.overfull(dict.fromkeys(oracle.queries, 1.0)):
            continue
        best = best_by_priority(oracle)
        top = max(oracle.priority(q) for q in best)
        first = [q for q in best if oracle.priority(q) == top]
        if min(best[q] for q in first) > 1.0 - 1e-6:
            continue
        found["one" if len(first) == 1 else "several"].append(
            {
                "ours": statistics.mean(best[q] - ours.queries[q].desired for q in first),
                "papers": statistics.mean(best[q] - papers.queries[q].desired for q in first),
                "least_ours": min(ours.queries[q].desired - ours.queries[q].floor for q in first),
                "least_best": min(best[q] - ours.queries[q].floor for q in first),
            }
        )
    return found


def program(size: int) -> Callable[[], None]:
    """One rung as a linear program over sparse rows, built outside of what is timed."""
    seen = observation(size)
    here = columns(seen.nodes, seen.operators, seen.edges)
    floor = upward(here, here.floor)
    load = proportional(here, current(here, demand(here, 30.0), most=np.inf), floor)
    rows = uses(here, load, load.extra, floor)
    operators, pairs = len(here.operators), here.pair_operator != here.query[here.pair_query]
    resources = len(here.nodes) + operators
    above, below = here.pair_operator[pairs], here.query[here.pair_query[pairs]]
    order = resources + np.arange(len(above))
    matrix = coo_array(
        (
            np.concatenate([rows.weight, np.ones(len(above)), -np.ones(len(above))]),
            (np.concatenate([rows.resource, order, order]), np.concatenate([rows.operator, below, above])),
        ),
        shape=(resources + len(above), operators),
    ).tocsr()
    limit = np.concatenate([available(here), np.full(operators, 100.0), np.zeros(len(above))])
    goal = np.zeros(operators)
    goal[here.query[here.rank == here.rank.max()]] = -1.0
    bounds = np.column_stack([np.minimum(floor, 1.0), np.ones(operators)])

    def solve() -> None:
        solved = linprog(goal, A_ub=matrix, b_ub=limit, bounds=bounds, method="highs")
        assert solved.success, solved.message

    return solve


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    call()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(1000.0 * (time.perf_counter() - began))
    return statistics.median(times)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=1_500, help="random worlds to look at")
    parser.add_argument("--size", type=int, default=2_000, help="instances of the timed world")
    args = parser.parse_args(argv)
    say(f"{args.worlds} small worlds")
    gaps = small_worlds(args.worlds)
    print(f"{'':<28}{'short of the largest sum':^42}{'least over its floor':>24}")
    print(f"{'highest priority':<20}{'worlds':>8}{'papers':>12}{'max':>9}{'ours':>12}{'max':>9}{'ours':>12}{'largest sum':>12}")
    result: dict[str, object] = {}
    for name, found in gaps.items():
        papers, ours = ([case[who] for case in found] for who in ("papers", "ours"))
        least = {who: statistics.mean(case[f"least_{who}"] for case in found) for who in ("ours", "best")}
        print(
            f"{name:<20}{len(found):>8}{statistics.mean(papers):>12.4f}{max(papers):>9.4f}{statistics.mean(ours):>12.4f}"
            f"{max(ours):>9.4f}{least['ours']:>12.4f}{least['best']:>12.4f}"
        )
        result[name] = {
            "worlds": len(found),
            "papers_gap": {"mean": round(statistics.mean(papers), 5), "max": round(max(papers), 5)},
            "gap": {"mean": round(statistics.mean(ours), 5), "max": round(max(ours), 5)},
            "least_over_floor": {who: round(value, 5) for who, value in least.items()},
        }
    say(f"timing {args.size} instances")
    seen = observation(args.size)
    rung = milliseconds(program(args.size), 10)
    whole = milliseconds(lambda: decide(seen, Policy()), 30)
    print(f"{args.size} instances: the program takes {rung:.1f} ms for one rung, the whole decision {whole:.1f} ms")
    goals = {
        "optimal_for_one_query": max(case["ours"] for case in gaps["one"]) < 2e-4,
        "several_queries_lose_at_most_3_pct_of_the_sum": statistics.mean(case["ours"] for case in gaps["several"]) <= 0.03,
    }
    finish("qod_optimum", {**result, "ms": {"program_one_rung": round(rung, 2), "decide": round(whole, 2)}, "goals": goals})
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
