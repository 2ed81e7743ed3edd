"""How soon an overload is answered, through Airflow: from the second it begins to the first batch with a lower keep; and the
CPU of the cycle.

The taxi pipeline runs on all embedded services, in mode `apply`. Load rises in steps, each of them more than the keep in force
lets the heavy query carry, falls, and rises again. The CPU of Airflow and Postgres is measured with the DAG spillway_qod paused
and with it running.

    make bench NAME=reaction
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from _common import REPO, all_published, exit_code, fail, finish, say, statuses
from _line import Airflow, Cpu, Strangers, on_airflow
from spillway.act.live import last_window
from spillway.demo.course import Batch, Set, offered, rush
from spillway.demo.line import Line, LineFailed
from spillway.inject.profiles import Constant, Piecewise
from spillway.inject.scenario import Scenario, load
from spillway.policy import Policy

DAG, HEAVY = "spillway_qod", "heavy"
STEPS = (1.4, 2.0, 2.7)
"""Multiples of what the heavy query carries."""
CALM, CALM_CYCLES, STEP_CYCLES, ROUNDS = 0.4, 6, 2.2, 2
GOAL_CYCLES, GOAL_RUN_S, GOAL_CPU_PCT = 2.0, 4.0, 20.0


def staircase(scenario: Scenario, capacity: float, cycle_s: float) -> tuple[Scenario, list[float]]:
    """The topics of the scenario, as in its rush, at multiples of what the heavy query carries; and when each step begins."""
    pieces, begins = [(20.0, CALM)], []
    for number in range(ROUNDS):
        if number:
            pieces.append((CALM_CYCLES * cycle_s, CALM))
        for step in STEPS:
            begins.append(sum(length for length, _ in pieces))
            pieces.append((STEP_CYCLES * cycle_s, step))
    within = rush(scenario)
    middle = (within.begins_s + within.ends_s) / 2

    def rate(share: float) -> Piecewise:
        return Piecewise(tuple((length, Constant(factor * capacity * share)) for length, factor in pieces))

    topics = tuple(replace(t, rate=rate(t.rate.rate(middle) / within.peak)) for t in scenario.topics)
    return replace(scenario, duration_s=sum(length for length, _ in pieces), topics=topics), begins


def reactions(
    begins: Sequence[float], step_s: float, settings: Sequence[Set], windows: Mapping[int, float], batches: Sequence[Batch]
) -> list[float | None]:
    """By step, seconds until the first batch began with a keep that was lowered because of it; None: there was none.

    `windows` says when the window of each decision ended: one that ended before the step knows nothing of it."""
    found: list[float | None] = []
    ordered = sorted(settings, key=lambda s: s.at_s)
    for begin in begins:
        in_force: dict[str, float] = {}
        answers: set[tuple[str, int]] = set()
        for s in ordered:
            knows = begin < windows.get(s.decision, begin) <= begin + step_s
            if knows and s.keep < in_force.get(s.edge, 1.0) - 1e-9:
                answers.add((s.edge, s.decision))
            in_force[s.edge] = s.keep
        with_it = [b.began_s for b in batches if b.decision is not None and (b.edge, b.decision) in answers]
        found.append(min(with_it) - begin if with_it else None)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the values around it.

    >>> percentile([1.0, 2.0, 3.0], 0.5), percentile([1.0, 2.0], 0.95)
    (2.0, 1.95)
    """
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def conclude(
    *,
    found: Sequence[float | None],
    cycle_s: float,
    runs_s: Sequence[float],
    decisions: Mapping[str, int],
    on_pct: float,
    off_pct: float,
    **more: Any,
) -> int:
    known = [r for r in found if r is not None]
    p95 = percentile(known, 0.95) if known else None
    run_p50 = statistics.median(runs_s) if runs_s else None
    cost = on_pct - off_pct
    goals = {
        "every_step_is_answered": len(known) == len(found) > 0,
        f"p95_at_most_{GOAL_CYCLES:g}_cycles": p95 is not None and p95 <= GOAL_CYCLES * cycle_s,
        f"a_cycle_in_at_most_{GOAL_RUN_S:g}_s": run_p50 is not None and run_p50 <= GOAL_RUN_S,
        f"at_most_{GOAL_CPU_PCT:g}_pct_of_a_core": cost <= GOAL_CPU_PCT,
        "all_published": all_published(decisions),
    }
    finish(
        "reaction",
        {
            "reaction_s": {
                "p50": round(percentile(known, 0.5), 1) if known else None,
                "p95": None if p95 is None else round(p95, 1),
                "each": [None if r is None else round(r, 1) for r in found],
            },
            "reaction_cycles_p95": None if p95 is None else round(p95 / cycle_s, 2),
            "cycle_s": cycle_s,
            "run_s": {"p50": round(run_p50, 2), "p95": round(percentile(runs_s, 0.95), 2)} if run_p50 is not None else None,
            "runs": len(runs_s),
            "decisions": dict(decisions),
            "cycle_cpu_pct": round(cost, 1),
            "airflow_and_postgres_cpu_pct": {"on": round(on_pct, 1), "off": round(off_pct, 1)},
            **more,
            "goals": goals,
        },
    )
    return exit_code(goals)


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    scenario = replace(load(REPO / "scenarios" / "rush_hour.yaml"), pipelines=())
    try:
        with on_airflow(REPO / "pipelines" / "taxi.yaml") as (stack, line, policy):
            return run(stack, line, policy, scenario)
    except LineFailed as error:
        return fail(str(error))


def run(stack: Any, line: Line, policy: Policy, scenario: Scenario) -> int:
    airflow, cycle_s = Airflow(stack), policy.qod_cycle_s
    airflow.pause(DAG, True)
    line.start("apply")
    line.warm_up(scenario)
    off = Cpu(stack, "airflow", "postgres")
    capacity = line.saturate(scenario, HEAVY)
    off_pct = off.pct()
    say(f"with {DAG} paused, Airflow and Postgres take {off_pct:.0f} % of a core")
    airflow.pause(DAG, False)
    steps, begins = staircase(scenario, capacity, cycle_s)
    on, strangers = Cpu(stack, "airflow", "postgres"), Strangers(stack)
    since = line.now()
    playing = line.play(steps)
    while playing.thread.is_alive():
        playing.thread.join(5.0)
        say(f"{playing.elapsed_s:4.0f} s, asked {offered(steps, playing.elapsed_s):>6,.0f}/s   {line.look()}")
    on_pct, others = on.pct(), strangers.cpu_pct()
    report = playing.ended()
    runs, decided = airflow.runs(DAG, since), line.rows("demo_decisions", since=since)
    windows = {d["id"]: d["interval_end"].timestamp() - playing.began for d in decided}
    ends = {last_window(cycle_s, datetime.fromisoformat(r["data_interval_end"])).end for r in runs}
    settings, batches = line.settings(since, playing), line.course(since, playing)
    return conclude(
        found=reactions(begins, STEP_CYCLES * cycle_s, settings, windows, batches),
        cycle_s=cycle_s,
        runs_s=[_seconds(r) for r in runs],
        decisions=statuses([(d["interval_end"], d["status"]) for d in decided], {end for end in ends if end >= since}),
        on_pct=on_pct,
        off_pct=off_pct,
        capacity_per_s=round(capacity),
        steps=list(STEPS) * ROUNDS,
        load_held=not report.problems,
        strangers_cpu_pct=others,
    )


def _seconds(run: dict[str, Any]) -> float:
    """From the end of its window to its own end."""
    return (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["data_interval_end"])).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
