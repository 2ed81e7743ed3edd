"""Decisions that passed their gates become settings, and are compared with what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import Step
from spillway.act.moves import request_move
from spillway.model.window import Interval, Window
from spillway.observe.window import read_window
from spillway.store import decisions, events, settings
from spillway.store.decisions import Run
from spillway.store.promises import accuracies
from spillway.store.queries import execute, row, rows
from spillway.store.settings import Setting

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

ACTOR = "qod"
SAME = 1e-9
CYCLES_OF_LIFE = 3
"""A keep lives at least so many cycles, so that one that is late does not let it lapse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    edge: str
    keep: float
    ttl_s: float | None
    reason: str
    was: float | None
    """The keep before; None where nothing was set."""

    @property
    def changes(self) -> bool:
        return abs(self.keep - (1.0 if self.was is None else self.was)) > SAME


def puts(
    edges: Iterable[Mapping[str, Any]], current: Mapping[str, Setting], ttl_s: float, now: datetime
) -> list[Put]:  # fmt: skip
    """What has to be written so that the store says what was decided: changes, and keeps whose time to live runs out.

    A keep of 1 needs none: keeping everything is also what a job does on its own.
    """
    found = []
    for edge in edges:
        name, keep, setting = edge["name"], edge["keep"], current.get(edge["name"])
        whole = abs(keep - 1.0) <= SAME
        if setting is None:
            due = not whole
        elif abs(keep - setting.keep) > SAME:
            due = True
        elif whole:
            due = setting.ttl_s is not None
        else:
            due = setting.ttl_s is None or setting.issued_at + timedelta(seconds=setting.ttl_s - ttl_s / 2) <= now
        if due:
            was = setting.keep if setting else None
            found.append(Put(edge=name, keep=keep, ttl_s=None if whole else ttl_s, reason=edge["reason"], was=was))
    return found


def publish(conn: Connection, interval: Interval, run: Run, *, now: datetime | None = None) -> Step:
    """Publishes what was decided on pipelines that are applied; one transaction each, with the status of the decision."""
    if not run.live:
        return Step()
    said: list[str] = []
    for found in rows(conn, "qod_decided", start=interval.start, end=interval.end, policy=run.digest):
        said += _publish(conn, found, interval, run, now)
        conn.commit()
    return Step(said=tuple(said))


def _publish(conn: Connection, found: Mapping[str, Any], interval: Interval, run: Run, now: datetime | None) -> list[str]:
    pipeline, decision, output = found["pipeline"], found["id"], found["output"]
    clock = row(conn, "store_clock")
    assert clock is not None
    now = now or clock["now"]
    cycle_s = interval.seconds
    late_s = (now - interval.end).total_seconds()
    if late_s > run.policy.qod_stale_cycles * cycle_s:
        words = f"it is {late_s:.0f} s late: its window ended at {interval.end:%H:%M:%S}"
        execute(conn, "qod_decision_status", id=decision, status="failed", reason=f"not published: {words}")
        return [f"{pipeline}: not published, {words}"]
    if row(conn, "qod_decision_lock", id=decision) is None:
        return [f"{pipeline}: not published, it is applied no longer or decided anew"]
    held = found["status"] == "held"
    ttl_s = max(run.policy.qod_keep_ttl_s, CYCLES_OF_LIFE * cycle_s)
    due = puts(output["edges"], settings.current(conn, pipeline), ttl_s, now)
    if held:  # nothing is changed, what is in force is kept alive
        due = [put for put in due if not put.changes]
    for put in due:
        settings.put(
            conn, pipeline, put.edge, put.keep, ttl_s=put.ttl_s, decision=decision, by=ACTOR, reason=put.reason
        )  # fmt: skip
        if put.changes:
            text = f"keep of {put.edge} is {put.keep:.4g}, it was {1.0 if put.was is None else put.was:.4g}: {put.reason}"
            events.record(conn, actor=ACTOR, kind="keep", pipeline=pipeline, subject=put.edge, text=text)
    _tell_infeasible(conn, pipeline, output)
    if held:
        return [f"{pipeline}: held"]
    execute(conn, "qod_decision_status", id=decision, status="published", reason="")
    moved = request_move(conn, pipeline, decision, output["moves"], now)
    return [f"{pipeline}: {', '.join(f'{p.edge} {p.keep:.3g}' for p in due if p.changes) or 'nothing changes'}", *moved]


def _tell_infeasible(conn: Connection, pipeline: str, output: Mapping[str, Any]) -> None:
    if infeasible := output["infeasible"]:
        below = ", ".join(infeasible["queries"])
        text = f"INFEASIBLE: {below} cannot have the promised accuracy, {infeasible['cores_needed']:.2g} cores are missing"
        decisions.tell(conn, pipeline, "infeasible", text, about=f"INFEASIBLE: {below} ")


# ---- did the world change as asked? ----

NEAR = 0.05
"""An accuracy within this of the expected one is as expected."""


def verify(conn: Connection, interval: Interval, run: Run) -> Step:
    """Compares published decisions with the first window that lies wholly after them."""
    if not run.live:
        return Step()
    window = read_window(conn, interval, run.policy)
    since = interval.start - timedelta(seconds=interval.seconds * (run.policy.qod_stale_cycles + 1))
    said = []
    for found in rows(conn, "qod_unverified", start=interval.start, end=interval.end, since=since):
        pipeline = found["pipeline"]
        if pipeline not in window.declared:
            continue
        if found["superseded"]:
            verdict: dict[str, Any] = {"verdict": "superseded", "window_end": interval.end.isoformat()}
        else:
            verdict = compare(found["expected"], window, pipeline)
            said.append(f"{pipeline} decision {found['id']}: {verdict['verdict']}")
            if verdict["verdict"] == "missed":
                text = f"decision {found['id']} did not bring what it promised: {'; '.join(verdict['missed'])}"
                decisions.tell(conn, pipeline, "missed", text, about="decision")
        execute(conn, "qod_verified", id=found["id"], verified=json.dumps(verdict))
    conn.commit()
    return Step(said=tuple(said))


def compare(expected: Mapping[str, Any], window: Window, pipeline: str) -> dict[str, Any]:
    """Expected beside measured: the keep of every edge, the accuracy of every query, the CPU of every node."""
    spec = window.declared[pipeline].pipeline
    edges = {e.edge: e for e in window.edges if e.pipeline == pipeline}
    reached = accuracies(spec, {name: None if e.share is None else min(e.share, 1.0) for name, e in edges.items()})
    cpu = {n.node: n.cpu for n in window.nodes}
    keeps = {n: {"expected": k, "measured": edges[n].keep} for n, k in expected["keep"].items() if n in edges}
    queries = {
        q.name: {"expected": expected["accuracy"].get(q.name), "measured": reached[q.name]} for q in spec.queries()
    }  # fmt: skip
    nodes = {n: {"expected": value, "measured": cpu.get(n)} for n, value in expected["cpu"].items()}
    missed = [
        f"keep of {n} is {k['measured']:.3g} instead of {k['expected']:.3g}"
        for n, k in keeps.items()
        if abs(k["measured"] - k["expected"]) > SAME
    ]
    missed += [
        f"accuracy of {n} is {q['measured']:.3g} instead of {q['expected']:.3g}"
        for n, q in queries.items()
        if q["measured"] is not None and q["expected"] is not None and q["measured"] < q["expected"] - NEAR
    ]
    return {
        "verdict": "missed" if missed else "confirmed",
        "missed": missed,
        "window_end": window.interval.end.isoformat(),
        "keep": keeps,
        "accuracy": queries,
        "cpu": nodes,
    }
