"""Flow networks, findings and plans as tables of plain rows, one column per thing a rule looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spillway.gates.tables import Rows
from spillway.model.capacity import CapacityWorld
from spillway.model.capacity_window import CapacityWindow
from spillway.model.qod import edge_name
from spillway.model.topology import Pipeline


def measured(windows: Iterable[CapacityWindow]) -> dict[str, Rows]:
    """What was measured. `settled`: the consumer has finished a batch, so what is not there is missing."""
    tables: dict[str, Rows] = {"flow_operators": [], "flow_instances": [], "flow_edges": []}
    for found in windows:
        name, operators = found.pipeline, {o.operator: o for o in found.operators}
        tables["flow_operators"] += [
            {
                "pipeline": name,
                "subject": o.operator,
                "missing": o.declared - o.measured,
                "rows": sum(b.rows for b in o.batches),
                "busy_s": sum(b.busy_s for b in o.batches),
                "overlap_s": o.overlap_s,
                "selectivity": o.selectivity,
                "settled": int(bool(o.batches)),
                "ahead_s": o.ahead_s,
            }
            for o in found.operators
        ]
        tables["flow_instances"] += [
            {
                "pipeline": name,
                "subject": f"{i.operator} executor {i.executor} on {i.node}",
                "operator": i.operator,
                "executor": i.executor,
                "rows": i.rows,
                "ahead_s": i.ahead_s,
            }
            for i in found.instances
        ]
        tables["flow_edges"] += [
            {
                "pipeline": name,
                "subject": e.edge,
                "flow": e.flow,
                "out_rate": e.arrival,
                "backlog": e.backlog,
                "keep": e.keep,
                "latency_ms": e.latency_ms,
                "settled": int(operators[e.consumer].finished > 1),
                "ahead_s": e.ahead_s,
            }
            for e in found.edges
        ]
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding in the form of `spillway decide capacity`, and what it is measured by."""

    pipeline: Pipeline
    world: CapacityWorld
    finding: Mapping[str, Any]
    over_flow: float
    """Share of a capacity by which a flow may lie above it."""


def detected(found: Iterable[Found]) -> dict[str, Rows]:
    tables: dict[str, Rows] = {"findings": [], "named": [], "capacities": [], "gains": []}
    for one in found:
        name, finding = one.pipeline.name, one.finding
        flow, cut = finding["max_flow"], finding["cut_value"]
        known = {o.name for o in one.pipeline.operators}
        tables["findings"].append(
            {
                "pipeline": name,
                "subject": name,
                "max_flow": flow,
                "beside_cut": abs(flow - cut) / max(abs(flow), abs(cut), 1.0) if flow is not None and cut is not None else None,
                "whole": int((flow is None) == (cut is None)),
                "reason": finding["reason"],
                "unnamed": int(finding["verdict"] == "bottleneck" and not finding["bottlenecks"]),
            }
        )
        tables["named"] += [
            {"pipeline": name, "subject": operator, "declared": operator in known}
            for operator in dict.fromkeys([*finding["bottlenecks"], *finding["potential"]])
        ]
        tables["capacities"] += _capacities(one)
        tables["gains"] += _gains(one)
    return tables


def _capacities(one: Found) -> Rows:
    """Every edge that is declared, with what was found of it; and what was found of edges that are not."""
    found: dict[str, list[Mapping[str, Any]]] = {e.name: [] for e in one.pipeline.edges}
    for e in one.finding["edges"]:
        found.setdefault(edge_name(e["from"], e.get("topic"), e["to"]), []).append(e)
    return [
        {
            "pipeline": one.pipeline.name,
            "subject": name,
            "times": len(same),
            "flow": first.get("flow"),
            "capacity": first.get("capacity"),
            "over": _over(first, one.over_flow),
            "confidence": first.get("confidence"),
            "estimator": first.get("estimator") or "",
        }
        for name, same in found.items()
        for first in [same[0] if same else {}]
    ]


def _over(edge: Mapping[str, Any], most: float) -> float | None:
    """By how much of its capacity the flow is above what it may be; nothing flows over an edge that could carry nothing."""
    flow, capacity = edge.get("flow"), edge.get("capacity")
    if flow is None or capacity is None:
        return None
    return float(flow - capacity * (1.0 + most)) / max(capacity, 1.0)


def _gains(one: Found) -> Rows:
    """Conservation once more, from what was measured: rows into an operator are what producers and shares make of those above."""
    source, edges = one.finding["source"], one.world.edges
    gains: dict[str, float] = {}
    pending = [o.name for o in one.world.operators]
    while pending:
        ready = [n for n in pending if all(e.producer is None or e.producer in gains for e in edges if e.consumer == n)]
        if not ready:
            break
        for name in ready:
            inputs = [e for e in edges if e.consumer == name]
            gains[name] = sum(e.share * (float(e.topic == source) if e.producer is None else gains[e.producer]) for e in inputs)
        pending = [n for n in pending if n not in gains]
    return [
        {
            "pipeline": one.pipeline.name,
            "subject": o["operator"],
            "gain": o["gain"],
            "beside_shares": abs(o["gain"] - gains.get(o["operator"], 0.0)) / max(1.0, abs(o["gain"])),
            "capacity": o["capacity"],
            "limit": o["limit"],
        }
        for o in one.finding["operators"]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Plans in the form of `spillway decide rescale`."""

    pipeline: Pipeline
    executors: Mapping[str, int]
    """That applications have, by name."""
    output: Mapping[str, Any]


def proposed(found: Iterable[Proposed]) -> dict[str, Rows]:
    rows: Rows = []
    for one in found:
        applications = {a.name: a for a in one.pipeline.applications}
        for plan in one.output["plans"]:
            application = applications.get(plan["application"])
            bounds = [one.pipeline.operator(o).parallelism for o in application.operators] if application else []
            before, after = plan["executors"]["from"], plan["executors"]["to"]
            least, most = max((b.min for b in bounds), default=1), min((b.max for b in bounds), default=before)
            changes = plan["answer"] == "change"
            rows.append(
                {
                    "pipeline": one.pipeline.name,
                    "subject": plan["operator"],
                    "application": plan["application"],
                    "declared": bool(application) and plan["operator"] in (application.operators if application else ()),
                    "beyond_bounds": max(least - after, after - max(most, least), 0) if changes and before != after else 0,
                    "beside_present": abs(before - one.executors.get(plan["application"], before)),
                    "reason": plan["words"],
                    "gains": _gain(plan) if changes else None,
                }
            )
    return {"plans": rows}


def _gain(plan: Mapping[str, Any]) -> float | None:
    """What more executors are expected to bring; of fewer, nothing is to be gained."""
    before, expected = plan["rate_before"], plan["expected_rate"]
    grows = plan["executors"]["to"] > plan["executors"]["from"]
    return expected - before if grows and before is not None and expected is not None else None
