"""What grows is kept small: metric partitions, events, and Airflow's own runs and logs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.policy import Policy
from spillway.store.queries import execute, row

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

CLEAN_TIMEOUT_S = 300


class HousekeepingFailed(RuntimeError):
    """What could not be tidied; recorded, and tried again in the next run."""


def housekeep(conn: Connection, policy: Policy, *, now: datetime | None = None) -> str:
    """Days of partitions ahead, days beyond retention gone; what it did, in words."""
    today = (now or datetime.now(UTC)).date()
    done = row(
        conn, "housekeeping_partitions", today=today, days=policy.partitions_ahead_days, keep=policy.retention_days
    )  # fmt: skip
    assert done is not None
    words = (
        f"Made {done['made']} daily partitions up to {today + timedelta(days=policy.partitions_ahead_days)}, "
        f"dropped {done['dropped']} older than {policy.retention_days} days."
    )
    execute(conn, "housekeeping_event", kind="housekeeping", text=words)
    conn.commit()
    return words


def clean_airflow(conn: Connection, policy: Policy, *, metadata: str | None, logs: Path, now: datetime | None = None) -> str:
    """Airflow's old runs, through its own `db clean`, and its task logs. A schedule of 15 s makes 5 760 runs a day."""
    before = (now or datetime.now(UTC)) - timedelta(days=policy.airflow_retention_days)
    removed = remove_logs(logs, before)
    if metadata is None:
        words = f"Removed {removed} old task logs. Airflow's old runs stay: the connection airflow_metadata is not set."
        error = None
    else:
        error = _db_clean(metadata, before)
        words = f"Removed {removed} old task logs and Airflow's runs before {before:%Y-%m-%d %H:%M} UTC."
    execute(conn, "housekeeping_event", kind="failed" if error else "housekeeping", text=error or words)
    conn.commit()
    if error:
        raise HousekeepingFailed(error)
    return words


def remove_logs(folder: Path, before: datetime) -> int:
    """Log files not written to since `before`, and folders left untouched since then; how many files went."""
    oldest = before.timestamp()
    folders = [(Path(path), Path(path).stat().st_mtime) for path, _, _ in os.walk(folder)]
    removed = 0
    for path, touched in reversed(folders):
        for entry in list(os.scandir(path)):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()
                    removed += 1
        if path != folder and touched < oldest:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
    return removed


def _db_clean(metadata: str, before: datetime) -> str | None:
    """The address goes to the child alone, by its environment. One sentence when it failed."""
    command = [
        sys.executable,
        "-m",
        "airflow",
        "db",
        "clean",
        "--clean-before-timestamp",
        before.isoformat(),
        "--skip-archive",
        "--yes",
    ]
    environment = {**os.environ, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata}
    environment.pop("AIRFLOW__CORE__SQL_ALCHEMY_CONN", None)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=CLEAN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"Airflow's old runs were not removed: `airflow db clean` did not end within {CLEAN_TIMEOUT_S} s."
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return f"Airflow's old runs were not removed: `airflow db clean` ended with {done.returncode}: {last}"
    return None
