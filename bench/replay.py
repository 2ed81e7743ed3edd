"""An hour of recorded metrics backfilled twice, beside the live decisions of that hour: how long it takes, whether both are the
same, and whether anything in force changed.

Every window takes the steps that a run of the DAG spillway_qod takes in an Airflow backfill, by the same functions.

make bench NAME=replay
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg2
from _common import exit_code, finish, say, services
from spillway.act.cycle import decide_all, observe
from spillway.act.live import BACKFILL, STEPS, in_order, run_of, step, window_of
from spillway.act.publish import publish
from spillway.act.replay import intervals
from spillway.policy import Policy
from spillway.store.decisions import LIVE, REPLAY, Run

from tests.support.recorded import Recording, noon, store

WATCHED = ("edge_setting", "setting_history", "event", "reschedule", "application", "pipeline")
DECIDED = """
select pipeline, interval_end, status, reason, output, expected from spillway.decision where origin = %s order by 1, 2"""


@dataclass(frozen=True)
class Store:
    """What a recording needs of a database."""

    env: dict[str, str]

    def connect(self, role: str) -> Any:
        return psycopg2.connect(self.env[f"SPILLWAY_DSN_{role.upper()}"])

    def sql(self, role: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self.connect(role)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(text, values)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def in_force(self) -> dict[str, list[Any]]:
        return {table: self.sql("owner", f"select * from spillway.{table} order by 1, 2, 3") for table in WATCHED}


def live(conn: Any, start: datetime, end: datetime, policy: Policy) -> int:
    """The cycles as they ran then, each in time; what they publish stays unheard by the recording."""
    run, count = Run(origin=LIVE, policy=policy), 0
    for window in intervals(start, end, policy.qod_cycle_s):
        observe(conn, window, run)
        decide_all(conn, window, run)
        publish(conn, window, run, now=window.end + timedelta(seconds=policy.qod_settle_s))
        count += 1
    return count


def backfill(conn: Any, start: datetime, end: datetime, policy: Policy) -> int:
    """What the tasks of a backfill do, window by window."""
    count, before = 0, None
    for window in intervals(start, end, policy.qod_cycle_s):
        dag_run = SimpleNamespace(
            run_type=BACKFILL, data_interval_start=window.start, data_interval_end=window.end, conf={"replay": "bench"},
            state="success",
        )  # fmt: skip
        in_order(conn, dag_run, before, policy)
        for name in STEPS:
            step(conn, name, window_of(dag_run, policy.qod_cycle_s), run_of(dag_run, policy))
        count, before = count + 1, dag_run
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pipelines", type=int, default=1)
    args = parser.parse_args()
    with services("postgres") as env:
        return measure(Store(env), args.minutes, args.pipelines)


def measure(database: Store, minutes: float, pipelines: int) -> int:
    policy, start = Policy(), noon()
    end = start + timedelta(minutes=minutes)
    say(f"recording {minutes:g} min of {pipelines} pipelines")
    for number in range(pipelines):
        rush = (10.0 * minutes, 25.0 * minutes)
        store(database, Recording(start=start, seconds=60.0 * minutes, rush=rush, seed=number, name=f"rec{number}"))
    conn = database.connect("control")
    say("the live cycles of that time")
    live(conn, start, end, policy)
    before, historic = database.in_force(), database.sql("read", DECIDED, LIVE)
    took, cpu, decided = [], [], []
    for turn in ("first", "second"):
        say(f"{turn} backfill")
        began, used = time.monotonic(), time.process_time()
        windows = backfill(conn, start, end, policy)
        took.append(time.monotonic() - began)
        cpu.append(time.process_time() - used)
        decided.append(database.sql("read", DECIDED, REPLAY))
    conn.close()
    say(f"{windows} windows: {took[0]:.1f} s, then {took[1]:.1f} s")
    return conclude(
        minutes=minutes,
        pipelines=pipelines,
        windows=windows,
        decided=decided,
        historic=(historic, database.sql("read", DECIDED, LIVE)),
        in_force=(before, database.in_force()),
        took=took,
        cpu=cpu,
    )


def conclude(
    *,
    minutes: float,
    pipelines: int,
    windows: int,
    decided: Sequence[list[Any]],
    historic: tuple[list[Any], list[Any]],
    in_force: tuple[dict[str, list[Any]], dict[str, list[Any]]],
    took: Sequence[float],
    cpu: Sequence[float],
) -> int:
    before, after = in_force
    changed = [table for table in before if before[table] != after[table]]
    shedding = sum(any(e["keep"] < 1 for e in output["edges"]) for *_, output, _ in decided[0] if output)
    goals = {
        "identical": decided[0] == decided[1] and len(decided[0]) == windows * pipelines > 0,
        "something_was_decided": shedding > 0,
        "something_was_in_force": bool(before["edge_setting"]),
        "nothing_live_changed": not changed and historic[0] == historic[1],
    }
    finish(
        "replay",
        {
            "minutes": minutes, "pipelines": pipelines, "windows": windows, "wall_s": [round(t, 2) for t in took],
            "ms_per_window": round(1000 * min(took) / windows, 1), "cpu_ms_per_window": round(1000 * min(cpu) / windows, 1),
            "shedding_decisions": shedding, "in_force": len(before["edge_setting"]), "changed": changed, "goals": goals,
        },
    )  # fmt: skip
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
