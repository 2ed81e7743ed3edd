"""Moves to another node: requested by a decision, carried out by spillway_streams, one at a time.

A decision moves single instances; what can be moved is an application, with all its operators and executors. So a move is
requested only if the target has room for the whole application, by what its instances used in the window that was decided on.

requested → moving (the application's node is the target; the next pass launches it there) → warming (its driver runs) → done.
A driver that does not come up on the target in time is sent back: failed. So is a request, as long as it waits, that is not what
it was when it was made: too old, or its pipeline applied no longer, or its application stopped, given another node or a plan to
rescale it. An application with such a plan is not asked to move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.model.qod import Observation
from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.store import events
from spillway.store.pipelines import in_force
from spillway.store.queries import execute, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

ACTOR = "qod"
PATIENCE_S = 600.0
"""A move that failed is not tried again for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    application: str
    source: str
    target: str
    reason: str


def choose(
    moves: Sequence[Mapping[str, Any]],
    pipeline: Pipeline,
    seen: Observation,
    failed: Sequence[tuple[str, str]] = (),
    planned: Collection[str] = (),
) -> tuple[Request | None, list[str]]:
    """The first move whose target has room for the whole application, and why others were not requested.

    `failed`: applications with targets that moves of them failed to reach lately. `planned`: those with a plan to rescale them.
    """
    refused: list[str] = []
    free = {n.name: 100.0 * n.cores - n.cpu for n in seen.nodes if n.cpu is not None}
    for move in moves:
        application = next((a for a in pipeline.applications if move["operator"] in a.operators), None)
        if application is None:
            continue
        name, source, target = application.name, move["from"], move["to"]
        members = {f"{pipeline.name}/{o}" for o in application.operators}
        used = [i.cpu for o in seen.operators if o.name in members for i in o.instances]
        brings = sum(cpu for cpu in used if cpu is not None)
        whole = f"{name} would move to {target} as a whole"
        if name in planned:
            refused.append(f"{name} is being rescaled: it stays until that is done")
        elif (name, target) in failed:
            refused.append(f"a move of {name} to {target} failed lately: it is not tried again yet")
        elif None in used:
            refused.append(f"{whole}, and what it uses is not known: it stays")
        elif brings > free.get(target, 0.0):
            room = max(free.get(target, 0.0), 0.0)
            refused.append(f"{whole}, with {brings:.0f} % of a core where {room:.0f} % is left: it stays")
        else:
            return Request(application=name, source=source, target=target, reason=move["reason"]), refused
    return None, list(dict.fromkeys(refused))


def request_move(
    conn: Connection, pipeline: str, decision: int, moves: Sequence[Mapping[str, Any]], policy: Policy, now: datetime
) -> list[str]:
    """Within the caller's transaction. Nothing is requested while another move is on its way; one that nobody begins is not."""
    current = in_force(conn, pipeline) if moves else None
    found = row(conn, "qod_decision_observation", id=decision)
    if current is None or found is None:
        return []
    busy = row(conn, "reschedule_open")
    if busy and (late := _too_late(busy, policy, now)):
        _fail(conn, busy, late, actor=ACTOR)
    elif busy:
        return [f"{pipeline}: a move waits for that of {busy['pipeline']}/{busy['application']}"]
    lately = rows(conn, "reschedule_failed", pipeline=pipeline, since=now - timedelta(seconds=PATIENCE_S))
    seen = Observation.from_json(found["body"])
    failed = [(r["application"], r["target"]) for r in lately]
    planned = {r["application"] for r in rows(conn, "rescale_open") if r["pipeline"] == pipeline}
    request, refused = choose(moves, current.pipeline, seen, failed, planned)
    if request is None:
        return [f"{pipeline}: {words}" for words in refused]
    execute(
        conn, "reschedule_request", pipeline=pipeline, decision=decision, application=request.application, source=request.source,
        target=request.target, reason=request.reason,
    )  # fmt: skip
    words = f"{request.application} should move from {request.source} to {request.target}: {request.reason}"
    events.record(conn, actor=ACTOR, kind="move", pipeline=pipeline, subject=request.application, text=words)
    return [f"{pipeline}: {words}"]


def advance(conn: Connection, policy: Policy, now: datetime) -> str | None:
    """One step of the move that is on its way, within the caller's transaction; what was done, in words."""
    move = row(conn, "reschedule_open")
    if move is None:
        return None
    application = f"{move['pipeline']}/{move['application']}"
    waited_s = (now - move["changed_at"]).total_seconds()
    back = f"goes back to {_node(move['node_before'])}"
    if move["state"] == "requested":
        if changed := _too_late(move, policy, now) or _changed(move):
            return _fail(conn, move, changed)
        if not execute(conn, "reschedule_begin", id=move["id"], now=now):
            return None  # it has changed just now: the next pass says how
        return _tell(conn, move, "moving", f"{application} moves from {move['source']} to {move['target']}")
    if move["desired"] != "running":
        return _fail(conn, move, f"{application} was stopped meanwhile and {back}")
    if move["node"] != move["target"]:
        return _fail(conn, move, f"{application} was given {_node(move['node'])} meanwhile")
    runs = move["launched_node"] == move["target"] and move["beat"] == "running"
    if move["state"] == "moving":
        if runs:
            execute(conn, "reschedule_warm", id=move["id"], generation=move["generation"], now=now)
            return _tell(conn, move, "warming", f"{application} runs on {move['target']} and warms up")
        if waited_s > policy.launch_timeout_s + policy.stop_timeout_s:
            return _fail(conn, move, f"{application} did not come up on {move['target']} within {waited_s:.0f} s and {back}")
    elif waited_s >= policy.qod_warm_up_s:
        return _end(conn, move, "done", f"{application} has moved to {move['target']}")
    return None


def _too_late(move: Mapping[str, Any], policy: Policy, now: datetime) -> str | None:
    """Why a request is too old to be begun."""
    if move["state"] != "requested" or (now - move["requested_at"]).total_seconds() <= policy.qod_request_s:
        return None
    within = f"nobody began its move to {move['target']} within {policy.qod_request_s:.0f} s"
    return f"{move['pipeline']}/{move['application']} stays: {within}, is spillway_streams paused?"


def _changed(move: Mapping[str, Any]) -> str | None:
    """Why a request is no longer what was asked for."""
    application = f"{move['pipeline']}/{move['application']}"
    if move["desired"] != "running":
        return f"{application} was stopped meanwhile"
    if move["mode"] != "apply":
        return f"{application} stays: the mode of {move['pipeline']} is {move['mode']} meanwhile"
    if move["node"] != move["node_before"]:
        return f"{application} was given {_node(move['node'])} meanwhile"
    if move["planned"]:
        return f"{application} stays: it is being rescaled meanwhile"
    return None


def _node(node: str | None) -> str:
    return f"the node {node}" if node else "any node"


def _fail(conn: Connection, move: Mapping[str, Any], words: str, actor: str = "streams") -> str | None:
    execute(conn, "reschedule_back", id=move["id"])
    return _end(conn, move, "failed", words, actor)


def _end(conn: Connection, move: Mapping[str, Any], state: str, words: str, actor: str = "streams") -> str | None:
    if not execute(conn, "reschedule_end", id=move["id"], was=move["state"], state=state, detail=words):
        return None
    return _tell(conn, move, "moved" if state == "done" else "move_failed", words, actor)


def _tell(conn: Connection, move: Mapping[str, Any], kind: str, words: str, actor: str = "streams") -> str:
    events.record(conn, actor=actor, kind=kind, pipeline=move["pipeline"], subject=move["application"], text=words)
    return words
