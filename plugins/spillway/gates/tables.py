"""Windows and decisions as tables of plain rows, one column per thing a rule looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spillway.model.topology import Pipeline
from spillway.model.window import Window
from spillway.store.promises import accuracies

Rows = list[dict[str, Any]]


def observed(window: Window) -> dict[str, Rows]:
    """Nodes nobody runs on are left out: what is wrong with them stops nobody."""
    cores = {n.node: n.cores for n in window.nodes}
    used = {i.node for i in window.instances}
    begins = _begins(window)
    return {
        "nodes": [
            {
                "subject": n.node,
                "cpu": n.cpu,
                "beyond_cores": None if n.cpu is None else n.cpu - 100.0 * n.cores,
                "ahead_s": n.ahead_s,
            }
            for n in window.nodes
            if n.node in used
        ],
        "instances": [
            {
                "pipeline": i.pipeline,
                "subject": f"{i.operator} executor {i.executor} on {i.node}",
                "operator": i.operator,
                "executor": i.executor,
                "in_rate": i.in_rate,
                "cpu": i.cpu,
                "settled": int(not (i.warming or begins.get((i.pipeline, i.operator), False))),
                "node_known": i.node in cores,
                "beyond_node": None if i.cpu is None or i.node not in cores else i.cpu - 100.0 * cores[i.node],
                "ahead_s": i.ahead_s,
            }
            for i in window.instances
        ],
        "operators": [
            {
                "pipeline": o.pipeline,
                "subject": o.operator,
                "missing": 0 if o.warming else o.declared - o.measured,
                "ahead_s": o.ahead_s,
            }
            for o in window.operators
        ],
        "edges": [
            {
                "pipeline": e.pipeline,
                "subject": e.edge,
                "out_rate": e.out_rate,
                "keep": e.keep,
                "lag": e.lag,
                "settled": int(not (begins[e.pipeline, e.consumer] or begins.get((e.pipeline, e.producer), False))),
                "ahead_s": e.ahead_s,
            }
            for e in window.edges
        ],
    }


def _begins(window: Window) -> dict[tuple[str, str | None], bool]:
    """Operators of which nothing can be told yet: they warm up, have run no batch lately, or are fed by such a one. They are
    held, and nothing about them is wrong."""
    found: dict[tuple[str, str | None], bool] = {(o.pipeline, o.operator): o.warming or o.age_s is None for o in window.operators}
    for _ in window.operators:
        for edge in window.edges:
            found[edge.pipeline, edge.consumer] |= found.get((edge.pipeline, edge.producer), False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One pipeline's part of a decision, and what it is measured by."""

    pipeline: Pipeline
    part: Mapping[str, Any]
    before: Mapping[str, float]
    """The keeps that were published last, by edge."""
    raise_limit: float

    @property
    def held(self) -> bool:
        return self.part["held"] is not None


def decided(judged: Iterable[Judged]) -> dict[str, Rows]:
    """A decision that is held changes no keep: rules about what keeps do to queries are for those that may."""
    tables: dict[str, Rows] = {"keeps": [], "queries": [], "consumers": []}
    for one in judged:
        name = one.pipeline.name
        found = one.part["edges"]
        known = {e["name"] for e in found}
        absent = [{"name": e.name, "keep": None, "reason": "not decided"} for e in one.pipeline.edges if e.name not in known]
        tables["keeps"] += [
            {"pipeline": name, "subject": e["name"], "edge": e["name"], "keep": e["keep"], "reason": e["reason"]}
            for e in (*found, *absent)
        ]
        if not one.held:
            keeps = {e["name"]: e["keep"] for e in found}
            tables["queries"] += _queries(one, keeps)
            tables["consumers"] += _consumers(one.pipeline, keeps)
    return tables


def _queries(one: Judged, keeps: Mapping[str, float]) -> Rows:
    """Of every query that is declared, by what is declared: a decision is not asked what it should have kept to."""
    delivered, before = accuracies(one.pipeline, keeps), accuracies(one.pipeline, one.before)
    excused = set((one.part["infeasible"] or {}).get("queries", ()))
    found = []
    for query in one.pipeline.queries():
        name, floor = query.name, query.query.min_accuracy if query.query else 0.0
        got, had = delivered.get(name), before.get(name)
        promised = one.part["queries"].get(name, {}).get("desired")
        room = None if had is None else max(one.raise_limit, floor - had)
        found.append(
            {
                "pipeline": one.pipeline.name,
                "subject": name,
                "accuracy": got,
                "floor": floor,
                "promised": promised,
                "above_floor": None if got is None or name in excused else got - floor,
                "beside_promise": None if got is None or promised is None else abs(got - promised),
                "beyond_raise": None if got is None or had is None or room is None else got - had - room,
            }
        )
    return found


def _consumers(pipeline: Pipeline, keeps: Mapping[str, float]) -> Rows:
    seen = accuracies(pipeline, keeps)
    found = []
    for operator in pipeline.operators:
        above = [(keeps.get(e.name), seen[e.producer] if e.producer else 1.0) for e in pipeline.inputs(operator.name)]
        through = [keep * share for keep, share in above if keep is not None and share is not None]
        spread = max(through, default=0.0) - min(through, default=0.0)
        found.append({"pipeline": pipeline.name, "subject": operator.name, "spread": spread})
    return found
