"""Pass after pass while plans move, so that phases of seconds do not wait for the next run of a schedule."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spillway.act.launch import Launcher
from spillway.act.rescale.carry import RescaleStumbled, Went, advance
from spillway.act.rescale.offline import due
from spillway.policy import Policy

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.rescale")
PACE_S = 0.5
SWIFT = ("order", "stopped", "started", "scaled", "cutover", "taken_over", "verify")
"""Steps in which what runs is being changed."""


def carry_out(
    conn: Connection,
    launcher: Launcher,
    policy: Policy,
    *,
    most_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Until no plan is open, a job has to be submitted and nothing is in the middle of a change, or it is time for another run.

    Returns what was done, in words. A step that raises what it should not holds up no other plan, and is told at the end."""
    said: list[str] = []
    stumbled: RescaleStumbled | None = None
    until = clock() + most_s
    while True:
        try:
            went = advance(conn, launcher, policy)
        except RescaleStumbled as error:
            stumbled, went = error, error.went
        for one in went:
            if one.moved:
                log.info("%s", one)
                said.append(str(one))
        going = [one for one in went if one.open]
        if not going or _job_first(conn, going, policy) or clock() >= until:
            if stumbled is not None:
                raise stumbled
            return said + [str(one) for one in going if not one.moved]
        if not any(one.moved for one in going):
            sleep(PACE_S)


def _job_first(conn: Connection, going: Sequence[Went], policy: Policy) -> bool:
    """A plan waits for its state to be counted, which is another task's work."""
    if not any(one.step == "digest" for one in going) or any(one.step in SWIFT for one in going):
        return False
    jobs = due(conn, policy)
    conn.commit()
    return bool(jobs)
