"""Single queries on nodes of one core, to be decided by hand."""

from __future__ import annotations

from dataclasses import replace

from spillway.model.qod import Decision, Edge, Instance, Node, Observation, Operator
from spillway.policy import Policy

WHOLE = Policy(qod_headroom=0.0)
"""All of a core may be used, which gives round numbers."""


def query(
    name: str, *, node: str = "n1", cpu: float = 50.0, done: float = 1.0, priority: int = 1, floor: float = 0.0, count: int = 1,
    warming: bool = False,
) -> Operator:  # fmt: skip
    """A source that is a query, of 100 rows per second, `cpu` for the share `done` of them in each instance."""
    instance = Instance(node=node, in_rate=100.0 * done / count, cpu=cpu, warming=warming)
    return Operator(name=name, instances=(instance,) * count, priority=priority, min_accuracy=floor)


def seen(*operators: Operator, cores: dict[str, float] | None = None, lag: float | None = 0.0) -> Observation:
    nodes = cores or {"n1": 1.0}
    used = {n: sum(i.cpu or 0.0 for o in operators for i in o.instances if i.node == n) for n in nodes}
    return Observation(
        nodes=tuple(Node(name=n, cores=c, cpu=used[n]) for n, c in nodes.items()),
        operators=operators,
        edges=tuple(Edge(producer=None, topic=f"to_{o.name}", consumer=o.name, out_rate=100.0, lag=lag) for o in operators),
    )


def again(observation: Observation, decision: Decision) -> Observation:
    return replace(observation, previous=decision.remember)
