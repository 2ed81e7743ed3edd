"""What a cycle costs under Airflow, with ten pipelines: how long a run takes, and the CPU that the cycles add.

The metrics of the pipelines are recorded ahead and come true as time passes; everything that reads, decides and writes is real.
Both models of the CPU are measured, in one run: `affine` reads the past it learns from in every cycle.

make bench NAME=cycle
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
from _common import all_published, exit_code, finish, say, statuses
from _line import change_policy, changeable_policy
from replay import Store
from spillway.act.live import last_window
from spillway.embedded import Stack
from spillway.embedded.owner import scratch

from tests.support import airflow_rest
from tests.support.airflow_rest import moment
from tests.support.recorded import Recording, store

SERVICES = ("postgres", "airflow")
PAST_S = 120.0
"""Of a recording before what is learned from."""
MOST_S, MOST_CPU = 4.0, 20.0
MODELS = ("proportional", "affine")
DECIDED = """
select interval_end, status from spillway.decision join spillway.policy_version on digest = policy
where kind = 'qod' and origin = 'live' and body ->> 'cpu_model' = %s and interval_end = any(%s)"""
PUBLISHED = """
select count(*) from spillway.decision join spillway.policy_version on digest = policy
where kind = 'qod' and status = 'published' and body ->> 'cpu_model' = %s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The cycles of one stretch."""

    lengths: list[float]
    """Of each run, from its start to its end."""
    ends: list[float]
    """Of each run, from the end of its window to its end."""
    decisions: dict[str, int]
    cpu_pct: float
    """Of all services together."""


class Airflow(airflow_rest.Airflow):
    def ended(self, dag: str, since: datetime) -> list[dict[str, Any]]:
        """Runs of since then that have ended."""
        return [r for r in self.runs(dag) if r["end_date"] and moment(r["run_after"]) >= since]


def cpu(stack: Stack, seconds: float) -> float:
    """Percent of a core that all services use together."""

    def times() -> dict[tuple[int, float], float]:
        found = {}
        for process in stack.processes():
            with contextlib.suppress(psutil.Error):
                t = process.cpu_times()
                found[process.pid, process.create_time()] = t.user + t.system + t.children_user + t.children_system
        return found

    before, began = times(), time.monotonic()
    time.sleep(seconds)
    after, took = times(), time.monotonic() - began
    return 100.0 * sum(used - before.get(key, 0.0) for key, used in after.items()) / took


def until(what: Any, seconds: float, words: str) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:.0f} s: {words}")
        time.sleep(1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=90.0, help="length of each of the three measured stretches")
    args = parser.parse_args()
    with changeable_policy() as policy, scratch("cycle") as folder:
        stack = Stack(home=folder / "run", services=SERVICES)
        try:
            say("starting Postgres and Airflow")
            stack.up()
            database, airflow = Store(stack.env), Airflow(stack)
            began = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=policy.qod_learn_s + PAST_S)
            for number in range(args.pipelines):
                length = policy.qod_learn_s + PAST_S + 600.0 + 3 * args.seconds
                store(database, Recording(start=began, seconds=length, rush=(300.0, length), seed=number, name=f"rec{number}"))
            under = {model: measure(stack, database, airflow, model, args) for model in MODELS}
            say("pausing the cycles")
            airflow.pause("spillway_qod")
            time.sleep(20)
            without = cpu(stack, args.seconds)
        finally:
            say("stopping")
            stack.clean()
    return conclude(pipelines=args.pipelines, under=under, off_pct=without)


def measure(stack: Stack, database: Store, airflow: Airflow, model: str, args: argparse.Namespace) -> Measured:
    policy = change_policy(cpu_model=model)
    say(f"waiting for cycles with cpu_model {model}")
    until(lambda: database.sql("read", PUBLISHED, model)[0][0] >= 2 * args.pipelines, 180, "cycles run")
    since = datetime.now(UTC)
    used = cpu(stack, args.seconds)
    runs = airflow.ended("spillway_qod", since)
    say(f"with cycles, {model}: {used:.1f} % of a core")
    windows = [last_window(policy.qod_cycle_s, moment(r["data_interval_end"])).end for r in runs]
    decided = database.sql("read", DECIDED, model, windows)
    return Measured(
        lengths=[(moment(r["end_date"]) - moment(r["start_date"])).total_seconds() for r in runs],
        ends=[(moment(r["end_date"]) - moment(r["run_after"])).total_seconds() for r in runs],
        decisions=statuses([(end, status) for end, status in decided], set(windows), args.pipelines),
        cpu_pct=used,
    )


def conclude(*, pipelines: int, under: Mapping[str, Measured], off_pct: float) -> int:
    found = {model: judged(m, off_pct) for model, m in under.items()}
    goals = {model: goals for model, (_, goals) in found.items()}
    result = {model: result for model, (result, _) in found.items()}
    finish("cycle", {"pipelines": pipelines, "cpu_pct_without": round(off_pct, 1), "models": result, "goals": goals})
    return exit_code(goals)


def judged(m: Measured, off_pct: float) -> tuple[dict[str, Any], dict[str, bool]]:
    """What the cycles under one model cost, and which goals they meet."""
    median = statistics.median(m.lengths) if m.lengths else None
    p95 = statistics.quantiles(m.lengths, n=20)[18] if len(m.lengths) > 1 else median
    added = round(m.cpu_pct - off_pct, 1)
    result = {
        "cycles": len(m.lengths),
        "run_s": {"median": _rounded(median), "p95": _rounded(p95)},
        "from_window_end_s": {"median": _rounded(statistics.median(m.ends)), "max": _rounded(max(m.ends))} if m.ends else None,
        "cpu_pct": {"with_cycles": round(m.cpu_pct, 1), "added": added},
        "decisions": m.decisions,
    }
    return result, {
        "cycle_at_most_4_s": median is not None and median <= MOST_S,
        "cycle_at_most_20_pct": added <= MOST_CPU,
        "all_published": all_published(m.decisions),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


if __name__ == "__main__":
    sys.exit(main())
