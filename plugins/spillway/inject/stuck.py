"""Partitions that a producer has given up without saying so.

A broker that is about to stop says of its partitions that nobody leads them. librdkafka may take that for the last word on one
(its issue 5430): the broker is back and leads it, other partitions go on, and the events of this one wait until they are too old.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

PATIENCE_S = 10.0


class Stuck:
    """By librdkafka's statistics, one report after the other.

    >>> def report(second, waiting, sent, state="UP"):
    ...     partition = {"msgq_cnt": waiting, "xmit_msgq_cnt": 0, "msgs_inflight": 0, "txmsgs": sent, "leader": 1}
    ...     return {"ts": second * 1_000_000, "brokers": {"b": {"nodeid": 1, "state": state}},
    ...             "topics": {"t": {"partitions": {"0": partition}}}}
    >>> stuck = Stuck()
    >>> stuck.look(report(0, 5, 90)), stuck.look(report(8, 7, 90)), stuck.look(report(10, 9, 90))
    (False, False, True)
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._since: dict[tuple[str, str], tuple[float, int]] = {}
        """When events were first seen to wait with so many sent before them, their broker up."""

    def look(self, report: Mapping[str, Any]) -> bool:
        """Whether a partition has let its events wait all the time, and has sent none, though its broker was there."""
        now = report["ts"] / 1_000_000
        up = {b["nodeid"] for b in report["brokers"].values() if b["nodeid"] >= 0 and b["state"] == "UP"}
        waiting = {
            (topic, number): p["txmsgs"]
            for topic, of in report["topics"].items()
            for number, p in of["partitions"].items()
            if int(number) >= 0 and p["msgq_cnt"] + p["xmit_msgq_cnt"] and not p["msgs_inflight"] and _could_send(p["leader"], up)
        }
        before = self._since
        self._since = {
            place: before[place] if place in before and before[place][1] == sent else (now, sent)
            for place, sent in waiting.items()
        }
        return any(now - since >= self._patience_s for since, _ in self._since.values())


def _could_send(leader: int, up: Set[int]) -> bool:
    """Whether the broker that leads a partition is there; where nobody is known to lead it, any broker could tell who does."""
    return leader in up if leader >= 0 else bool(up)
