"""Cycles under Airflow: which step of which window, in whose name."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import floor
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import Step, decide_all, observe
from spillway.act.publish import publish, verify
from spillway.model.window import Interval
from spillway.observe.window import read_window
from spillway.policy import Policy, PolicyError
from spillway.store import decisions
from spillway.store.decisions import LIVE, REPLAY, Run

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.qod")
SCHEDULED, BACKFILL = "scheduled", "backfill"
NEARLY = 1e-6
"""Of a cycle: an end that is not a whole number of seconds is still an end."""
IN_A_ROW = 20
"""So many cycles in a row that stopped, in one process, are told at once."""
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


class NothingObserved(RuntimeError):
    """A window of a replay that was not observed is not decided, and must not look as if it were."""


class CycleStopped(RuntimeError):
    """A step before the last one failed, so the whole run did; or a cycle of those in one process."""


def window_of(dag_run: Any, cycle_s: float) -> Interval:
    """The last aligned window that was over at the end of the run's interval, or when a person triggered it.

    Airflow goes on from the last run when the length of a cycle has changed, and begins a backfill at any second.
    """
    scheduled = dag_run.run_type in (SCHEDULED, BACKFILL)
    return last_window(cycle_s, dag_run.data_interval_end if scheduled else dag_run.run_after)


def last_window(cycle_s: float, now: datetime) -> Interval:
    """
    >>> last_window(15.0, datetime(2026, 5, 1, 12, 0, 17, tzinfo=UTC)).end.isoformat()
    '2026-05-01T12:00:15+00:00'
    """
    end = datetime.fromtimestamp(floor(now.timestamp() / cycle_s + NEARLY) * cycle_s, tz=UTC)
    return Interval(start=end - timedelta(seconds=cycle_s), end=end)


def run_of(dag_run: Any, policy: Policy) -> Run:
    """A backfill is a replay; its configuration may name it (`replay`) and change fields of the policy (`policy`)."""
    if dag_run.run_type != BACKFILL:
        return Run(origin=LIVE, policy=policy)
    conf = dag_run.conf or {}
    changed = {} if conf.get("policy") is None else conf["policy"]
    if not isinstance(changed, Mapping):
        raise PolicyError(
            f"the backfill's configuration has the policy {changed!r}, but it must be a mapping of policy fields, "
            'such as {"qod_raise_limit": 0.3}'
        )
    try:
        policy = Policy(**{**asdict(policy), **changed})
    except TypeError:
        unknown = sorted(set(changed) - set(asdict(policy)))
        raise PolicyError(f"the backfill's configuration has the unknown policy fields {', '.join(unknown)}") from None
    return Run(origin=REPLAY, replay=str(conf.get("replay") or "backfill"), policy=policy)


def _decided(conn: Connection, run: Run, interval: Interval) -> bool:
    return bool(decisions.span(conn, run, interval.start, interval.end))


def in_order(
    conn: Connection,
    dag_run: Any,
    before: Any,
    policy: Policy,
    *,
    cycle_s: float | None = None,
    decided: Callable[[Connection, Run, Interval], bool] = _decided,
) -> None:
    """Raises when the run before is of the same replay, stands for the window before, and has not decided it."""
    if before is None or before.run_type != BACKFILL:
        return
    cycle_s = policy.qod_cycle_s if cycle_s is None else cycle_s
    run, window, previous = run_of(dag_run, policy), window_of(dag_run, cycle_s), window_of(before, cycle_s)
    if previous.end != window.start or run_of(before, policy).key != run.key:
        return
    state = _word(before.state)
    if state == "success" or (state == "failed" and decided(conn, run, previous)):
        return
    raise OutOfOrder(
        f"the run of the window before this one is {state} and has decided nothing, and a replay goes on from what it decided "
        "there: create the backfill with --max-active-runs 1, and not backwards"
    )


def _word(state: Any) -> str:
    """Of a state that is a word, or one of Airflow's enumerations, of which not all say their value."""
    return str(getattr(state, "value", state))


def step(conn: Connection, name: str, interval: Interval, run: Run) -> list[str]:
    """What was done, in words; raises what was refused."""
    if run.live and name == "observe":
        settle(interval, run.policy)
    if not run.live and name == "decide":
        _was_observed(conn, interval, run)
    done = STEPS[name](conn, interval, run)
    if done.refused:
        raise StepRefused("; ".join(done.refused))
    return list(done.said)


def _was_observed(conn: Connection, interval: Interval, run: Run) -> None:
    """A pipeline that a gate refused, or that was still starting, has a decision already."""
    if decisions.observations(conn, run, interval) or decisions.span(conn, run, interval.start, interval.end):
        return
    if declared := read_window(conn, interval, run.policy, off_too=True).declared:
        raise NothingObserved(f"{', '.join(sorted(declared))} was not observed in the window that ended at {interval.end}")


def all_went_well(states: Mapping[str, Any], steps: Iterable[str] = STEPS, see: str = "why") -> None:
    """Raises when a task of the run failed: Airflow takes the state of a run from its last task alone."""
    if failed := [name for name in steps if _word(states.get(name)) == "failed"]:
        raise CycleStopped(f"{' and '.join(failed)} failed for at least one pipeline: see the log there, and `spillway {see}`")


def settle(interval: Interval, policy: Policy) -> None:
    """Waits until what was measured in the window had its time to be stored."""
    closed = interval.end + timedelta(seconds=policy.qod_settle_s)
    time.sleep(max(0.0, min((closed - datetime.now(UTC)).total_seconds(), interval.seconds + policy.qod_settle_s)))


def resident(connect: Callable[[], Connection], policy: Policy, until: datetime) -> int:
    """Cycle after cycle in one process. Returns how many there were.

    One that stops or is refused holds up none after it, and is told at the end: CycleStopped. Too many in a row that stop, and
    the end comes at once; a gate that refuses one pipeline does not hurry, for the others are decided."""
    run, tally = Run(origin=LIVE, policy=policy), _Tally()
    conn: Connection | None = None
    try:
        while (now := datetime.now(UTC)) < until and tally.stopped_in_a_row < IN_A_ROW:
            end = last_window(policy.qod_cycle_s, now).end + timedelta(seconds=policy.qod_cycle_s)
            interval = Interval(start=end - timedelta(seconds=policy.qod_cycle_s), end=end)
            time.sleep(max(0.0, (end - now).total_seconds()))
            settle(interval, policy)
            at, refused = "connect", ""
            try:
                conn = conn or connect()
                for at, act in STEPS.items():
                    for words in act(conn, interval, run).refused:
                        log.warning("%s: %s", at, words)
                        refused = f"{at}: {words}"
            except Exception as error:
                log.exception("the cycle of %s stopped at %s", interval.end, at)
                tally.add(f"{at}: {type(error).__name__}: {' '.join(str(error).split())}", stopped=True)
                if conn is not None:
                    conn.close()
                conn = None
            else:
                tally.add(refused)
    finally:
        if conn is not None:
            conn.close()
    tally.tell()
    return tally.cycles


@dataclass
class _Tally:
    """Of the cycles in one process."""

    cycles: int = 0
    failed: int = 0
    stopped_in_a_row: int = 0
    last: str = ""

    def add(self, why: str, *, stopped: bool = False) -> None:
        """One more, and why it did not go well."""
        self.cycles += 1
        self.stopped_in_a_row = self.stopped_in_a_row + 1 if stopped else 0
        if why:
            self.failed, self.last = self.failed + 1, why

    def tell(self) -> None:
        if self.failed:
            see = "see the log, and `spillway why`"
            raise CycleStopped(f"{self.failed} of {self.cycles} cycles failed or were refused ({see}), the last at {self.last}")
