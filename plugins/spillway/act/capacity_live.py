"""Evaluations of capacity under Airflow: which step of which window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spillway.act.capacity import detect_all, observe
from spillway.act.capacity_propose import propose
from spillway.act.cycle import Step
from spillway.act.live import NothingObserved, StepRefused, settle
from spillway.model.window import Interval
from spillway.observe.window import read_window
from spillway.store import capacity
from spillway.store.decisions import CAPACITY, Run

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

STEPS: Mapping[str, Callable[[Connection, Interval, Run], Step]] = {"observe": observe, "detect": detect_all, "propose": propose}


def step(conn: Connection, name: str, interval: Interval, run: Run) -> list[str]:
    """What was done, in words; raises what was refused."""
    if run.live and name == "observe":
        settle(interval, run.policy)
    if not run.live and name == "detect":
        _was_observed(conn, interval, run)
    done = STEPS[name](conn, interval, run)
    if done.refused:
        raise StepRefused("; ".join(done.refused))
    return list(done.said)


def decided(conn: Connection, run: Run, interval: Interval) -> bool:
    """Whether anything was said of a window: found, refused or held."""
    return bool(capacity.decided(conn, run, interval, CAPACITY))


def _was_observed(conn: Connection, interval: Interval, run: Run) -> None:
    """A window of a replay that was not observed is not looked at, and must not look as if it were."""
    if capacity.worlds(conn, run, interval) or decided(conn, run, interval):
        return
    if declared := read_window(conn, interval, run.policy, off_too=True).declared:
        raise NothingObserved(f"{', '.join(sorted(declared))} was not observed in the window that ended at {interval.end}")
