"""The model of Quality of Data once more, in plain words of Python: one operator at a time, nothing shared with `decide`.

Slow and simple on purpose. It judges accuracies, it does not find them; what finds the best ones is a linear program.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from spillway.model.qod import Decision, Edge, Observation

ONE_CORE = 100.0


class Oracle:
    def __init__(self, observation: Observation, *, horizon_s: float | None = 30.0, affine: bool = False) -> None:
        """`horizon_s` spreads what waits over the demand; None leaves it out, as the floors do."""
        self.observation, self.horizon_s, self.affine = observation, horizon_s, affine
        self.operators = {o.name: o for o in observation.operators}
        self.into = {name: [e for e in observation.edges if e.consumer == name] for name in self.operators}
        self.out_of = {name: [e for e in observation.edges if e.producer == name] for name in self.operators}
        self._below: dict[str, set[str]] = {}
        self._share: dict[str, float] = {}

    @cached_property
    def queries(self) -> list[str]:
        return [name for name in self.operators if not self.out_of[name]]

    def below(self, name: str) -> set[str]:
        if name not in self._below:
            further = (self.below(e.consumer) for e in self.out_of[name])
            self._below[name] = set().union(*further) if self.out_of[name] else {name}
        return self._below[name]

    def above(self, query: str) -> list[str]:
        return [name for name in self.operators if query in self.below(name)]

    def floor(self, name: str) -> float:
        return max(self.operators[q].min_accuracy or 0.0 for q in self.below(name))

    def priority(self, query: str) -> int:
        found = self.operators[query].priority
        return 1 if found is None else found

    @cached_property
    def without_backlog(self) -> Oracle:
        """What floors are judged by."""
        return Oracle(self.observation, horizon_s=None, affine=self.affine)

    def rows(self, edge: Edge) -> float:
        waiting = 0.0 if self.horizon_s is None else (edge.lag or 0.0) / self.horizon_s
        return (edge.out_rate or 0.0) + waiting

    def demand(self, name: str) -> float:
        return sum(map(self.rows, self.into[name])) / len(self.operators[name].instances)

    def share(self, name: str) -> float:
        """Of its demand, what it works on at present; more than 1 while it catches up."""
        if name not in self._share:
            asked = self.demand(name)
            local = min(i.in_rate or 0.0 for i in self.operators[name].instances) / asked if asked else 1.0
            above = [self.share(e.producer) if e.producer else 1.0 for e in self.into[name]]
            self._share[name] = local * min(above, default=1.0)
        return self._share[name]

    def cpu(self, name: str, accuracy: Mapping[str, float]) -> float:
        """Of one instance, when every operator has its accuracy."""
        operator = self.operators[name]
        share = self.share(name)
        stuck = any(e.producer and self.share(e.producer) == 0.0 for e in self.into[name])
        if self.affine and operator.cost and not stuck:
            read = kept = 0.0
            for e in self.into[name]:
                rows = self.rows(e) / len(operator.instances)
                rows /= self.share(e.producer) if e.producer else 1.0
                read += rows * (accuracy[e.producer] if e.producer else 1.0)
                kept += rows * accuracy[name]
            return operator.cost.fixed + operator.cost.per_arrived * read + operator.cost.per_kept * kept
        if share == 0.0:
            return self._bet(name) * (min(1.0, accuracy[name] / self.floor(name)) if self.floor(name) else accuracy[name])
        slowest = min(operator.instances, key=lambda i: i.in_rate or 0.0)
        return accuracy[name] * (slowest.cpu or 0.0) / share

    def _bet(self, name: str) -> float:
        """A core, or an even part of the cores it shares."""
        shares = [ONE_CORE * cores / len(members) for cores, members in self.executors.values() if name in members]
        return min(ONE_CORE, *shares)

    def of_operators(self, of_queries: Mapping[str, float]) -> dict[str, float]:
        return {name: max(of_queries[q] for q in self.below(name)) for name in self.operators}

    def available(self, node: str) -> float:
        found = next(n for n in self.observation.nodes if n.name == node)
        ours = sum(i.cpu or 0.0 for o in self.operators.values() for i in o.instances if i.node == node)
        return ONE_CORE * found.cores - max(min(found.cpu or 0.0, ONE_CORE * found.cores) - ours, 0.0)

    def used(self, of_queries: Mapping[str, float]) -> dict[str, float]:
        """Of every node, and of the cores of every executor."""
        return self.used_by(self.of_operators(of_queries))

    def used_by(self, accuracy: Mapping[str, float]) -> dict[str, float]:
        """The same, from the accuracy of every operator."""
        cpu = {name: self.cpu(name, accuracy) for name in self.operators}
        executors = dict.fromkeys(self.executors, 0.0)
        for key, (_, members) in self.executors.items():
            executors[key] += sum(cpu[name] for name in members)
        nodes = {n.name: 0.0 for n in self.observation.nodes}
        for name, operator in self.operators.items():
            for instance in operator.instances:
                nodes[instance.node] += cpu[name]
        return {**{f"node {n}": used for n, used in nodes.items()}, **executors}

    @cached_property
    def executors(self) -> dict[str, tuple[float, list[str]]]:
        """Cores, and the operators that share them, one name per instance. Of instances that share none the one with the
        least stands for all of its operator."""
        found: dict[str, tuple[float, list[str]]] = {}
        for name, operator in self.operators.items():
            for instance in operator.instances:
                if instance.executor is None:
                    least = min(i.cores for i in operator.instances if i.executor is None)
                    found[f"core {name}"] = (least, [name])
                else:
                    found.setdefault(f"executor {instance.executor}", (instance.cores, []))[1].append(name)
        return found

    def offered(self, headroom: float = 0.0) -> dict[str, float]:
        """What may be used; of a node, that share of all its cores stays free."""
        nodes = {f"node {n.name}": self.available(n.name) - headroom * ONE_CORE * n.cores for n in self.observation.nodes}
        return {**nodes, **{key: (1.0 - headroom) * ONE_CORE * cores for key, (cores, _) in self.executors.items()}}

    def overfull(self, of_queries: Mapping[str, float]) -> list[str]:
        offered = self.offered()
        return [r for r, cpu in self.used(of_queries).items() if cpu > offered[r] + 1e-6]

    def floors(self) -> dict[str, float]:
        return {q: self.operators[q].min_accuracy or 0.0 for q in self.queries}

    def could_rise(self, of_queries: Mapping[str, float], query: str, by: float = 1e-4) -> bool:
        """Whether this query alone could have more, with everyone else as they are."""
        more = {**of_queries, query: of_queries[query] + by}
        now, offered = self.used(of_queries), self.offered()
        return all(cpu <= offered[r] + 1e-6 or cpu <= now[r] + 1e-9 for r, cpu in self.used(more).items())

    def delivered(self, decision: Decision) -> dict[str, list[float]]:
        """By operator, the accuracy that comes through each of its inputs."""
        keep = {e.name: e.keep for e in decision.edges}
        found: dict[str, list[float]] = {}

        def of(name: str) -> list[float]:
            if name not in found:
                found[name] = [keep[e.name] * (min(of(e.producer)) if e.producer else 1.0) for e in self.into[name]]
            return found[name]

        for name in self.operators:
            of(name)
        return found
