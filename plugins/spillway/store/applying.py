"""Putting a topology in force: what is stored must not be contradicted by what is declared now."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.model.topology import Kind, Pipeline
from spillway.policy import Policy
from spillway.store import events
from spillway.store.connection import translate
from spillway.store.errors import Refused
from spillway.store.pipelines import alive_applications, in_force
from spillway.store.queries import execute, row, rows
from spillway.topology.checks import claimed_topics, shared_topics
from spillway.topology.diff import Change, diff, restarts

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    pipeline: str
    version: int
    changed: bool
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        if not self.changed:
            return f"pipeline {self.pipeline} is unchanged, version {self.version} stays in force"
        return f"pipeline {self.pipeline} is now version {self.version}"


def digest(pipeline: Pipeline) -> str:
    return hashlib.sha256(pipeline.to_json().encode()).hexdigest()


def apply_pipeline(conn: Connection, new: Pipeline, source: str, by: str, *, policy: Policy | None = None) -> Applied:
    """One transaction; a refusal changes nothing."""
    policy = policy or Policy.load()
    with translate(), conn:
        with conn.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock(hashtext('spillway.apply'))")
        current = in_force(conn, new.name)
        if current and current.digest == digest(new):
            return Applied(pipeline=new.name, version=current.version, changed=False, changes=())
        old = current.pipeline if current else None
        changes = diff(old, new)
        rows(conn, "applications_lock", pipeline=new.name)
        _refuse_claimed_topics(conn, new)
        _refuse_running_leftovers(conn, old, new, policy)
        _refuse_other_checkpoint(conn, old, new)
        _refuse_fewer_partitions(conn, old, new)
        version = _write(conn, old, new, source, by, restarts(changes))
        summary = f"version {version} of pipeline {new.name} is in force ({len(changes)} changes)"
        events.record(conn, actor=by, kind="applied", pipeline=new.name, text=summary)
    return Applied(pipeline=new.name, version=version, changed=True, changes=tuple(changes))


def _refuse_claimed_topics(conn: Connection, new: Pipeline) -> None:
    claims, shares = list(claimed_topics(new)), list(shared_topics(new))
    taken = rows(conn, "topic_claimed_by_others", pipeline=new.name, claims=claims, shares=shares)
    if taken:
        listed = "; ".join(f"topic {t['topic']} is claimed by pipeline {new.name} and by pipeline {t['pipeline']}" for t in taken)
        raise Refused(f"{listed}: use another topic, or declare `shared: true` in both where both only read it.")


def _refuse_running_leftovers(conn: Connection, old: Pipeline | None, new: Pipeline, policy: Policy) -> None:
    """An application that goes away, or hands an operator to another, must not be running: two drivers would run one operator."""
    if old is None:
        return
    alive = alive_applications(conn, new.name, policy)
    stop = f"stop it first with `spillway stop {new.name} --wait`, apply, and start it again"
    for application in old.applications:
        if application.name not in alive:
            continue
        if all(a.name != application.name for a in new.applications):
            raise Refused(f"application {application.name} is no longer declared but still runs: {stop}.")
        for operator in application.operators:
            target = next((a.name for a in new.applications if operator in a.operators), None)
            if target not in (None, application.name):
                raise Refused(
                    f"operator {operator} moves from application {application.name}, which still runs, to {target}: {stop}."
                )


def _refuse_other_checkpoint(conn: Connection, old: Pipeline | None, new: Pipeline) -> None:
    """What a launched operator's checkpoint fixes: how many writers and state partitions there are, whether there is state, and
    what is read (Spark does not go on from a checkpoint with other sources). Buckets that a plan has changed since are no
    contradiction as long as the file says what it said: they stay as they are."""
    before = {o.name: o.buckets for o in old.operators} if old else {}
    states = {s["operator"]: s for s in rows(conn, "operator_states", pipeline=new.name) if s["launched"]}
    for operator in new.operators:
        state = states.get(operator.name)
        if state is None:
            continue
        name, was = operator.name, Kind(state["kind"])
        anew = f"give the operator another name, or start it anew with `spillway reset {new.name} {name}`"
        if was is not operator.kind and Kind.STATELESS in (was, operator.kind):
            raise Refused(
                f"operator {name} changes from {was} to {operator.kind}, which its checkpoint does not allow: "
                f"keep `kind: {was}`, {anew}."
            )
        if operator.buckets not in (state["buckets"], before.get(name)):
            live = f"`spillway rescale {new.name} {name} --buckets {operator.buckets}`"
            change = f", change them while it runs with {live}" if operator.kind is not Kind.STATELESS else ""
            raise Refused(
                f"operator {name} has {state['buckets']} buckets, which its checkpoint fixes, and the file says "
                f"{operator.buckets}: keep `buckets: {state['buckets']}`{change}, {anew}."
            )
        if (now := _inputs(new, name)) != state["inputs"]:
            raise Refused(
                f"operator {name} was launched with input from {', '.join(state['inputs'])}, fixed for the life of its "
                f"checkpoint, and the file says {', '.join(now)}: keep its input edges, {anew}."
            )


def _inputs(pipeline: Pipeline, operator: str) -> list[str]:
    return sorted(edge.topic for edge in pipeline.inputs(operator))


def _refuse_fewer_partitions(conn: Connection, old: Pipeline | None, new: Pipeline) -> None:
    """Kafka never takes partitions away."""
    fresh = row(conn, "pipeline_never_launched", pipeline=new.name)
    if fresh and fresh["never_launched"]:
        return
    inner = {e.name: e.partitions for e in old.edges if e.producer} if old else {}
    for edge in new.edges:
        if edge.producer and edge.partitions < inner.get(edge.name, 0):
            raise Refused(
                f"edge {edge.name} has {inner[edge.name]} partitions and the file says {edge.partitions}, "
                f"but Kafka cannot take partitions away: keep `partitions: {inner[edge.name]}` or more."
            )


def _write(conn: Connection, old: Pipeline | None, new: Pipeline, source: str, by: str, restart: frozenset[str]) -> int:
    inserted = row(
        conn, "pipeline_version_insert", pipeline=new.name, spec=new.to_json(), source=source, digest=digest(new), by=by
    )
    assert inserted is not None
    version = int(inserted["version"])
    forced = row(conn, "pipeline_put_in_force", pipeline=new.name, version=version, by=by)
    assert forced is not None
    before = {a.name: a for a in old.applications} if old else {}
    execute(conn, "applications_delete_others", pipeline=new.name, applications=[a.name for a in new.applications])
    for application in new.applications:
        was = before.get(application.name)
        execute(
            conn,
            "application_upsert",
            pipeline=new.name,
            application=application.name,
            version=version,
            desired=forced["desired"],
            node=application.node,
            executors=application.executors,
            restart=application.name in restart or forced["desired"] == "stopped",
            set_node=was is None or was.node != application.node,
            set_executors=was is None or was.executors != application.executors,
        )
    for operator in new.operators:
        execute(
            conn,
            "operator_state_upsert",
            pipeline=new.name,
            operator=operator.name,
            buckets=operator.buckets,
            kind=str(operator.kind),
            inputs=_inputs(new, operator.name),
        )
    execute(conn, "settings_delete_others", pipeline=new.name, edges=[e.name for e in new.edges])
    execute(conn, "topic_claims_delete", pipeline=new.name)
    execute(conn, "topic_claims_insert", pipeline=new.name, claims=list(claimed_topics(new)))
    return version
