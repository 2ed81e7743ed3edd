"""Plans to rescale an operator: asked for, taken step by step, ended, remembered.

A request is a transaction of its own. What moves a plan on is part of its caller's transaction, which holds the plan's row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spillway.model.rescale import Change, Kind, Outcome
from spillway.model.rescale_plan import RescalePlan
from spillway.model.topology import Kind as OperatorKind
from spillway.model.topology import Pipeline
from spillway.store import events
from spillway.store.connection import translate
from spillway.store.errors import Refused
from spillway.store.pipelines import load
from spillway.store.queries import execute, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

ACTOR = "rescale"
OPEN = ("planned", "running", "rolling_back")
CANCELLED = "taken back by "
SHED_LATELY_S = 60.0
"""An operator in front of which rows were shed so lately is likely to see it again before a successor has taken over."""
POINT_OF_NO_RETURN: Mapping[str, str] = {Kind.RESTART: "order", Kind.HANDOVER: "cutover", Kind.SHADOW: "cutover"}
"""The step by kind from which on a plan goes forward, or fails; executors can be given and taken back at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    ordinal: int
    step: str
    state: str
    attempts: int
    began_at: datetime | None
    ended_at: datetime | None
    evidence: Mapping[str, Any]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One row of `spillway.rescale_plan`, with its steps in order."""

    id: int
    decision: int | None
    pipeline: str
    application: str
    operator: str
    kind: str
    state: str
    step: str
    executors_from: int
    executors_to: int
    buckets_from: int
    buckets_to: int
    node_from: str | None
    node_to: str | None
    checkpoint_from: int
    checkpoint_to: int
    generation_from: int
    generation_to: int | None
    incarnation_to: int | None
    passes: Sequence[Mapping[str, Any]]
    expected: Mapping[str, Any]
    observed: Mapping[str, Any]
    reason: str
    detail: str
    requested_by: str
    requested_at: datetime
    changed_at: datetime
    ended_at: datetime | None
    steps: tuple[Step, ...] = field(default=())

    @property
    def open(self) -> bool:
        return self.state in OPEN

    @property
    def at(self) -> Step | None:
        """The step at work: the first that is not done."""
        return next((s for s in self.steps if s.state in ("waiting", "running")), None)

    def done(self, name: str) -> Step | None:
        """The step of this name, if it is done."""
        return next((s for s in self.steps if s.step == name and s.state == "done"), None)

    @property
    def beyond_return(self) -> bool:
        last = POINT_OF_NO_RETURN.get(self.kind)
        return last is not None and self.done(last) is not None

    @property
    def follows(self) -> bool:
        """Its successor repeats what runs on a checkpoint of its own, and goes on from that."""
        return self.checkpoint_from != self.checkpoint_to

    @property
    def changes(self) -> str:
        """In words, such as `executors 2 → 4, node n1 → n2`."""
        said = []
        if self.executors_from != self.executors_to:
            said.append(f"executors {self.executors_from} → {self.executors_to}")
        if self.buckets_from != self.buckets_to:
            said.append(f"buckets {self.buckets_from} → {self.buckets_to}")
        if self.node_from != self.node_to:
            said.append(f"node {self.node_from or 'any'} → {self.node_to or 'any'}")
        return ", ".join(said) or "starts it again as it is"

    def __str__(self) -> str:
        return f"plan {self.id} ({self.kind} of {self.pipeline}/{self.operator}: {self.changes})"


# ---- asking ----


def request(conn: Connection, pipeline: str, plan: RescalePlan, *, by: str, decision: int | None = None) -> Plan:
    """Stores a plan that is to be carried out. One transaction: it ends what the caller has begun on this connection.

    Raises Refused with one sentence when the plan no longer fits what is stored; nothing is changed then. Whether the target is
    within bounds, quota and periods is what `spillway.decide.rescale` says, before."""
    from psycopg2.errors import UniqueViolation

    with translate(), conn:
        rows(conn, "applications_lock", pipeline=pipeline)
        spec = _refuse(conn, pipeline, plan)
        follows = _follows(conn, spec, plan)
        try:
            made = row(conn, "rescale_request", **_values(pipeline, plan, by, decision), follows=follows)
        except UniqueViolation as error:
            raise Refused(
                f"another plan for application {plan.application} was made just now: see `spillway plans {pipeline}`."
            ) from error
        if made is None:
            raise Refused(f"operator {plan.operator} of pipeline {pipeline} has no checkpoint yet: start the pipeline first.")
        for ordinal, step in enumerate(plan.steps):
            execute(conn, "rescale_step_insert", plan=made["id"], ordinal=ordinal, step=step)
        stored = _by_id(conn, made["id"])
        assert stored is not None
        text = f"{stored} is asked for: {plan.words}"
        events.record(conn, actor=by, kind="rescale", pipeline=pipeline, subject=plan.operator, text=text)
    return stored


def _values(pipeline: str, plan: RescalePlan, by: str, decision: int | None) -> dict[str, Any]:
    assert plan.kind is not None, "a plan that changes nothing is not carried out"
    expected = {
        "pause_s": plan.expected_pause_s,
        "rate": plan.expected_rate,
        "rate_before": plan.rate_before,
        "needed_rate": plan.needed_rate,
        "state_rows": plan.state_rows,
    }
    return {
        "pipeline": pipeline,
        "application": plan.application,
        "operator": plan.operator,
        "kind": str(plan.kind),
        "decision": decision,
        "executors": plan.executors_to,
        "buckets": plan.buckets_to,
        "node": plan.node_to,
        "passes": json.dumps([one.as_dict() for one in plan.passes]),
        "expected": json.dumps({k: v for k, v in expected.items() if v is not None}),
        "reason": plan.words,
        "by": by,
    }


def _follows(conn: Connection, spec: Pipeline, plan: RescalePlan) -> bool:
    """Whether the successor is to repeat, on a checkpoint of its own, what the running query does: always with other buckets; for
    a hand-over where there is one state to load, and nothing is shed in front of it, which could not be repeated."""
    if plan.kind is not Kind.HANDOVER:
        return plan.kind is Kind.SHADOW
    names = spec.application(plan.application).operators
    stateful = [name for name in names if spec.operator(name).kind is not OperatorKind.STATELESS]
    edges = [edge.name for edge in spec.inputs(plan.operator)]
    sheds = row(
        conn, "rescale_sheds", pipeline=spec.name, operator=plan.operator, edges=edges, lately_s=SHED_LATELY_S
    )  # fmt: skip
    return stateful == [plan.operator] and not sheds


def _refuse(conn: Connection, pipeline: str, plan: RescalePlan) -> Pipeline:
    """Raises what speaks against a plan; until the end of the transaction nobody launches, starts or stops the pipeline."""
    spec = load(conn, pipeline)
    names = [o.name for o in spec.operators]
    if plan.operator not in names:
        raise Refused(f"pipeline {pipeline} has no operator {plan.operator}: its operators are {', '.join(names)}.")
    application = next(a.name for a in spec.applications if plan.operator in a.operators)
    if not plan.changes:
        raise Refused(f"operator {plan.operator} of pipeline {pipeline} is not rescaled: {plan.words.rstrip('.')}.")
    if busy := open_plan(conn, pipeline, application):
        taking_back = f", or take it back with `spillway rescale --cancel {busy.id}`" if not busy.beyond_return else ""
        raise Refused(f"{busy} is under way, at step {busy.step or busy.state}: wait for it{taking_back}.")
    now = row(conn, "rescale_present", pipeline=pipeline, application=application, operator=plan.operator)
    if now is None or now["desired"] != "running" or now["beat"] != "running":
        is_so = "should be stopped" if now and now["desired"] != "running" else "does not run yet"
        raise Refused(
            f"application {application} of pipeline {pipeline} {is_so}: see `spillway status {pipeline}`, then ask again."
        )
    if now["moving"]:
        raise Refused(f"application {application} of pipeline {pipeline} is moving to {now['moving']}: wait until it has.")
    if now["kind"] != "stateless" and not now["committed"]:
        raise Refused(
            f"operator {plan.operator} of pipeline {pipeline} has state and no committed batch to go on from: "
            "wait for its first batch."
        )
    buckets = now["buckets"] if plan.buckets_from is None else plan.buckets_from
    if (now["executors"], now["node"], now["buckets"]) != (plan.executors_from, plan.node_from, buckets):
        raise Refused(
            f"application {application} of pipeline {pipeline} has changed since the plan was made "
            f"({now['executors']} executors on {now['node'] or 'any node'}, {now['buckets']} buckets): ask again."
        )
    return spec


def cancel(conn: Connection, plan: int, by: str) -> Plan:
    """Takes a plan back: one that was not begun is over, another one is rolled back by whoever carries it out."""
    with translate(), conn:
        found = lock(conn, plan)
        if found is None:
            raise Refused(f"there is no plan {plan}: `spillway plans PIPELINE` lists what there is.")
        if not found.open:
            raise Refused(f"{found} is over ({found.state}): there is nothing to take back.")
        if found.state == "rolling_back":
            raise Refused(f"{found} is being rolled back already: see `spillway plans {found.pipeline}`.")
        if found.beyond_return:
            raise Refused(
                f"{found} has passed step {POINT_OF_NO_RETURN[found.kind]}, from which on it only goes forward: "
                "wait for its end, then ask for the way back."
            )
        words = f"{CANCELLED}{by}"
        if found.state == "planned":
            end(conn, found, "rolled_back", words)
        else:
            roll_back(conn, found, words)
        events.record(
            conn, actor=by, kind="rescale", pipeline=found.pipeline, subject=found.operator, text=f"{found} is {words}"
        )  # fmt: skip
        after = _by_id(conn, plan)
        assert after is not None
    return after


# ---- reading ----


def by_id(conn: Connection, number: int) -> Plan | None:
    with translate():
        return _by_id(conn, number)


def plans(conn: Connection, pipeline: str, *, limit: int = 20) -> list[Plan]:
    """The newest first."""
    with translate():
        return _with_steps(conn, rows(conn, "rescale_plans", pipeline=pipeline, limit=limit))


def open_plans(conn: Connection) -> list[Plan]:
    """The oldest first."""
    return _with_steps(conn, rows(conn, "rescale_plans_open"))


def open_plan(conn: Connection, pipeline: str, application: str) -> Plan | None:
    return next((p for p in open_plans(conn) if (p.pipeline, p.application) == (pipeline, application)), None)


def history(conn: Connection, pipeline: str, since: datetime) -> tuple[Change, ...]:
    """What was changed, the oldest first; plans that were ended before they changed anything are none."""
    return tuple(_change(r) for r in rows(conn, "rescale_history", pipeline=pipeline, since=since))


def _change(found: Mapping[str, Any]) -> Change:
    expected, observed = found["expected"], found["observed"]
    return Change(
        at=found["requested_at"],
        operator=found["operator"],
        application=found["application"],
        kind=Kind(found["kind"]),
        executors_from=found["executors_from"],
        executors_to=found["executors_to"],
        buckets_from=found["buckets_from"],
        buckets_to=found["buckets_to"],
        outcome=Outcome(found["state"]),
        decision=None if found["decision"] is None else str(found["decision"]),
        rate_before=expected.get("rate_before"),
        expected_rate=expected.get("rate"),
        observed_rate=observed.get("rate"),
        effective=observed.get("effective"),
        pause_s=observed.get("pause_s"),
        state_rows=expected.get("state_rows"),
        ended_at=found["ended_at"],
    )


def _by_id(conn: Connection, number: int) -> Plan | None:
    found = _with_steps(conn, rows(conn, "rescale_plan", id=number))
    return found[0] if found else None


def _with_steps(conn: Connection, found: Sequence[Mapping[str, Any]]) -> list[Plan]:
    steps: dict[int, list[Step]] = {}
    for r in rows(conn, "rescale_steps", plans=[r["id"] for r in found]):
        steps.setdefault(r.pop("plan"), []).append(Step(**r))
    return [Plan(**r, steps=tuple(steps.get(r["id"], ()))) for r in found]


# ---- moving on, within the caller's transaction ----


def lock(conn: Connection, number: int) -> Plan | None:
    """The plan, held until the end of the transaction."""
    execute(conn, "rescale_lock", id=number)
    return _by_id(conn, number)


def begin_step(conn: Connection, plan: Plan, step: Step, now: datetime) -> None:
    execute(conn, "rescale_step_begin", plan=plan.id, ordinal=step.ordinal, now=now)
    execute(conn, "rescale_at", id=plan.id, state="running", step=step.step, detail=plan.detail)


def again(conn: Connection, plan: Plan, step: Step, now: datetime) -> None:
    """A step that took too long is given as long again."""
    execute(conn, "rescale_step_again", plan=plan.id, ordinal=step.ordinal, now=now)


def note(conn: Connection, plan: Plan, step: Step, detail: str, evidence: Mapping[str, Any] | None = None) -> None:
    """What is known of a step that is still at work; evidence is added to what there is."""
    execute(
        conn, "rescale_step_note", plan=plan.id, ordinal=step.ordinal, detail=detail, evidence=_json(evidence or {})
    )  # fmt: skip


def end_step(
    conn: Connection, plan: Plan, step: Step, state: str, now: datetime, detail: str, evidence: Mapping[str, Any] | None = None
) -> None:
    note(conn, plan, step, detail, evidence)
    execute(conn, "rescale_step_end", plan=plan.id, ordinal=step.ordinal, state=state, now=now)


def roll_back(conn: Connection, plan: Plan, why: str) -> None:
    execute(conn, "rescale_at", id=plan.id, state="rolling_back", step=plan.step, detail=why)


def end(conn: Connection, plan: Plan, state: str, detail: str, observed: Mapping[str, Any] | None = None) -> None:
    execute(conn, "rescale_end", id=plan.id, state=state, detail=detail, observed=_json(observed or {}))
    if state == "rolled_back":
        execute(conn, "rescale_steps_undone", plan=plan.id)


def observe(conn: Connection, number: int, observed: Mapping[str, Any]) -> None:
    """Adds to what was observed of a plan: `rate` and `effective`, once they can be told."""
    execute(conn, "rescale_observed", id=number, observed=_json(observed))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=str, allow_nan=False)


def as_dict(found: Plan) -> dict[str, Any]:
    """For programs."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(found), default=str))
    return plain
