"""How soon an overload is answered, through Airflow: from the second it begins to the first batch with a lower keep; and the
CPU of the cycle.

The taxi pipeline runs on all embedded services, in mode `apply`. Load rises in steps, each of them more than the keep in force
lets the heavy query carry, falls, and rises again. Its floors are lower than as shipped: who is at its floor has no answer left
to the next step. How long a run of the DAG takes beside an overload that fills both cores is printed, task by task; the limit for
it is bench/cycle.py's. The CPU of Airflow and Postgres is measured with the DAG spillway_qod paused and with it running.

    make bench NAME=reaction
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from _common import REPO, all_published, exit_code, fail, finish, say, statuses
from _line import Airflow, Cpu, Strangers, on_airflow
from spillway.act.live import last_window
from spillway.demo.course import Batch, Set, offered, rush
from spillway.demo.flood import saturate
from spillway.demo.hand import Hand
from spillway.demo.line import Line, LineFailed, Playing
from spillway.inject.profiles import Constant, Piecewise
from spillway.inject.scenario import Scenario, load
from spillway.policy import Policy

DAG, HEAVY = "spillway_qod", "heavy"
STEPS = (1.4, 2.0, 2.7)
"""Multiples of what the heavy query carries."""
CALM, QUIET_CYCLES, CALM_CYCLES, STEP_CYCLES, ROUNDS = 0.4, 3, 6, 2.2, 2
FLOOR = 0.05
GOAL_CYCLES, GOAL_CPU_PCT = 2.0, 20.0
TUNABLES = {"rescale_persist_evaluations": 1000}
"""An overload that stays is answered by more executors after some minutes, and while they come no keep is lowered."""


def with_lower_floors(topology: str) -> str:
    """
    >>> with_lower_floors("query: {priority: 5, min_accuracy: 0.8}")
    'query: {priority: 5, min_accuracy: 0.05}'
    """
    return re.sub(r"min_accuracy: [\d.]+", f"min_accuracy: {FLOOR}", topology)


def staircase(scenario: Scenario, capacity: float, cycle_s: float) -> tuple[Scenario, list[float]]:
    """The topics of the scenario, as in its rush, at multiples of what the heavy query carries; and when each step begins."""
    pieces, begins = [(20.0, CALM)], []
    for number in range(ROUNDS):
        if number:
            pieces.append((CALM_CYCLES * cycle_s, CALM))
        for step in STEPS:
            begins.append(sum(length for length, _ in pieces))
            pieces.append((STEP_CYCLES * cycle_s, step))
    return of(scenario, capacity, pieces), begins


def of(scenario: Scenario, capacity: float, pieces: Sequence[tuple[float, float]]) -> Scenario:
    """So long at such a multiple of a capacity, one after the other, in the proportions of a scenario's rush."""
    within = rush(scenario)
    middle = (within.begins_s + within.ends_s) / 2

    def rate(share: float) -> Piecewise:
        return Piecewise(tuple((length, Constant(factor * capacity * share)) for length, factor in pieces))

    topics = tuple(replace(t, rate=rate(t.rate.rate(middle) / within.peak)) for t in scenario.topics)
    return replace(scenario, duration_s=sum(length for length, _ in pieces), topics=topics)


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
    after_window_s: Sequence[float],
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
            "run_ends_after_window_s": {"p50": round(statistics.median(after_window_s), 2)} if after_window_s else None,
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
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "taxi.yaml"
            file.write_text(with_lower_floors((REPO / "pipelines" / "taxi.yaml").read_text(encoding="utf-8")), encoding="utf-8")
            with on_airflow(file, **TUNABLES) as (stack, line, policy):
                return run(stack, line, policy, scenario)
    except LineFailed as error:
        return fail(str(error))


def run(stack: Any, line: Line, policy: Policy, scenario: Scenario) -> int:
    airflow, cycle_s = Airflow(stack), policy.qod_cycle_s
    airflow.pause(DAG)
    line.start("apply")
    capacity = saturate(line, scenario, HEAVY, Hand(say, line.pipeline.name))
    off = Cpu(stack, "airflow", "postgres")
    watch(line, of(scenario, capacity, [(QUIET_CYCLES * cycle_s, CALM)]))
    off_pct = off.pct()
    say(f"with {DAG} paused, Airflow and Postgres take {off_pct:.0f} % of a core")
    airflow.pause(DAG, paused=False)
    steps, begins = staircase(scenario, capacity, cycle_s)
    on, strangers = Cpu(stack, "airflow", "postgres"), Strangers(stack)
    since = line.now()
    playing = watch(line, steps)
    on_pct, others = on.pct(), strangers.cpu_pct()
    report = playing.ended()
    runs, decided = airflow.ended(DAG, since), line.rows("demo_decisions", since=since)
    windows = {d["id"]: d["interval_end"].timestamp() - playing.began for d in decided}
    ends = {last_window(cycle_s, datetime.fromisoformat(r["data_interval_end"])).end for r in runs}
    settings, batches = line.settings(since, playing), line.course(since, playing)
    for d in decided:
        if d["status"] != "published":
            why = d["reason"] or (d["output"] or {}).get("missing")
            say(f"the window that ended at {windows[d['id']]:.0f} s: {d['status']}: {why}")
    for r in runs:
        tasks = airflow.call("GET", f"/dags/{DAG}/dagRuns/{r['dag_run_id']}/taskInstances")["task_instances"]
        say(
            f"run of the window that ended at {_at(r['data_interval_end'], playing.began)}: "
            + ", ".join(_task(t, r) for t in tasks)
        )
    return conclude(
        found=reactions(begins, STEP_CYCLES * cycle_s, settings, windows, batches),
        cycle_s=cycle_s,
        runs_s=[_seconds(r, "start_date") for r in runs],
        after_window_s=[_seconds(r, "data_interval_end") for r in runs],
        decisions=statuses([(d["interval_end"], d["status"]) for d in decided], {end for end in ends if end >= since}),
        on_pct=on_pct,
        off_pct=off_pct,
        capacity_per_s=round(capacity),
        steps=list(STEPS) * ROUNDS,
        load_held=not report.problems,
        strangers_cpu_pct=others,
    )


def watch(line: Line, scenario: Scenario) -> Playing:
    """To its end, looked at now and then: that costs Postgres something too."""
    playing = line.play(scenario)
    while playing.thread.is_alive():
        playing.thread.join(5.0)
        say(f"{playing.elapsed_s:4.0f} s, asked {offered(scenario, playing.elapsed_s):>6,.0f}/s   {line.look()}")
    return playing


def _seconds(run: Mapping[str, Any], since: str) -> float:
    """To the end of a run."""
    return (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run[since])).total_seconds()


def _at(moment: str, began: float) -> str:
    return f"{datetime.fromisoformat(moment).timestamp() - began:.1f} s"


def _task(task: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """When it was scheduled, queued, began and ended, in seconds since the window."""
    zero = datetime.fromisoformat(run["data_interval_end"]).timestamp()
    moments = [task[name] for name in ("scheduled_when", "queued_when", "start_date", "end_date")]
    return f"{task['task_id']} " + "/".join(
        "–" if m is None else f"{datetime.fromisoformat(m).timestamp() - zero:.1f}" for m in moments
    )


if __name__ == "__main__":
    sys.exit(main())
