"""Small named worlds: the example of the interchange, and one for each thing that plain max-flow gets wrong."""

from __future__ import annotations

from spillway.model.capacity import CapacityWorld, FlowEdge, FlowOperator


def chain(*, flow: float = 900.0, backlog: float | None = 50_000.0) -> CapacityWorld:
    """The example of the interchange: count takes a third of what parse reads, and no more than 300 rows/s of it."""
    return CapacityWorld(
        operators=(FlowOperator(name="parse", parallelism=2), FlowOperator(name="count", parallelism=1)),
        edges=(
            FlowEdge(producer=None, topic="ads", consumer="parse", flow=flow, capacity=2000.0, backlog=backlog),
            FlowEdge(producer="parse", topic=None, consumer="count", flow=flow / 3.0, capacity=300.0, selectivity=1.0 / 3.0),
        ),
    )


def fork(*, left: float = 1.0, right: float = 1.0, flow: float = 400.0) -> CapacityWorld:
    """parse feeds two operators of 500 and 800 rows/s, with these shares of its rows: a copy when both are 1."""
    return CapacityWorld(
        operators=tuple(FlowOperator(name=name, parallelism=1) for name in ("parse", "slow", "fast")),
        edges=(
            FlowEdge(producer=None, topic="ads", consumer="parse", flow=flow, capacity=2000.0, backlog=0.0),
            FlowEdge(producer="parse", topic=None, consumer="slow", flow=flow * left, capacity=500.0, selectivity=left),
            FlowEdge(producer="parse", topic=None, consumer="fast", flow=flow * right, capacity=800.0, selectivity=right),
        ),
    )


def join(*, capacity: float = 1000.0) -> CapacityWorld:
    """Two topics into one operator that takes so many rows/s of both together."""
    return CapacityWorld(
        operators=(FlowOperator(name="match", parallelism=2, capacity=capacity),),
        edges=(
            FlowEdge(producer=None, topic="clicks", consumer="match", flow=200.0, backlog=7_000.0),
            FlowEdge(producer=None, topic="views", consumer="match", flow=300.0, backlog=0.0),
        ),
    )
