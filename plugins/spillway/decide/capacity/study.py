"""Which source is studied (paper 002, section 2.2): the one whose topic partition has the largest backlog."""

from __future__ import annotations

from spillway.decide.capacity.shares import in_order, inputs_of
from spillway.model.capacity import CapacityWorld, FlowEdge


def sources(world: CapacityWorld) -> tuple[str, ...]:
    """Topics from outside, in the order of the world."""
    return tuple(dict.fromkeys(e.topic for e in world.edges if e.producer is None and e.topic is not None))


def studied(world: CapacityWorld) -> str | None:
    """The topic to study; None when nothing comes from outside.

    The paper's rows wait at the source, because Flink holds it up. Here every edge is a topic and rows wait in front of the
    bottleneck, so what waits on an edge counts at the sources that it came from, in rows there. Partitions are compared where
    all edges tell theirs, else whole topics. When nothing waits anywhere, it is the source that brings most rows.

    >>> from spillway.decide.capacity.examples import join
    >>> studied(join())
    'clicks'
    """
    topics = sources(world)
    if not topics:
        return None
    by_partition = all(e.partitions for e in world.edges)
    rate = {topic: _rate(world, topic) for topic in topics}
    gains = {topic: _gains(world, topic) for topic in topics}
    waiting = dict.fromkeys(topics, 0.0)
    for number, edge in enumerate(world.edges):
        waits = _waits(edge, by_partition)
        if edge.producer is None and edge.topic is not None:
            waiting[edge.topic] = max(waiting[edge.topic], waits)
        else:
            rows = sum(rate[t] * gains[t][number] for t in topics)
            for topic in topics:
                if rows > 0.0:
                    waiting[topic] = max(waiting[topic], waits * rate[topic] / rows)
    return max(topics, key=lambda t: (waiting[t], rate[t]))


def _waits(edge: FlowEdge, by_partition: bool) -> float:
    return max(edge.partitions) if by_partition else (edge.backlog if edge.backlog is not None else sum(edge.partitions))


def _rate(world: CapacityWorld, topic: str) -> float:
    entries = [e for e in world.edges if e.producer is None and e.topic == topic]
    return max((e.arrival if e.arrival is not None else e.flow or 0.0) for e in entries)


def _gains(world: CapacityWorld, topic: str) -> list[float]:
    """By edge: rows on it for each row at a source."""
    into: dict[str, float] = {}
    gain = [0.0] * len(world.edges)
    inputs_by_name = inputs_of(world)
    for name in in_order(world):
        for number in inputs_by_name[name]:
            edge = world.edges[number]
            above = into[edge.producer] if edge.producer is not None else float(edge.topic == topic)
            gain[number] = edge.share * above
        into[name] = sum(gain[n] for n in inputs_by_name[name])
    return gain
