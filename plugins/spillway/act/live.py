"""Cycles under Airflow: which step of which window, in whose name."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import Step, decide_all, observe
from spillway.act.publish import publish, verify
from spillway.model.window import Interval
from spillway.policy import Policy, PolicyError
from spillway.store.decisions import LIVE, REPLAY, Run

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.qod")
SCHEDULED, BACKFILL = "scheduled", "backfill"
STEPS: Mapping[str, Callable[[Connection, Interval, Run], Step]] = {
    "observe": observe,
    "decide": decide_all,
    "publish": publish,
    "verify": verify,
}


class StepRefused(RuntimeError):
    """A gate did not let everything through; all of it is recorded, and what passed goes on."""


class OutOfOrder(RuntimeError):
    """A replay remembers what it decided on the window before, so windows have to come in order."""


def window_of(dag_run: Any, cycle_s: float) -> Interval:
    """The window of a run; of one that a person triggered, the last aligned one that was over then."""
    if dag_run.run_type in (SCHEDULED, BACKFILL):
        return Interval(start=dag_run.data_interval_start, end=dag_run.data_interval_end)
    return last_window(cycle_s, dag_run.run_after)


def last_window(cycle_s: float, now: datetime) -> Interval:
    """
    >>> last_window(15.0, datetime(2026, 5, 1, 12, 0, 17, tzinfo=UTC)).end.isoformat()
    '2026-05-01T12:00:15+00:00'
    """
    end = datetime.fromtimestamp(now.timestamp() // cycle_s * cycle_s, tz=UTC)
    return Interval(start=end - timedelta(seconds=cycle_s), end=end)


def run_of(dag_run: Any, policy: Policy) -> Run:
    """A backfill is a replay; its configuration may name it (`replay`) and change fields of the policy (`policy`)."""
    if dag_run.run_type != BACKFILL:
        return Run(origin=LIVE, policy=policy)
    conf = dag_run.conf or {}
    changed = conf.get("policy") or {}
    try:
        policy = Policy(**{**asdict(policy), **changed})
    except TypeError:
        unknown = sorted(set(changed) - set(asdict(policy)))
        raise PolicyError(f"the backfill's configuration has the unknown policy fields {', '.join(unknown)}") from None
    return Run(origin=REPLAY, replay=str(conf.get("replay") or "backfill"), policy=policy)


def in_order(ti: Any, interval: Interval) -> None:
    """Raises when the window before is part of the same backfill and not done."""
    before = ti.get_previous_dagrun()
    if before is None or before.run_type != BACKFILL or before.data_interval_end != interval.start:
        return
    if str(before.state) not in ("success", "failed"):
        raise OutOfOrder(
            f"the window before this one is {before.state}, and a replay goes on from what it decided there: "
            "create the backfill with --max-active-runs 1, and not backwards"
        )


def step(conn: Connection, name: str, interval: Interval, run: Run) -> list[str]:
    """What was done, in words; raises what was refused."""
    if run.live and name == "observe":
        settle(interval, run.policy)
    done = STEPS[name](conn, interval, run)
    if done.refused:
        raise StepRefused("; ".join(done.refused))
    return list(done.said)


def settle(interval: Interval, policy: Policy) -> None:
    """Waits until what was measured in the window had its time to be stored."""
    closed = interval.end + timedelta(seconds=policy.qod_settle_s)
    time.sleep(max(0.0, min((closed - datetime.now(UTC)).total_seconds(), interval.seconds + policy.qod_settle_s)))


def resident(connect: Callable[[], Connection], policy: Policy, until: datetime) -> int:
    """Cycle after cycle in one process; a cycle that fails is the only one. Returns how many there were."""
    run, conn, count = Run(origin=LIVE, policy=policy), connect(), 0
    try:
        while (now := datetime.now(UTC)) < until:
            end = last_window(policy.qod_cycle_s, now).end + timedelta(seconds=policy.qod_cycle_s)
            interval = Interval(start=end - timedelta(seconds=policy.qod_cycle_s), end=end)
            time.sleep(max(0.0, (end - now).total_seconds()))
            settle(interval, policy)
            for name, act in STEPS.items():
                try:
                    done = act(conn, interval, run)
                    for words in done.refused:
                        log.warning("%s: %s", name, words)
                except Exception:
                    log.exception("the cycle of %s stopped at %s", interval.end, name)
                    conn.close()
                    conn = connect()
                    break
            count += 1
    finally:
        conn.close()
    return count
