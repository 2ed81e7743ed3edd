"""Fixtures for every test. An unmarked test is a unit test; what needs services asks for `stack`, which starts them once."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from spillway.embedded import Stack
from spillway.embedded.owner import scratch, sweep_scratch

# A shell's own settings must not decide how a test ends.
for name in [n for n in os.environ if n.startswith(("SPILLWAY_DSN_", "SPILLWAY_PORT_", "AIRFLOW__", "AIRFLOW_CONN_"))]:
    del os.environ[name]
for name in (
    "SPILLWAY_HOME",
    "SPILLWAY_KAFKA",
    "SPILLWAY_SPARK_MASTER",
    "SPILLWAY_SPARK_REST",
    "SPILLWAY_AIRFLOW",
    "PYTHONDONTWRITEBYTECODE",
):
    os.environ.pop(name, None)


def _end_by_exception(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


signal.signal(signal.SIGTERM, _end_by_exception)  # so that fixtures still stop what they started
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored, for all it starts too


LONG = (
    "test_rescale_driver",
    "dags",
    "test_embedded_stack",
    "test_qod_airflow",
    "test_exactly_once",
    "test_airflow_line",
    "test_steering",
    "test_shipped_pipelines",
    "test_other_sinks",
)
"""Files whose tests take minutes, in an order in which those that fill the machine begin beside others."""


def together(nodeid: str) -> str:
    """The tests of a file run in one process, and all those of `dags`, which share a database of Airflow."""
    file = nodeid.split("::")[0]
    return "dags" if file.startswith("tests/dags/") else Path(file).stem if file.startswith("tests/integration/") else file


def needs_no_cluster(item: pytest.Item) -> bool:
    names: list[str] = getattr(item, "fixturenames", [])
    return item.nodeid.startswith("tests/spark/") or (
        item.nodeid.startswith("tests/integration/") and "server" in names and "stack" not in names
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that at the end no process waits for another."""
    for item in filter(needs_no_cluster, items):
        item.add_marker("beside")
    items.sort(key=lambda item: LONG.index(group) if (group := together(item.nodeid)) in LONG else len(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup` would do, but for pytest 9.2, whose names of tests xdist 3.8 does not change any more."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_sessionstart() -> None:
    """Also a session without services ends those of one that was killed."""
    for folder in sweep_scratch():
        print(f"stopped and removed {folder}, left behind by a process that was killed")


@pytest.fixture(scope="session")
def run_root() -> Iterator[Path]:
    """A folder for run folders; if this process is killed, the next session stops what runs in it."""
    with scratch("test") as folder:
        yield folder


@pytest.fixture(scope="session")
def stack(run_root: Path) -> Iterator[Stack]:
    """Postgres, Kafka and a Spark cluster of two workers, shared by all tests of the session."""
    services = Stack(run_root / "shared", services=("postgres", "kafka", "spark"))
    try:
        services.up()
        yield services
    finally:
        services.clean()


@pytest.fixture(scope="session")
def dsn(stack: Stack) -> Callable[[str], str]:
    """The libpq URI of a role: dsn("owner"), dsn("control"), dsn("job"), dsn("read")."""
    return lambda role: stack.env[f"SPILLWAY_DSN_{role.upper()}"]


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name nobody else uses, for a topic, a pipeline or a consumer group: unique("words") → words_3f2a91c0."""
    return lambda prefix: f"{prefix}_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(stack: Stack, unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Makes topics and deletes them afterwards: topic("in", partitions=2)."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": stack.env["SPILLWAY_KAFKA"], "log_level": 0})
    made: list[str] = []

    def make(prefix: str = "topic", partitions: int = 4, config: dict[str, str] | None = None) -> str:
        name = unique(prefix)
        for future in admin.create_topics([NewTopic(name, partitions, 1, config=config or {})]).values():
            future.result(30)
        made.append(name)
        return name

    yield make
    if made and stack.alive() and "kafka" in stack.pids():
        for future in admin.delete_topics(made).values():
            future.exception(30)
