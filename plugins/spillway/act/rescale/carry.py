"""Carries plans on: one pass looks at every open plan, lets its step act at most once, and records what came of it.

A pass may end anywhere, also between any two statements, and the next one goes on from what is stored: what a step wrote and that
it is done are one transaction, and what reaches beyond the store is looked for before it is done again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from spillway.act.launch import Launcher
from spillway.act.rescale.digest import DIGEST
from spillway.act.rescale.facts import Facts, Finding, Scene, State, Store, read_facts
from spillway.act.rescale.steps import STEPS
from spillway.act.rescale.undo import undo
from spillway.decide.rescale.steps import Back
from spillway.decide.rescale.steps import step as declared_step
from spillway.model.rescale import Kind
from spillway.policy import Policy
from spillway.store import events, rescale
from spillway.store.queries import row
from spillway.store.rescale import ACTOR, Plan

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.rescale")
LOCK = "spillway.rescale"
FORWARD_TRIES = 3
"""Time-outs of a step between two states, after each of which it is waited for once more, before the plan goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    """What a pass came to with one plan."""

    plan: int
    pipeline: str
    operator: str
    kind: str
    state: str
    step: str
    words: str
    moved: bool
    """A step was begun or ended, or the plan was."""

    @property
    def open(self) -> bool:
        return self.state in rescale.OPEN

    def __str__(self) -> str:
        return f"plan {self.plan} ({self.kind} of {self.pipeline}/{self.operator}), {self.step or self.state}: {self.words}"


class RescaleStumbled(RuntimeError):
    """A step raised what it should not; all of it is recorded, and tried again in the next pass."""

    def __init__(self, words: str, went: tuple[Went, ...] = ()) -> None:
        super().__init__(words)
        self.went = went
        """What the pass came to with the other plans."""


def advance(conn: Connection, launcher: Launcher, policy: Policy, now: datetime | None = None) -> tuple[Went, ...]:
    """One pass. What is stored is dated by the store: without `now` its clock counts. RescaleStumbled comes last, if at all."""
    if not _lock(conn):
        return ()
    went, stumbled = [], []
    try:
        for plan in rescale.open_plans(conn):
            conn.commit()
            try:
                went.append(_carry(conn, launcher, policy, plan.id, now))
            except Exception as error:
                if conn.closed:
                    raise
                conn.rollback()
                log.exception("%s stumbled", plan)
                stumbled.append(_stumble(conn, policy, plan.id, error, now))
        conn.commit()
    finally:
        _unlock(conn)
    others = tuple(w for w in went if w is not None)
    if stumbled:
        raise RescaleStumbled("; ".join(stumbled), others)
    return others


def _carry(conn: Connection, launcher: Launcher, policy: Policy, number: int, now: datetime | None) -> Went | None:
    store = _store(conn, now)
    plan = rescale.lock(conn, number)
    if plan is None or not plan.open:
        conn.commit()
        return None
    if plan.state == "planned":
        plan = _begin(conn, plan, store.now)
    facts = read_facts(conn, plan)
    if facts is None:
        went = _end(conn, plan, "failed", f"{plan.operator} is declared no longer")
    else:
        scene = _scene(conn, launcher, policy, store, plan, facts)
        went = _back(scene) if plan.state == "rolling_back" else _on(scene)
    conn.commit()
    return went


def _store(conn: Connection, now: datetime | None) -> Store:
    store = Store(**(row(conn, "streams_store") or {}))
    return replace(store, now=now) if now else store


def _scene(conn: Connection, launcher: Launcher, policy: Policy, store: Store, plan: Plan, facts: Facts) -> Scene:
    step = plan.at or plan.steps[-1]
    return Scene(conn=conn, launcher=launcher, policy=policy, store=store, plan=plan, step=step, facts=facts)


def _begin(conn: Connection, plan: Plan, now: datetime) -> Plan:
    rescale.begin_step(conn, plan, plan.steps[0], now)
    conn.commit()
    begun = rescale.lock(conn, plan.id)
    assert begun is not None
    return begun


# ---- forward ----


def _on(scene: Scene) -> Went:
    plan, step = scene.plan, scene.step
    finding = STEPS[step.step](scene)
    if finding.state is State.WAITING and scene.waited_s > declared_step(scene.kind, step.step).timeout_s(scene.policy):
        finding = _too_long(scene, finding)
    if finding.state is State.DONE:
        return _next(scene, finding)
    if finding.state is State.FAILED:
        return _fail(scene, finding)
    rescale.note(scene.conn, plan, step, finding.words, finding.evidence)
    return _went(plan, step.step, finding.words)


def _next(scene: Scene, finding: Finding) -> Went:
    """The next step is begun in the transaction that ends this one."""
    conn, plan, step = scene.conn, scene.plan, scene.step
    rescale.end_step(conn, plan, step, "done", scene.now, finding.words, finding.evidence)
    following = next((s for s in plan.steps if s.ordinal > step.ordinal), None)
    if following is None:
        return _end(conn, plan, "done", finding.words, **finding.evidence)
    _tell(conn, plan, "rescale", f"{plan}, {step.step}: {finding.words}")
    rescale.begin_step(conn, plan, following, scene.now)
    return _went(plan, step.step, finding.words, moved=True)


def _too_long(scene: Scene, finding: Finding) -> Finding:
    """State that nobody could count in time takes nothing back."""
    step = scene.step
    words = f"not within {scene.waited_s:.0f} s: {finding.words}"
    if declared_step(scene.kind, step.step).back is Back.FORWARD and step.attempts < FORWARD_TRIES:
        rescale.again(scene.conn, scene.plan, step, scene.now)
        return Finding.waits(words, **finding.evidence)
    return Finding.failed(words, stays=step.step == DIGEST, **finding.evidence)


def _fail(scene: Scene, finding: Finding) -> Went:
    conn, plan, step = scene.conn, scene.plan, scene.step
    rescale.end_step(conn, plan, step, "failed", scene.now, finding.words, finding.evidence)
    words = f"{step.step}: {finding.words}"
    if finding.stays or step.ordinal == 0:
        return _end(conn, plan, "failed", words)
    rescale.roll_back(conn, plan, words)
    _tell(conn, plan, "rescale", f"{plan} goes back, {words}")
    return _went(replace(plan, state="rolling_back"), step.step, words, moved=True)


# ---- back ----


def _back(scene: Scene) -> Went:
    plan, finding = scene.plan, undo(scene)
    why = plan.detail
    if finding.state is State.DONE:
        left = _left(plan)
        return _end(scene.conn, plan, "failed" if left else "rolled_back", f"{why}; {finding.words}{left}")
    waited = scene.age_s(plan.changed_at)
    if waited > scene.policy.rescale_launch_timeout_s:
        return _end(scene.conn, plan, "failed", f"{why}; the way back was not seen to end within {waited:.0f} s: {finding.words}")
    return _went(plan, plan.step, finding.words)


def _left(plan: Plan) -> str:
    """What the way back leaves behind: what was written since a successor went on from its own checkpoint is in no other."""
    if not plan.follows or plan.done("cutover") is None:
        return ""
    if plan.buckets_to != plan.buckets_from:
        return f", and its {plan.buckets_to} buckets stay"
    differs = any(s.step == DIGEST and s.state == "failed" for s in plan.steps)
    return f", and its state stays as it is in checkpoint {plan.checkpoint_to}" if differs else ""


# ---- recording ----


def _end(conn: Connection, plan: Plan, state: str, words: str, **observed: object) -> Went:
    rescale.end(conn, plan, state, words, observed)
    _tell(conn, plan, "rescaled" if state == "done" else "rescale_failed", f"{plan} is {state.replace('_', ' ')}: {words}")
    return _went(replace(plan, state=state), plan.step, words, moved=True)


def _stumble(conn: Connection, policy: Policy, number: int, error: Exception, now: datetime | None) -> str:
    """Writes down what a step raised; one that raises for longer than it may take has failed."""
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    store, plan = _store(conn, now), rescale.lock(conn, number)
    if plan is not None and plan.open and plan.at is not None and (step := plan.at).began_at is not None:
        waited = (store.now - max(step.began_at, store.up_since)).total_seconds()
        rescale.note(conn, plan, step, words, {"error": words})
        if plan.state == "running" and waited > declared_step(Kind(plan.kind), step.step).timeout_s(policy):
            rescale.end_step(conn, plan, step, "failed", store.now, words)
            if step.ordinal == 0 or step.step == DIGEST:
                _end(conn, plan, "failed", words)
            else:
                rescale.roll_back(conn, plan, f"{step.step}: {words}")
    conn.commit()
    return f"{plan or f'plan {number}'}: {words}"


def _tell(conn: Connection, plan: Plan, kind: str, words: str) -> None:
    events.record(conn, actor=ACTOR, kind=kind, pipeline=plan.pipeline, subject=plan.operator, text=words)


def _went(plan: Plan, step: str, words: str, *, moved: bool = False) -> Went:
    return Went(
        plan=plan.id, pipeline=plan.pipeline, operator=plan.operator, kind=plan.kind, state=plan.state, step=step, words=words,
        moved=moved,
    )  # fmt: skip


def _lock(conn: Connection) -> bool:
    with conn.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(hashtext(%s))", (LOCK,))
        held = cursor.fetchone()
    conn.commit()
    return bool(held and held[0])


def _unlock(conn: Connection) -> None:
    if conn.closed:  # then the lock went with the session
        return
    conn.rollback()
    with conn.cursor() as cursor:
        cursor.execute("select pg_advisory_unlock(hashtext(%s))", (LOCK,))
    conn.commit()
