"""The published rule for sizing all operators of a dataflow at once, to be measured beside ours.

DS2 (Kalavri et al., "Three steps is all you need", OSDI 2018): the rates of the sources are passed forward through the
selectivities of the operators to the rate each has to sustain, and its parallelism follows from the true processing rate of its
instances, rows over useful time (equations 7 and 8). The Flink autoscaler (FLIP-271) is the same rule with a target
utilisation, a band of utilisations within which nothing is done, a time to catch up a backlog, a bound on scaling down and a
delay before it. Both take an operator to scale linearly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.model.rescale import Flow


def target_rates(order: Sequence[str], edges: Sequence[Flow]) -> dict[str, float]:
    """What every operator has to sustain; `order` has producers first.

    >>> edges = [Flow(producer=None, topic="t", consumer="a", arrival=900.0),
    ...          Flow(producer="a", topic=None, consumer="b", selectivity=0.5)]
    >>> target_rates(["a", "b"], edges)
    {'a': 900.0, 'b': 450.0}
    """
    found: dict[str, float] = {}
    for name in order:
        found[name] = sum(
            (edge.arrival or 0.0) if edge.producer is None else edge.selectivity * found[edge.producer]
            for edge in edges
            if edge.consumer == name
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The rule with its settings; the defaults are DS2's, which has none of them."""

    utilisation: float = 1.0
    band: tuple[float, float] | None = None
    """Utilisations within which nothing is done; None: whatever differs is changed."""
    catch_up_s: float | None = None
    """A backlog is to be gone after this long."""
    down_most: float = 1.0
    """Share of the instances that may be taken away at once."""

    def parallelism(
        self,
        current: Mapping[str, int],
        capacity: Mapping[str, float],
        targets: Mapping[str, float],
        backlog: Mapping[str, float] | None = None,
    ) -> dict[str, int]:
        """What every operator should have: ⌈target rate ÷ true rate of one instance⌉.

        >>> Sizing().parallelism({"a": 2}, {"a": 200.0}, {"a": 450.0})
        {'a': 5}
        >>> FLINK.parallelism({"a": 2}, {"a": 200.0}, {"a": 190.0})
        {'a': 2}
        """
        if self.band is not None and all(
            self.band[0] <= targets[n] / capacity[n] <= self.band[1] for n in current if capacity[n] > 0.0
        ):
            return dict(current)
        found = {}
        for name, count in current.items():
            waits = (backlog or {}).get(name, 0.0) / self.catch_up_s if self.catch_up_s else 0.0
            wanted = (targets[name] / self.utilisation + waits) / (capacity[name] / count)
            found[name] = max(1, math.ceil(wanted - 1e-9), math.ceil(count * (1.0 - self.down_most)))
        return found


DS2 = Sizing()
FLINK = Sizing(utilisation=0.7, band=(0.4, 1.0), catch_up_s=1_800.0, down_most=0.6)


def narrowest(capacity: Mapping[str, float], targets: Mapping[str, float]) -> frozenset[str]:
    """DS2 names no bottleneck; this is whoever falls the furthest short of its target rate, and those that fall as far.

    >>> sorted(narrowest({"a": 100.0, "b": 90.0, "c": 50.0}, {"a": 200.0, "b": 100.0, "c": 100.0}))
    ['a', 'c']
    """
    share = {name: capacity[name] / targets[name] for name in targets if targets[name] > 0.0}
    least = min(share.values())
    return frozenset(name for name, value in share.items() if value <= least * (1.0 + 1e-9))
