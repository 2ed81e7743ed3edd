"""An hour of recorded metrics decided twice: how long it takes, whether both are the same, and whether anything in force changed.

make bench NAME=replay
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg2
from _common import exit_code, finish, say, services
from spillway.act.replay import replay
from spillway.policy import Policy
from spillway.store.decisions import Run

from tests.support.recorded import Recording, noon, store

WATCHED = ("edge_setting", "setting_history", "event", "reschedule", "application", "pipeline")
DECIDED = "select pipeline, interval_end, status, reason, output, expected from spillway.decision order by 1, 2"


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

    def in_force(self) -> list[Any]:
        return [self.sql("owner", f"select * from spillway.{table} order by 1, 2, 3") for table in WATCHED]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pipelines", type=int, default=1)
    args = parser.parse_args()
    run = Run(origin="replay", replay="bench", policy=Policy())
    with services("postgres") as env:
        database = Store(env)
        start, seconds = noon(), 60.0 * args.minutes
        say(f"recording {args.minutes:g} min of {args.pipelines} pipelines")
        for number in range(args.pipelines):
            recording = Recording(start=start, seconds=seconds, seed=number, name=f"rec{number}")
            store(database, recording)
        before = database.in_force()
        took, cpu, decided = [], [], []
        conn = database.connect("control")
        for turn in ("first", "second"):
            say(f"{turn} replay")
            began, used = time.monotonic(), time.process_time()
            windows = replay(conn, start, start + timedelta(seconds=seconds), run)
            took.append(time.monotonic() - began)
            cpu.append(time.process_time() - used)
            decided.append(database.sql("read", DECIDED))
        conn.close()
        changed = sum(one != other for one, other in zip(before, database.in_force(), strict=True))
    say(f"{windows} windows: {took[0]:.1f} s, then {took[1]:.1f} s")
    goals = {
        "identical": decided[0] == decided[1] and len(decided[0]) == windows * args.pipelines,
        "nothing_live_changed": not changed,
    }
    finish(
        "replay",
        {
            "minutes": args.minutes, "pipelines": args.pipelines, "windows": windows, "wall_s": [round(t, 2) for t in took],
            "ms_per_window": round(1000 * min(took) / windows, 1), "cpu_ms_per_window": round(1000 * min(cpu) / windows, 1),
            "shedding_decisions": sum(any(e["keep"] < 1 for e in row[4]["edges"]) for row in decided[0]), "goals": goals,
        },
    )  # fmt: skip
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
