"""Decisions that passed their gates become settings, and are compared with what came of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import Step
from spillway.act.moves import request_move
from spillway.model.qod import shortage
from spillway.model.window import Interval, Window
from spillway.observe.window import read_window
from spillway.policy import Policy
from spillway.store import decisions, events, settings
from spillway.store.decisions import Run
from spillway.store.promises import accuracies
from spillway.store.queries import execute, row, rows
from spillway.store.settings import Setting

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

ACTOR = "qod"
SAME = 1e-9
CYCLES_OF_LIFE, CYCLES_LEFT = 4, 3
"""A keep lives at least so many cycles, and is written anew when no more than so many are left: those that follow may be late,
or decide nothing, and it does not lapse."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long keeps live, at a moment of the cycle that writes them."""

    ttl_s: float
    cycle_s: float
    now: datetime

    @classmethod
    def of(cls, policy: Policy, cycle_s: float, now: datetime) -> Life:
        return cls(ttl_s=max(policy.qod_keep_ttl_s, CYCLES_OF_LIFE * cycle_s), cycle_s=cycle_s, now=now)

    def left_s(self, setting: Setting) -> float:
        if setting.ttl_s is None:
            return math.inf
        return (setting.issued_at - self.now).total_seconds() + setting.ttl_s

    def due(self, setting: Setting) -> bool:
        return self.left_s(setting) <= max(self.ttl_s / 2, CYCLES_LEFT * self.cycle_s)


def puts(edges: Iterable[Mapping[str, Any]], current: Mapping[str, Setting], life: Life) -> list[Put]:
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
            due = setting.ttl_s is None or life.due(setting)
        if due:
            was = setting.keep if setting else None
            found.append(Put(edge=name, keep=keep, ttl_s=None if whole else life.ttl_s, reason=edge["reason"], was=was))
    return found


def unchanged(current: Mapping[str, Setting], life: Life) -> list[Put]:
    """Keeps of a controller that are in force and soon would not be, as they are. What a person set ends when he said."""
    return [
        Put(edge=s.edge, keep=s.keep, ttl_s=life.ttl_s, reason=s.reason, was=s.keep)
        for s in current.values()
        if s.issued_by == ACTOR and s.ttl_s is not None and life.left_s(s) > 0 and life.due(s)
    ]


def publish(conn: Connection, interval: Interval, run: Run, *, now: datetime | None = None) -> Step:
    """Publishes what was decided on pipelines that are applied; one transaction each, with the status of the decision.

    Where nothing was decided, what is in force is kept alive, but no longer than `qod_stale_cycles` cycles after the last
    decision there was: a pipeline nothing can be said of for longer ends in the fallback it declares."""
    if not run.live:
        return Step()
    said: list[str] = []
    for found in rows(conn, "qod_decided", start=interval.start, end=interval.end, policy=run.digest):
        said += _act(conn, found, interval, run, now)
        conn.commit()
    return Step(said=tuple(said))


def _act(conn: Connection, found: Mapping[str, Any], interval: Interval, run: Run, now: datetime | None) -> list[str]:
    pipeline, decision = found["pipeline"], found["id"]
    clock = row(conn, "store_clock")
    assert clock is not None
    now = now or clock["now"]
    late_s = (now - interval.end).total_seconds()
    decided = found["status"] in ("decided", "held") and found["output"] is not None
    if late_s > run.policy.qod_stale_cycles * interval.seconds:
        if not decided:
            return []
        words = f"it is {late_s:.0f} s late: its window ended at {interval.end:%H:%M:%S}"
        execute(conn, "qod_decision_status", id=decision, status="failed", reason=f"not published: {words}")
        return [f"{pipeline}: not published, {words}"]
    row(conn, "qod_pipeline_lock", pipeline=pipeline)  # what is asked next must see what an earlier holder of the lock did
    if row(conn, "qod_decision_lock", id=decision, status=found["status"]) is None:
        return [f"{pipeline}: not published, it is applied no longer, declared anew or decided anew"] if decided else []
    life = Life.of(run.policy, interval.seconds, now)
    return _publish(conn, found, life, run.policy) if decided else _keep_alive(conn, found, interval, run, life)


def _publish(conn: Connection, found: Mapping[str, Any], life: Life, policy: Policy) -> list[str]:
    pipeline, decision, output = found["pipeline"], found["id"], found["output"]
    held = found["status"] == "held"
    due = puts(output["edges"], settings.current(conn, pipeline), life)
    if held:  # nothing is changed, what is in force is kept alive
        due = [put for put in due if not put.changes]
    _put(conn, pipeline, decision, due)
    _tell_infeasible(conn, pipeline, output)
    if held:
        return [f"{pipeline}: held"]
    execute(conn, "qod_decision_status", id=decision, status="published", reason="")
    moved = request_move(conn, pipeline, decision, output["moves"], policy, life.now)
    return [f"{pipeline}: {', '.join(f'{p.edge} {p.keep:.3g}' for p in due if p.changes) or 'nothing changes'}", *moved]


def _keep_alive(conn: Connection, found: Mapping[str, Any], interval: Interval, run: Run, life: Life) -> list[str]:
    pipeline = found["pipeline"]
    due = unchanged(settings.current(conn, pipeline), life)
    since = interval.end - timedelta(seconds=run.policy.qod_stale_cycles * interval.seconds)
    if not due:
        return []
    if row(conn, "qod_decided_lately", pipeline=pipeline, since=since, end=interval.end) is None:
        return [f"{pipeline}: nothing was decided for too long, its keeps are left to fall back as declared"]
    _put(conn, pipeline, found["id"], due)
    return [f"{pipeline}: {', '.join(f'{p.edge} {p.keep:.3g}' for p in due)} as before"]


def _put(conn: Connection, pipeline: str, decision: int, due: Iterable[Put]) -> None:
    for put in due:
        settings.put(
            conn, pipeline, put.edge, put.keep, ttl_s=put.ttl_s, decision=decision, by=ACTOR, reason=put.reason
        )  # fmt: skip
        if put.changes:
            text = f"keep of {put.edge} is {put.keep:.4g}, it was {1.0 if put.was is None else put.was:.4g}: {put.reason}"
            events.record(conn, actor=ACTOR, kind="keep", pipeline=pipeline, subject=put.edge, text=text)


def _tell_infeasible(conn: Connection, pipeline: str, output: Mapping[str, Any]) -> None:
    if infeasible := output["infeasible"]:
        below = ", ".join(infeasible["queries"])
        text = f"INFEASIBLE: {below} cannot have the promised accuracy, {shortage(infeasible)}"
        decisions.tell(conn, pipeline, "infeasible", text, about=f"INFEASIBLE: {below} ")


# ---- did the world change as asked? ----

NEAR = 0.05
"""An accuracy within this of the expected one is as expected."""


def verify(conn: Connection, interval: Interval, run: Run) -> Step:
    """Compares published decisions with the first window that lies wholly after them."""
    if not run.live:
        return Step()
    window = read_window(conn, interval, run.policy)
    late = timedelta(seconds=interval.seconds * run.policy.qod_stale_cycles)
    since = interval.start - late - timedelta(seconds=interval.seconds)
    said = []
    for found in rows(conn, "qod_unverified", start=interval.start, end=interval.end, since=since, oldest=since - late):
        pipeline = found["pipeline"]
        if pipeline not in window.declared:
            continue
        if found["superseded"]:
            verdict: dict[str, Any] = {"verdict": "superseded", "window_end": interval.end.isoformat()}
        else:
            compared = compare(found["expected"], window, pipeline)
            if compared is None:
                continue
            verdict = compared
            said.append(f"{pipeline} decision {found['id']}: {verdict['verdict']}")
            if verdict["verdict"] == "missed":
                text = f"decision {found['id']} did not bring what it promised: {'; '.join(verdict['missed'])}"
                decisions.tell(conn, pipeline, "missed", text, about="decision")
        execute(conn, "qod_verified", id=found["id"], verified=json.dumps(verdict))
    conn.commit()
    return Step(said=tuple(said))


def compare(expected: Mapping[str, Any], window: Window, pipeline: str) -> dict[str, Any] | None:
    """Expected beside measured: the keep of every edge, the accuracy of every query, the CPU of every node.

    A keep works on batches, so an operator that ran none in the window says nothing; None where none did."""
    spec = window.declared[pipeline].pipeline
    ran = {o.operator for o in window.operators if o.pipeline == pipeline and o.batches}
    if not ran:
        return None
    edges = {e.edge: e for e in window.edges if e.pipeline == pipeline}
    share = {n: e.share if e.consumer in ran else None for n, e in edges.items()}
    reached = accuracies(spec, {n: None if s is None else min(s, 1.0) for n, s in share.items()})
    cpu = {n.node: n.cpu for n in window.nodes}
    keep = {n: e.keep if e.consumer in ran else None for n, e in edges.items()}
    keeps = {n: {"expected": k, "measured": keep[n]} for n, k in expected["keep"].items() if n in edges}
    queries = {
        q.name: {"expected": expected["accuracy"].get(q.name), "measured": reached[q.name]} for q in spec.queries()
    }  # fmt: skip
    nodes = {n: {"expected": value, "measured": cpu.get(n)} for n, value in expected["cpu"].items()}
    missed = [
        f"keep of {n} is {k['measured']:.3g} instead of {k['expected']:.3g}"
        for n, k in keeps.items()
        if k["measured"] is not None and abs(k["measured"] - k["expected"]) > SAME
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
