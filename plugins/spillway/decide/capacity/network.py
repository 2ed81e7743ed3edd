"""A pipeline in its physical form: vertices, arcs with capacities, and the shares that hold where rows fork.

Every edge of a pipeline is a topic, which all instances of its producer write to and all of its consumer read from. So instances
of a consumer balance rows between them, as the paper has it; what an operator hands on is a fixed share of what they all took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.decide.capacity.estimate import Capacities
from spillway.decide.capacity.shares import Passed, inputs_of
from spillway.model.capacity import CapacityWorld, FlowOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    tail: str
    head: str
    capacity: float = math.inf
    """Rows per second; infinite: nothing is known to bound it."""
    share: float | None = None
    """Of the rows into its tail; None: rows leave the tail as they like."""
    held: float | None = None
    """Rows per second that it carries in any case; only of arcs from OUTSIDE."""
    edges: tuple[int, ...] = ()
    """Those of the pipeline that are across when it is cut."""


OUTSIDE = "outside"
"""Where the rows of the other sources come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Vertices without an arc that leaves them are sinks."""

    source: str
    arcs: tuple[Arc, ...]
    about: Mapping[str, float] = field(default_factory=dict)
    """Rows per second at a vertex, roughly, to bring numbers to one size; 1 where it is not said."""

    @property
    def vertices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.source, *(v for a in self.arcs for v in (a.tail, a.head))]))

    @property
    def forks(self) -> bool:
        """Whether rows of one vertex leave it by several arcs in fixed shares, which plain max-flow does not know."""
        shared = [a.tail for a in self.arcs if a.share]
        return len(shared) > len(set(shared))


def physical(world: CapacityWorld, found: Capacities, flows: Passed, rate: float = 1.0) -> Network:
    """The part of a pipeline that the source under study reaches; `rate` is about what can be expected of it.

    >>> from spillway.decide.capacity.estimate import capacities
    >>> from spillway.decide.capacity.examples import chain
    >>> from spillway.decide.capacity.shares import passed
    >>> from spillway.policy import Policy
    >>> found = capacities(chain(), Policy())
    >>> for arc in physical(chain(), found, passed(chain(), found, "ads")).arcs:
    ...     print(arc.tail, "→", arc.head, arc.capacity)
    source ads → into parse 2000.0
    into parse → op parse inf
    op parse → into count 300.0
    into count → op count inf
    """
    arcs: list[Arc] = []
    source = f"source {flows.source}"
    about: dict[str, float] = {source: rate}
    of_name = {o.name: o for o in world.operators}
    inputs_by_name = inputs_of(world)
    for name in flows.order:
        if not flows.reaches(name):
            continue
        inputs = [n for n in inputs_by_name[name] if flows.gain[n] > 0.0 or flows.held[n] > 0.0]
        linked = any(world.edges[n].links for n in inputs) and of_name[name].skew is None
        rows = flows.into[name][0] * rate + flows.into[name][1]
        about |= dict.fromkeys((f"into {name}", f"op {name}"), rows)
        for number in inputs:
            edge = world.edges[number]
            head = f"edge {edge.name}" if linked else f"into {name}"
            capacity = found.edge[number].capacity
            most = math.inf if capacity is None else capacity
            if flows.gain[number] > 0.0:
                tail = source if edge.producer is None else f"op {edge.producer}"
                arcs.append(Arc(tail=tail, head=head, capacity=most, share=edge.share, edges=(number,)))
            else:
                arcs.append(Arc(tail=OUTSIDE, head=head, capacity=most, held=flows.held[number], edges=(number,)))
        if linked:
            arcs += _instances(world, of_name[name], inputs)
            about |= {f"edge {world.edges[n].name}": flows.gain[n] * rate + flows.held[n] for n in inputs}
            about |= {f"instance {name}[{j}]": rows / of_name[name].parallelism for j in range(of_name[name].parallelism)}
        whole = found.operator[name].capacity
        arcs.append(
            Arc(tail=f"into {name}", head=f"op {name}", capacity=math.inf if whole is None else whole, edges=tuple(inputs))
        )
    return Network(source=source, arcs=tuple(arcs), about=about)


def _instances(world: CapacityWorld, operator: FlowOperator, inputs: list[int]) -> list[Arc]:
    arcs = []
    for number in inputs:
        edge = world.edges[number]
        for j in range(operator.parallelism):
            most = edge.links[j] if edge.links else math.inf
            arcs.append(Arc(tail=f"edge {edge.name}", head=f"instance {operator.name}[{j}]", capacity=most, edges=(number,)))
    for j in range(operator.parallelism):
        work = operator.instances[j] if operator.instances else None
        most = work.rows / work.busy_s if work is not None and work.rows > 0.0 and work.busy_s > 0.0 else math.inf
        arcs.append(Arc(tail=f"instance {operator.name}[{j}]", head=f"into {operator.name}", capacity=most, edges=tuple(inputs)))
    return arcs
