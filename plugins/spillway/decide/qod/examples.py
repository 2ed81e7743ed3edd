"""Small named worlds: the papers' worked examples and the interchange example, for docstrings and tests."""

from __future__ import annotations

from spillway.decide.qod.world import World, columns
from spillway.model.qod import Edge, Instance, Node, Observation, Operator


def single(
    *, out_rate: float = 100.0, in_rates: tuple[float, ...] = (50.0,), cpu: float = 50.0, lag: float | None = 0.0
) -> World:
    """One operator that is source and query, all its instances on one node."""
    instances = tuple(Instance(node="n1", in_rate=rate, cpu=cpu) for rate in in_rates)
    return columns(
        (Node(name="n1", cores=1.0, cpu=cpu * len(in_rates)),),
        (Operator(name="query", instances=instances, priority=1, min_accuracy=0.0),),
        (Edge(producer=None, topic="topic", consumer="query", out_rate=out_rate, lag=lag),),
    )


def chain_observation() -> Observation:
    """The example of the interchange: a union that feeds a bill, both on one core that is nearly full."""
    return Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=95.0),),
        operators=(
            Operator(name="union", instances=(Instance(node="n1", in_rate=100.0, cpu=40.0),)),
            Operator(name="bill", priority=2, min_accuracy=0.5, instances=(Instance(node="n1", in_rate=80.0, cpu=50.0),)),
        ),
        edges=(
            Edge(producer=None, topic="yellow", consumer="union", out_rate=120.0, lag=0.0),
            Edge(producer="union", topic=None, consumer="bill", out_rate=100.0),
        ),
    )


def chain() -> World:
    observation = chain_observation()
    return columns(observation.nodes, observation.operators, observation.edges)


def fork(*, floors: tuple[float, float] = (0.0, 0.0), priorities: tuple[int, int] = (1, 1)) -> World:
    """Thesis figure 3.3: two sources into one operator that feeds the sinks A and B. Everything keeps up, on one node."""
    names = ("source_1", "source_2", "union", "A", "B")
    promises = {"A": (priorities[0], floors[0]), "B": (priorities[1], floors[1])}
    ends = (
        (None, "source_1", 50.0),
        (None, "source_2", 50.0),
        ("source_1", "union", 50.0),
        ("source_2", "union", 50.0),
        ("union", "A", 100.0),
        ("union", "B", 100.0),
    )
    return columns(
        (Node(name="n1", cores=4.0, cpu=100.0),),
        tuple(
            Operator(
                name=name,
                instances=(Instance(node="n1", in_rate=50.0 if name.startswith("source") else 100.0, cpu=20.0),),
                priority=promises[name][0] if name in promises else None,
                min_accuracy=promises[name][1] if name in promises else None,
            )
            for name in names
        ),
        tuple(
            Edge(producer=producer, topic=None if producer else f"of_{consumer}", consumer=consumer, out_rate=rate, lag=0.0)
            for producer, consumer, rate in ends
        ),
    )
