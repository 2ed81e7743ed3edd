"""Small named worlds for docstrings and tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spillway.model.rescale import Flow, OperatorLoad, RescaleWorld

NOW = datetime(2031, 5, 4, 10, 0, tzinfo=UTC)


def operator(name: str = "count", **changed: Any) -> OperatorLoad:
    """Two executors that carry all they can, a third of what is needed."""
    values: dict[str, Any] = {
        "name": name,
        "application": name,
        "parallelism": 2,
        "max": 32,
        "rate": 300.0,
        "capacity": 300.0,
        "needed": 600.0,
        "bottleneck_for": 3,
    }
    return OperatorLoad(**{**values, **changed})


def world(*operators: OperatorLoad, **changed: Any) -> RescaleWorld:
    return RescaleWorld(**{"now": NOW, "operators": operators or (operator(),), **changed})


def ads() -> RescaleWorld:
    """A parser that hands every third row to a count of 120 000 keys, which carries 300 of the 500 rows per second it should."""
    return world(
        OperatorLoad(name="parse", application="parse", parallelism=2, max=8, rate=1500.0, capacity=2000.0),
        OperatorLoad(
            name="count",
            application="count",
            parallelism=1,
            max=8,
            buckets=8,
            stateful=True,
            state_rows=120_000,
            rate=300.0,
            capacity=300.0,
            bottleneck_for=3,
        ),
        edges=(
            Flow(producer=None, topic="ads", consumer="parse", arrival=1500.0, backlog=36_000.0),
            Flow(producer="parse", topic=None, consumer="count", selectivity=1.0 / 3.0),
        ),
    )
