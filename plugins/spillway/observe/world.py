"""Windows ↔ worlds: the pipelines that are decided together become one Observation, and its Decision their parts again.

Pipelines share nodes, so they are decided together: a query of one gives way to a more important query of another. In a world
names carry their pipeline (`taxi/heavy`); topics and nodes are everybody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from spillway.model.qod import Cost, Decision, Edge, Instance, Node, Observation, Operator, Previous
from spillway.model.topology import Application, Pipeline
from spillway.model.window import BEYOND_CORES, Interval, NodeRow, Window
from spillway.policy import Policy

Remembered = Mapping[str, Mapping[str, Mapping[str, float]]]
"""By pipeline: `remember` of its last decision, under the names of its topology."""
APPLY, ADVISE = "apply", "advise"


def qualified(pipeline: str, operator: str) -> str:
    return f"{pipeline}/{operator}"


def worlds(modes: Mapping[str, str]) -> dict[str, list[str]]:
    """Which pipelines are decided together, by name of the world.

    What is applied is decided without those that are only advised, for they will not give way. What is advised is decided as if
    it were applied beside the others.

    >>> worlds({"taxi": "apply", "ads": "advise", "knn": "apply"})
    {'apply': ['knn', 'taxi'], 'advise': ['ads', 'knn', 'taxi']}
    """
    applied = sorted(p for p, mode in modes.items() if mode == APPLY)
    advised = sorted(p for p, mode in modes.items() if mode == ADVISE)
    found = {APPLY: applied, ADVISE: sorted(applied + advised) if advised else []}
    return {world: members for world, members in found.items() if members}


def observation(
    window: Window,
    pipelines: Iterable[str],
    remembered: Remembered,
    costs: Mapping[tuple[str, str], Cost | None],
    policy: Policy,
) -> Observation:
    """The world of these pipelines; whatever else runs on their nodes is load that nobody here can lower.

    Nodes that none of them runs on are where something may move to, and no gate looks at them: only those whose metrics can be
    believed are there. What waits for an operator that was just rescaled is left from that, and drained later: nothing is shed
    for it."""
    members = sorted(pipelines)
    on = {node for p in members for node in window.nodes_of(p)}
    later = {(o.pipeline, o.operator) for o in window.operators if (o.pipeline, o.application) in window.settling}
    return Observation(
        nodes=tuple(
            Node(name=n.node, cores=float(n.cores), cpu=n.cpu)
            for n in window.nodes
            if n.node in on or _believable(n, window.interval, policy)
        ),
        operators=tuple(o for p in members for o in _operators(window, p, costs)),
        edges=tuple(
            Edge(
                producer=qualified(e.pipeline, e.producer) if e.producer is not None else None,
                topic=e.topic,
                consumer=qualified(e.pipeline, e.consumer),
                out_rate=e.out_rate,
                keep=e.keep,
                lag=0 if e.lag is not None and (e.pipeline, e.consumer) in later else e.lag,
            )
            for e in window.edges
            if e.pipeline in members
        ),
        previous=_previous(window, members, remembered, policy),
        age_s=age_s(window, members),
        cycle_s=window.interval.seconds,
        now=window.interval.end.isoformat(),
    )


def _believable(node: NodeRow, interval: Interval, policy: Policy) -> bool:
    least, most = policy.qod_ahead_s
    return (
        node.age_s <= policy.qod_stale_cycles * interval.seconds
        and node.cpu is not None
        and 0.0 <= node.cpu <= 100.0 * node.cores + BEYOND_CORES
        and least <= node.ahead_s <= most
    )


def _operators(window: Window, pipeline: str, costs: Mapping[tuple[str, str], Cost | None]) -> list[Operator]:
    spec = window.declared[pipeline].pipeline
    application = {o: a for a in spec.applications for o in a.operators}
    stay = {o for a in spec.applications if (pipeline, a.name) in window.unmoved for o in a.operators}
    waiting = _behind(window, pipeline, window.preparing)  # what is free in one window is taken in the next by what starts
    found = []
    for operator in spec.operators:
        query = operator.query if not spec.outputs(operator.name) else None
        found.append(
            Operator(
                name=qualified(pipeline, operator.name),
                instances=tuple(
                    Instance(
                        node=i.node,
                        in_rate=i.in_rate,
                        cpu=i.cpu,
                        done_rate=i.done_rate,
                        warming=i.warming,
                        movable=operator.name not in stay,
                        executor=_executor(pipeline, application[operator.name], i.executor),
                        cores=float(application[operator.name].slots),
                    )
                    for i in window.instances
                    if (i.pipeline, i.operator) == (pipeline, operator.name)
                ),
                priority=query.priority if query else None,
                min_accuracy=query.min_accuracy if query else None,
                may_rise=operator.name not in waiting,
                cost=costs.get((pipeline, operator.name)),
            )
        )
    return found


def _executor(pipeline: str, application: Application, executor: str) -> str | None:
    """The name of what several operators share."""
    return f"{qualified(pipeline, application.name)}/{executor}" if len(application.operators) > 1 else None


def age_s(window: Window, pipelines: Iterable[str]) -> float:
    """Of the oldest measurement that is needed. A batch that is long ago says nothing while nothing arrives."""
    members = set(pipelines)
    on = {node for p in members for node in window.nodes_of(p)}
    idle = {(o.pipeline, o.operator) for o in window.operators if _idle(window, o.pipeline, o.operator)}
    ages = [
        *(n.age_s for n in window.nodes if n.node in on),
        *(i.age_s for i in window.instances if i.pipeline in members),
        *(e.age_s for e in window.edges if e.pipeline in members),
        *(o.age_s for o in window.operators if o.pipeline in members and not o.warming and (o.pipeline, o.operator) not in idle),
    ]
    return max((age for age in ages if age is not None), default=0.0)


def _idle(window: Window, pipeline: str, operator: str) -> bool:
    return all(e.out_rate == 0.0 for e in window.edges if (e.pipeline, e.consumer) == (pipeline, operator))


def _previous(window: Window, members: Iterable[str], remembered: Remembered, policy: Policy) -> Previous:
    """Where a pipeline has no decision to remember, the keeps that are in force are what was published last.

    A query behind an operator that has just got more executors has waited for that: the first window since may raise it."""
    keeps: dict[str, float] = {}
    ready: dict[str, int] = {}
    for pipeline in members:
        before = remembered.get(pipeline)
        for e in (e for e in window.edges if e.pipeline == pipeline):
            known = before["keeps"].get(e.edge) if before else None
            keeps[_edge_name(e.pipeline, e.producer, e.topic, e.consumer)] = e.keep if known is None else known
        for query, cycles in (before["raise_ready"] if before else {}).items():
            ready[qualified(pipeline, query)] = int(cycles)
        for query in _behind(window, pipeline, window.enlarged):
            name = qualified(pipeline, query)
            ready[name] = max(ready.get(name, 0), policy.qod_raise_cycles - 1)
    return Previous(keeps=keeps, raise_ready=ready)


def _behind(window: Window, pipeline: str, applications: Collection[tuple[str, str]]) -> list[str]:
    """Queries that get rows through an operator of one of these applications."""
    spec = window.declared[pipeline].pipeline
    reached: set[str] = set()
    ahead = [o for a in spec.applications if (pipeline, a.name) in applications for o in a.operators]
    while ahead:
        operator = ahead.pop()
        if operator not in reached:
            reached.add(operator)
            ahead += (e.consumer for e in spec.outputs(operator))
    return [query.name for query in spec.queries() if query.name in reached]


def _edge_name(pipeline: str, producer: str | None, topic: str, consumer: str) -> str:
    return f"{qualified(pipeline, producer) if producer is not None else topic}:{qualified(pipeline, consumer)}"


def keeps_before(found: Observation, pipeline: Pipeline) -> dict[str, float]:
    """What was published last of one pipeline, under the names of its topology."""
    keeps = found.previous.keeps if found.previous else {}
    names = {e.name: _edge_name(pipeline.name, e.producer, e.topic, e.consumer) for e in pipeline.edges}
    return {plain: keeps[name] for plain, name in names.items() if name in keeps}


def part(decision: Decision, pipeline: Pipeline, nodes: Iterable[str]) -> dict[str, Any]:
    """What a decision says of one pipeline, in the form of `spillway decide qod` and under the names of its topology.

    `nodes` are those it runs on. Cores that are missing are those of the whole world: the floors of all have to fit."""
    prefix, on = f"{pipeline.name}/", set(nodes)
    whole = decision.as_dict()

    def own(name: str | None) -> bool:
        return name is not None and name.startswith(prefix)

    def plain(name: str | None) -> str | None:
        return name.removeprefix(prefix) if name is not None else None

    names = {_edge_name(pipeline.name, e.producer, e.topic, e.consumer): e.name for e in pipeline.edges}
    infeasible = whole["infeasible"]
    below = [q for q in infeasible["queries"] if own(q)] if infeasible else []
    more = {plain(n): count for n, count in infeasible["instances_needed"].items() if own(n)} if infeasible else {}
    remember = whole["remember"]
    return {
        **whole,
        "feasible": not below,
        "edges": [
            {**e, "name": names.get(_key(e), _key(e)), "from": plain(e["from"]), "to": plain(e["to"])}
            for e in whole["edges"]
            if own(e["to"])
        ],
        "queries": {plain(n): q for n, q in whole["queries"].items() if own(n)},
        "moves": [{**m, "operator": plain(m["operator"])} for m in whole["moves"] if own(m["operator"])],
        "missing": [m for m in whole["missing"] if prefix in m or m.startswith("nodes.")],
        "infeasible": {**infeasible, "queries": [plain(q) for q in below], "instances_needed": more} if below else None,
        "remember": {
            "keeps": {names[n]: keep for n, keep in remember["keeps"].items() if n in names},
            "raise_ready": {plain(n): cycles for n, cycles in remember["raise_ready"].items() if own(n)},
        },
        "expected": {
            "accuracy": {plain(n): a for n, a in whole["expected"]["accuracy"].items() if own(n)},
            "cpu": {n: cpu for n, cpu in whole["expected"]["cpu"].items() if n in on},
        },
    }


def _key(edge: Mapping[str, Any]) -> str:
    return f"{edge['from'] if edge['from'] is not None else edge['topic']}:{edge['to']}"
