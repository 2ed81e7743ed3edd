from __future__ import annotations

import time
from datetime import UTC, datetime

import psycopg2
import pytest
from spillway.observe.agent import Directory, executor_rows, main, node_rows, topic_rows
from spillway.observe.buffer import Buffer, Writer
from spillway.observe.node import Nodes, NodeSample, parse_nodes
from spillway.observe.processes import Role, Usage
from spillway.observe.topics import EndOffset

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def usage(role: Role, cpu: float = 50.0, node: str = "n1") -> Usage:
    return Usage(role=role, node=node, cpu_pct=cpu, rss_bytes=1000, window_s=5.0)


def test_executors_get_the_owner_their_driver_told():
    directory = Directory({"app-1": ("taxi", "heavy")}, {"spillway:taxi:heavy:4": "app-1"})
    rows = executor_rows(
        [usage(Role(executor="3", spark_app="app-1")), usage(Role(executor="driver", name="spillway:taxi:heavy:4"))],
        directory, NOON,
    )  # fmt: skip
    assert rows == [
        ("executor_cpu", ("n1", "app-1", "3", "taxi", "heavy", NOON, 50.0, 1000, 5.0)),
        ("executor_cpu", ("n1", "app-1", "driver", "taxi", "heavy", NOON, 50.0, 1000, 5.0)),
    ]


def test_what_is_not_known_yet_is_missing_not_guessed():
    [executor, driver] = executor_rows(
        [usage(Role(executor="3", spark_app="app-9")), usage(Role(executor="driver", name="spillway:taxi:heavy:5"))],
        Directory(), NOON,
    )  # fmt: skip
    assert executor[1][1:5] == ("app-9", "3", None, None)
    assert driver[1][1:5] == ("spillway:taxi:heavy:5", "driver", "taxi", "heavy")


def test_a_nodes_own_share_is_that_of_its_processes():
    sample = NodeSample(
        node="n1", cores=1, cpu_pct=90, load1=2, mem_used=1, mem_total=2, net_rx_bps=3, net_tx_bps=4, window_s=5.0
    )
    usages = [usage(Role(executor="1", spark_app="a"), 30), usage(Role(executor="2", spark_app="a"), 25, node="n2")]
    assert node_rows([sample], usages, NOON) == [("node_metric", ("n1", NOON, 1, 90, 30.0, 2, 1, 2, 3, 4, 5.0))]


def test_end_offsets_become_rows():
    rows = topic_rows([EndOffset(topic="t", partition=2, end_offset=77)], NOON)
    assert rows == [("topic_metric", ("t", 2, NOON, 77))]


def test_a_node_is_measured_on_its_cores_and_never_above_them():
    meter = Nodes({"n1": frozenset({0})}, time.monotonic())
    for _ in range(3):
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
        [sample] = meter.measure(time.monotonic())
        assert sample.cores == 1
        assert 0 <= sample.cpu_pct <= 106, "a tick of the system is 2 % of this window"
        assert 0.5 <= sample.window_s < 5
    assert 0 < sample.mem_used < sample.mem_total


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "SPILLWAY_NODE is not set"),
        ({"SPILLWAY_NODES": "n1=x"}, "has 'n1=x': write name=core"),
        ({"SPILLWAY_NODES": "=1"}, "has '=1': write name=core"),
        ({"SPILLWAY_NODES": "n1=0,n2=9"}, "has 'n2=9', but this machine has the cores 0 to 3"),
    ],
)
def test_bad_nodes_are_explained(given, message):
    with pytest.raises(ValueError, match=message):
        parse_nodes(given, 4)


def test_without_a_node_the_agent_ends_with_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("SPILLWAY_NODE", raising=False)
    monkeypatch.delenv("SPILLWAY_NODES", raising=False)
    monkeypatch.setenv("SPILLWAY_HOME", str(tmp_path))
    assert main() == 2
    assert capsys.readouterr().err.startswith("spillway agent: SPILLWAY_NODE is not set")


def row(n: int):
    return ("node_metric", (n,))


def test_a_full_buffer_drops_the_oldest_and_counts():
    buffer = Buffer(3)
    buffer.add(row(n) for n in range(5))
    assert buffer.dropped == 2
    assert buffer.take(10) == [row(2), row(3), row(4)]


def test_what_could_not_be_written_comes_first_again_as_far_as_there_is_room():
    buffer = Buffer(4)
    buffer.add(row(n) for n in range(3))
    failed = buffer.take(3)
    buffer.add([row(3), row(4)])
    buffer.give_back(failed)
    assert buffer.take(10) == [row(1), row(2), row(3), row(4)]
    assert buffer.dropped == 1
    buffer.reported(1)
    assert buffer.dropped == 0


def test_a_postgres_that_is_away_loses_nothing_that_fits():
    def away():
        raise psycopg2.OperationalError("connection refused")

    buffer = Buffer(10)
    buffer.add([row(1), row(2)])
    Writer(buffer, away, {}, "n1").write()
    assert buffer.take(10) == [row(1), row(2)]
    assert buffer.dropped == 0
