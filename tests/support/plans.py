"""What tests of plans to rescale ask for, and the pipeline they ask it of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from spillway.act.streams import converge

from tests.support.database import Database
from tests.support.rescaling import POLICY, Line

WANTED: dict[str, dict[str, Any]] = {
    "executors": {"to": 4, "kind": "executors"},
    "restart": {"to": 3, "kind": "restart"},
    "restart_buckets": {"buckets": 4, "kind": "restart"},
    "handover": {"to": 3, "node": "n2", "kind": "handover"},
    "shadow": {"buckets": 16, "to": 4, "kind": "shadow"},
}
AFTER = {
    # generation, node, executors; checkpoint, buckets, incarnation
    "executors": ((1, "n1", 4), (0, 8, 0)),
    "restart": ((1, "n1", 3), (0, 8, 1)),
    "restart_buckets": ((1, "n1", 2), (0, 4, 1)),
    "handover": ((2, "n2", 3), (1, 8, 0)),
    "shadow": ((2, "n1", 4), (1, 16, 0)),
}
BEFORE = ((1, "n1", 2), (0, 8))


@pytest.fixture
def line(migrated: Database) -> Iterator[Line]:
    """The pipeline of `tests.support.rescaling`; who has another one calls it so too."""
    found = Line(migrated)
    yield found
    found.close()


@pytest.fixture
def a_line(migrated: Database) -> Iterator[Callable[..., Line]]:
    """Of another policy."""
    made: list[Line] = []

    def make(**policy: Any) -> Line:
        made.append(Line(migrated, policy=replace(POLICY, **policy)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def streams(line: Line) -> list[Any]:
    return [a for a in converge(line.conn, line.cluster, line.policy) if a.pipeline == line.name]
