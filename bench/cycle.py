"""What a cycle costs under Airflow, with ten pipelines: how long a run takes, and the CPU that the cycles add.

The metrics of the pipelines are recorded ahead and come true as time passes; everything that reads, decides and writes is real.

make bench NAME=cycle
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import requests
from _common import all_published, exit_code, finish, say, statuses
from replay import Store
from spillway.act.live import last_window
from spillway.embedded import Stack
from spillway.embedded.owner import scratch
from spillway.policy import Policy

from tests.support.recorded import Recording, store

SERVICES = ("postgres", "airflow")
MOST_S, MOST_CPU = 4.0, 20.0
DECIDED = "select interval_end, status from spillway.decision where origin = 'live' and interval_end = any(%s)"


class Airflow:
    def __init__(self, stack: Stack) -> None:
        self.url = stack.env["SPILLWAY_AIRFLOW"]
        user, password = stack.airflow_login
        login = requests.post(f"{self.url}/auth/token", json={"username": user, "password": password}, timeout=20)
        login.raise_for_status()
        self.headers = {"Authorization": f"Bearer {login.json()['access_token']}"}

    def call(self, method: str, path: str, **more: Any) -> Any:
        answer = requests.request(method, f"{self.url}/api/v2{path}", headers=self.headers, timeout=20, **more)
        answer.raise_for_status()
        return answer.json()

    def pause(self, dag: str, paused: bool) -> None:
        self.call("PATCH", f"/dags/{dag}", json={"is_paused": paused})

    def runs(self, dag: str, since: datetime) -> list[dict[str, Any]]:
        found = self.call("GET", f"/dags/{dag}/dagRuns", params={"order_by": "-run_after", "limit": 100})["dag_runs"]
        return [r for r in found if r["end_date"] and moment(r["run_after"]) >= since]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


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
    parser.add_argument("--seconds", type=float, default=120.0, help="length of each measured stretch")
    args = parser.parse_args()
    with scratch("cycle") as folder:
        stack = Stack(home=folder / "run", services=SERVICES)
        try:
            say("starting Postgres and Airflow")
            stack.up()
            database, airflow = Store(stack.env), Airflow(stack)
            began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=4)
            for number in range(args.pipelines):
                length = 600.0 + 3 * args.seconds
                store(database, Recording(start=began, seconds=length, rush=(300.0, length), seed=number, name=f"rec{number}"))
            say("waiting for the first cycles")
            decided = "select count(*) from spillway.decision where status = 'published'"
            until(lambda: database.sql("read", decided)[0][0] >= 3 * args.pipelines, 180, "cycles run")
            since = datetime.now(UTC)
            with_cycles = cpu(stack, args.seconds)
            runs = airflow.runs("spillway_qod", since)
            say(f"with cycles: {with_cycles:.1f} % of a core; pausing them")
            airflow.pause("spillway_qod", True)
            time.sleep(20)
            without = cpu(stack, args.seconds)
            windows = [last_window(Policy.load().qod_cycle_s, moment(r["data_interval_end"])).end for r in runs]
            decided = database.sql("read", DECIDED, windows)
        finally:
            say("stopping")
            stack.clean()
    return conclude(
        pipelines=args.pipelines,
        lengths=[(moment(r["end_date"]) - moment(r["start_date"])).total_seconds() for r in runs],
        ends=[(moment(r["end_date"]) - moment(r["run_after"])).total_seconds() for r in runs],
        decisions=statuses([(end, status) for end, status in decided], set(windows), args.pipelines),
        on_pct=with_cycles,
        off_pct=without,
    )


def conclude(
    *, pipelines: int, lengths: list[float], ends: list[float], decisions: dict[str, int], on_pct: float, off_pct: float
) -> int:
    median = statistics.median(lengths) if lengths else None
    p95 = statistics.quantiles(lengths, n=20)[18] if len(lengths) > 1 else median
    added = round(on_pct - off_pct, 1)
    goals = {
        "cycle_at_most_4_s": median is not None and median <= MOST_S,
        "cycle_at_most_20_pct": added <= MOST_CPU,
        "all_published": all_published(decisions),
    }
    finish(
        "cycle",
        {
            "pipelines": pipelines, "cycles": len(lengths),
            "run_s": {"median": _rounded(median), "p95": _rounded(p95)},
            "from_window_end_s": {"median": _rounded(statistics.median(ends)), "max": _rounded(max(ends))} if ends else None,
            "cpu_pct": {"with_cycles": round(on_pct, 1), "without": round(off_pct, 1), "added": added}, "decisions": decisions,
            "goals": goals,
        },
    )  # fmt: skip
    return exit_code(goals)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


if __name__ == "__main__":
    sys.exit(main())
