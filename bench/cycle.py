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
from _common import exit_code, finish, say
from replay import Store
from spillway.embedded import Stack
from spillway.embedded.owner import scratch

from tests.support.recorded import Recording, store

SERVICES = ("postgres", "airflow")
MOST_S, MOST_CPU = 4.0, 20.0


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
            status = dict(database.sql("read", "select status, count(*) from spillway.decision group by 1"))
        finally:
            say("stopping")
            stack.clean()
    lengths = [(moment(r["end_date"]) - moment(r["start_date"])).total_seconds() for r in runs]
    ends = [(moment(r["end_date"]) - moment(r["run_after"])).total_seconds() for r in runs]
    p95 = statistics.quantiles(lengths, n=20)[18] if len(lengths) > 1 else lengths[0]
    added = round(with_cycles - without, 1)
    goals = {
        "cycle_at_most_4_s": statistics.median(lengths) <= MOST_S,
        "cycle_at_most_20_pct": added <= MOST_CPU,
        "every_run_succeeded": all(r["state"] == "success" for r in runs),
    }
    finish(
        "cycle",
        {
            "pipelines": args.pipelines, "cycles": len(runs),
            "run_s": {"median": round(statistics.median(lengths), 2), "p95": round(p95, 2)},
            "from_window_end_s": {"median": round(statistics.median(ends), 2), "max": round(max(ends), 2)},
            "cpu_pct": {"with_cycles": round(with_cycles, 1), "without": round(without, 1), "added": added}, "decisions": status,
            "goals": goals,
        },
    )  # fmt: skip
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
