"""`spillway bottleneck`: what the last evaluation of a pipeline found, and what was proposed, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillway.model.qod import edge_name

if TYPE_CHECKING:
    from spillway.store.decisions import Stored

ESTIMATORS = {
    "given": "as found before",
    "useful_rate": "by the time of its batches",
    "bandwidth": "by the network",
    "feedback": "regulated by latency",
    "none": "not known",
}
UNKNOWN = "?"


def bottleneck(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    decision: Annotated[int | None, typer.Option("--decision", metavar="ID", help="an earlier evaluation than the last")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Explain what a pipeline can carry, and which operator holds it back.

    Flow, capacity and its estimator of every edge, the cut, the drain plan, and what was proposed."""
    from spillway.store import Refused, capacity, pipelines, session
    from spillway.store.decisions import CAPACITY, QOD, RESCALE, by_id, gate_failures

    with session("read") as conn:
        pipelines.load(conn, pipeline)
        found = by_id(conn, decision) if decision is not None else capacity.last(conn, pipeline, CAPACITY)
        if found is not None and found.kind == QOD:
            raise Refused(
                f"decision {found.id} is on what edges keep: see `spillway why {found.pipeline} --decision {found.id}`."
            )
        if found is None or found.pipeline != pipeline:
            off = pipelines.modes(conn).get(pipeline) == "off"
            why = f": its mode is off, see `spillway mode {pipeline} advise`" if off else ""
            raise Refused(f"there is no {'such ' if decision is not None else ''}evaluation of {pipeline}{why}.")
        if found.kind == RESCALE:
            found = capacity.last(conn, pipeline, CAPACITY, found.interval_end) or found
        proposal = capacity.last(conn, pipeline, RESCALE, found.interval_end) if found.origin == "live" else None
        failures = {d.id: gate_failures(conn, d.id) for d in (found, proposal) if d is not None}
    if as_json:
        document = {"evaluation": _as_dict(found, failures), "proposal": _as_dict(proposal, failures) if proposal else None}
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    for line in explain(found, proposal, failures):
        typer.echo(line)


def explain(found: Stored, proposal: Stored | None, failures: Mapping[int, list[dict[str, Any]]]) -> list[str]:
    """An evaluation in words, one line each."""
    window = f"{found.interval_start:%H:%M:%S} to {found.interval_end:%H:%M:%S}Z on {found.interval_end:%Y-%m-%d}"
    said = [f"evaluation {found.id} of {found.pipeline} by what was measured from {window}: {found.status} (mode {found.mode})"]
    if found.reason:
        said.append(f"  {found.reason}")
    said += _gates(failures.get(found.id, []))
    if found.output is not None:
        said += _finding(found.output)
    if proposal is not None:
        said.append(f"proposal {proposal.id}: {proposal.status}")
        said += _gates(failures.get(proposal.id, []))
        said += _proposal(proposal.output) if proposal.output is not None else [f"  {proposal.reason}"]
        if proposal.output is not None and proposal.status in ("failed", "refused"):
            said.append(f"  {proposal.reason}")
    return said


def _gates(failures: list[dict[str, Any]]) -> list[str]:
    return [f"  {f['gate']} gate, {f['rule']}: {json.dumps(f['evidence'])}" for f in failures]


def _finding(output: Mapping[str, Any]) -> list[str]:
    said = []
    if output["source"] is not None:
        most = "nothing that is known bounds it" if output["max_flow"] is None else f"{_rate(output['max_flow'])} fit through"
        said.append(
            f"  {output['source']}: {_rate(output['arrival'])} are written to it, {_rate(output['present'])} are taken, {most}"
        )
    for e in output["edges"]:
        name = edge_name(e["from"], e.get("topic"), e["to"])
        waits = "how many wait is not known" if e["backlog"] is None else f"{e['backlog']:,.0f} rows wait"
        sure = "" if e["capacity"] is None else f", {e['confidence']:.0%} sure".replace("%", " %")
        estimator = ESTIMATORS.get(e["estimator"], e["estimator"])
        said.append(f"  {name}  flow {_rate(e['flow'])} of {_rate(e['capacity'])} ({estimator}{sure}), {waits}")
    if output["cut"]:
        cut = ", ".join(f"{above} → {below}" for above, below in output["cut"])
        said.append(f"  cut: {cut}, which lets {_rate(output['cut_value'])} of {output['source']} through")
    said.append(f"  bottleneck: {', '.join(output['bottlenecks']) or 'none'}")
    if close := [name for name in output["potential"] if name not in output["bottlenecks"]]:
        said.append(f"  nearly full: {', '.join(close)}")
    said += [f"  drain: {_rate(d['value'])} more through {' → '.join(d['path'])}" for d in output["drain"]]
    said += [f"  missing: {field}" for field in output["missing"]]
    return said


def _proposal(output: Mapping[str, Any]) -> list[str]:
    said = []
    for plan in output["plans"]:
        said.append(f"  {plan['application']}: {plan['words']}")
        said += [f"    {p['pass']}: {p['from']} → {p['to']}, {p['words']}" for p in plan["passes"]]
        if plan["answer"] == "change" and plan["expected_rate"] is not None:
            said.append(f"    expected: {_rate(plan['expected_rate'])} in place of {_rate(plan['rate_before'])}")
    return said


def _rate(rate: float | None) -> str:
    """
    >>> _rate(1234.4), _rate(3.25), _rate(None)
    ('1,234 rows/s', '3.25 rows/s', '? rows/s')
    """
    if rate is None:
        return f"{UNKNOWN} rows/s"
    return f"{rate:,.0f} rows/s" if rate >= 100.0 or rate == 0.0 else f"{rate:.3g} rows/s"


def _as_dict(decision: Stored, failures: Mapping[int, list[dict[str, Any]]]) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(decision), "gates": failures.get(decision.id, [])}


def register(app: typer.Typer) -> None:
    app.command()(bottleneck)
