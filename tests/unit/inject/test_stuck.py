"""When a producer counts as stuck."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.inject.stuck import Stuck


def report(second: float, *, waiting: int = 5, sent: int = 90, state: str = "UP", **more: Any) -> dict[str, Any]:
    partition = {"msgq_cnt": waiting, "xmit_msgq_cnt": 0, "msgs_inflight": 0, "txmsgs": sent, "leader": 1, **more}
    return {
        "ts": int(second * 1_000_000),
        "brokers": {"bootstrap": {"nodeid": -1, "state": "INIT"}, "b": {"nodeid": 1, "state": state}},
        "topics": {"t": {"partitions": {more.pop("number", "0"): partition}}},
    }


def test_events_that_wait_while_the_broker_is_up_are_stuck() -> None:
    stuck = Stuck(10.0)
    assert [stuck.look(report(s)) for s in (0, 2, 4, 6, 8)] == [False] * 5
    assert stuck.look(report(10))


def test_events_that_wait_to_be_tried_again_are_stuck_too() -> None:
    stuck = Stuck(10.0)
    assert not stuck.look(report(0, waiting=0, xmit_msgq_cnt=3))
    assert stuck.look(report(10, waiting=0, xmit_msgq_cnt=3))


@pytest.mark.parametrize(
    "between",
    [
        {"sent": 91},
        {"waiting": 0},
        {"state": "DOWN"},
        {"msgs_inflight": 4},
    ],
    ids=["one was sent", "none waits", "the broker is away", "some are on their way"],
)
def test_the_time_counts_anew_after(between: dict[str, Any]) -> None:
    stuck = Stuck(10.0)
    after = {"sent": between["sent"]} if "sent" in between else {}
    assert not stuck.look(report(0))
    assert not stuck.look(report(6, **between))
    assert not stuck.look(report(11, **after))
    assert not stuck.look(report(15, **after))
    assert stuck.look(report(21, **after))


def test_events_that_have_no_partition_yet_do_not_count() -> None:
    stuck = Stuck(10.0)
    assert not stuck.look(report(0, number="-1"))
    assert not stuck.look(report(20, number="-1"))


def test_no_broker_is_known_yet() -> None:
    stuck = Stuck(10.0)
    unknown = {"brokers": {"bootstrap": {"nodeid": -1, "state": "UP"}}}
    assert not stuck.look(report(0) | unknown)
    assert not stuck.look(report(20) | unknown)


@pytest.mark.parametrize(
    ("leader", "found"), [(1, True), (-1, True), (2, False)], ids=["its own", "nobody's", "one that is away"]
)
def test_what_counts_is_the_broker_that_leads_the_partition(leader: int, found: bool) -> None:
    """librdkafka is connected only to brokers that it needs."""
    stuck = Stuck(10.0)
    brokers = {"b": {"nodeid": 1, "state": "UP"}, "c": {"nodeid": 2, "state": "INIT"}}
    assert not stuck.look(report(0, leader=leader) | {"brokers": brokers})
    assert stuck.look(report(10, leader=leader) | {"brokers": brokers}) is found
