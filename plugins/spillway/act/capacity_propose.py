"""The second half of an evaluation of capacity: judge what was changed before, and propose what should change now.

A proposal is stored with everything it was made on, also when it is that nothing changes. Only a live one on a pipeline that is
applied is asked for; `spillway.act.rescale` carries it out. A replay stores what it would have proposed, and touches nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.capacity import record, sentence
from spillway.act.cycle import Step
from spillway.decide.rescale import judge, plan_rescale
from spillway.gates.capacity_tables import Proposed
from spillway.model.capacity_window import CapacityWindow
from spillway.model.rescale import Change, Effect, Kind, RescaleWorld, Sample
from spillway.model.rescale_plan import RescaleDecision
from spillway.model.window import Declared, Interval
from spillway.observe.capacity import read_capacity
from spillway.observe.capacity_load import Past, evaluated, in_a_row, peaks, rescale_world
from spillway.store import capacity, decisions, rescale
from spillway.store import rescale_world as stored
from spillway.store.capacity import Decided
from spillway.store.decisions import CAPACITY, RESCALE, Run
from spillway.store.errors import Refused
from spillway.store.queries import execute, row

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.capacity")
ACTOR = "capacity"
APART = 10
"""After so many cycles without an evaluation, what arrived meanwhile is not known."""
JUDGED_PLANS = 20
"""So many of the newest plans are looked at."""


def propose(conn: Connection, interval: Interval, run: Run, *, now: datetime | None = None) -> Step:
    """A proposal for every pipeline of which something was found on this window: a transaction, and one for what it asks for."""
    measured = read_capacity(conn, interval, run.policy, off_too=not run.live)
    before = capacity.decided(conn, run, interval, RESCALE)
    said: list[str] = []
    refused: list[str] = []
    for pipeline, found in capacity.decided(conn, run, interval, CAPACITY).items():
        part, declared = measured.parts.get(pipeline), measured.window.declared.get(pipeline)
        if found.status != "decided" or found.output is None or part is None or declared is None:
            continue
        if already := _already(conn, before.get(pipeline)):
            refused += [already] if before[pipeline].status == "refused" else []
            continue
        case = _Case(part=part, declared=declared, finding=found.output, interval=interval, run=run)
        try:
            judged = _judge(conn, case) if run.live else []
            decision, proposal, wrong = _propose(conn, case)
        except Exception as error:  # a fault of the planning: recorded, and the other pipelines are looked at
            conn.rollback()
            log.exception("what should become of %s could not be planned", pipeline)
            wrong = f"planning failed: {type(error).__name__}: {' '.join(str(error).split())}"
            capacity.save(conn, run, interval, declared, kind=RESCALE, observation=None, status="failed", reason=wrong)
            refused.append(f"{pipeline}: {wrong}")
            conn.commit()
            continue
        conn.commit()
        said += judged
        if wrong:
            refused.append(wrong)
        elif decision is not None:
            said.append(f"{pipeline}: {summary(proposal)}")
            if run.live and declared.mode == "apply" and proposal.changes:
                said.append(f"{pipeline}: {_ask(conn, case, decision, proposal, now)}")
    return Step(said=tuple(said), refused=tuple(refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One pipeline: what was measured and found of it, and who asks."""

    part: CapacityWindow
    declared: Declared
    finding: Mapping[str, Any]
    interval: Interval
    run: Run

    @property
    def pipeline(self) -> str:
        return self.declared.pipeline.name


def _already(conn: Connection, decision: Decided | None) -> str | None:
    """What stands in the way of a second proposal on the same window: one that was asked for, or refused."""
    if decision is None:
        return None
    if decision.status in ("published", "refused"):
        return f"{decision.pipeline} was {decision.status} before: {decision.reason}"
    if capacity.plans_of(conn, decision.id):  # whoever asked for them did not come to say so
        execute(conn, "qod_decision_status", id=decision.id, status="published", reason=decision.reason)
        conn.commit()
        return f"{decision.pipeline} was published before: {decision.reason}"
    return None


def _propose(conn: Connection, case: _Case) -> tuple[int | None, RescaleDecision, str]:
    """The stored decision, what it is, and what its gate says against it.

    What is planned on is stored as JSON, and read back: `spillway decide rescale` gives the same."""
    from spillway.gates.capacity import check_proposed

    run, interval, pipeline = case.run, case.interval, case.pipeline
    world = RescaleWorld.from_json(_world(conn, case).to_json())
    proposal = plan_rescale(world, run.policy)
    output = proposal.as_dict()
    executors = {o.application: o.declared for o in case.part.operators}
    verdict = check_proposed([Proposed(pipeline=case.declared.pipeline, executors=executors, output=output)])
    failures = verdict.failures.get(pipeline, ())
    seen = decisions.save_observation(conn, run, interval, f"{capacity.PLANS}{pipeline}", [pipeline], world.to_json())
    decision = capacity.save(
        conn, run, interval, case.declared, kind=RESCALE, observation=seen, status="refused" if failures else "decided",
        reason=sentence(failures) or summary(proposal), output=output,
        expected={plan.application: plan.expected_rate for plan in proposal.changes},
    )  # fmt: skip
    return decision, proposal, record(conn, run, decision, pipeline, verdict.gate, failures) if failures else ""


def _world(conn: Connection, case: _Case) -> RescaleWorld:
    run, interval, policy = case.run, case.interval, case.run.policy
    base = stored.world(conn, case.pipeline, now=interval.end)
    base = base if run.live else replace(base, running=())
    cycle = timedelta(seconds=interval.seconds)
    apart, enough = policy.qod_stale_cycles * cycle, policy.rescale_persist_evaluations
    findings = capacity.findings(
        conn, run, case.declared, since=interval.end - (enough + 1) * apart, end=interval.end,
        limit=(enough + 1) * int(policy.qod_stale_cycles + 1),
    )  # fmt: skip
    changed = max((c.at for c in base.history if c.at <= base.now), default=None)
    since = interval.end - timedelta(seconds=policy.rescale_down_window_s) - cycle
    arrived, window_s = peaks(capacity.arrivals(conn, case.pipeline, since, interval.end), interval.end, APART * cycle)
    past = Past(
        bottleneck_for=in_a_row(evaluated((f.interval_end, f.output) for f in findings), apart, changed),
        peaks=arrived,
        window_s=window_s,
        floors=capacity.floors(conn, case.pipeline, interval),
    )
    return rescale_world(base, case.declared.pipeline, case.part, case.finding, past)


# ---- asking for what is proposed ----


def _ask(conn: Connection, case: _Case, decision: int, proposal: RescaleDecision, now: datetime | None) -> str:
    """Each plan is a request of its own; the decision is published when there is one."""
    clock = row(conn, "store_clock")
    assert clock is not None
    late_s = ((now or clock["now"]) - case.interval.end).total_seconds()
    asked: list[str] = []
    lost: list[str] = []
    for plan in proposal.changes:
        if late_s > case.run.policy.qod_stale_cycles * case.interval.seconds:
            lost.append(f"not asked for, it is {late_s:.0f} s late: its window ended at {case.interval.end:%H:%M:%S}")
        elif not capacity.applied(conn, case.pipeline, case.declared.version):
            lost.append("not asked for, it is applied no longer or declared anew")
        else:
            try:
                asked.append(f"{rescale.request(conn, case.pipeline, plan, by=ACTOR, decision=decision)} is asked for")
            except Refused as refusal:
                lost.append(f"not asked for: {refusal}")
        conn.rollback()
    words = "; ".join([*asked, *lost])
    reason = f"{summary(proposal)} ({words})" if lost else summary(proposal)
    execute(conn, "qod_decision_status", id=decision, status="published" if asked else "failed", reason=reason)
    if lost:
        capacity.tell(conn, case.pipeline, "failed", f"what was proposed is {'; '.join(lost)}", about="what was proposed")
    conn.commit()
    return words


def summary(proposal: RescaleDecision) -> str:
    """What changes; where nothing does, why not, for every application."""
    return "; ".join(plan.words for plan in proposal.changes or proposal.plans)


# ---- what came of earlier ones ----


def _judge(conn: Connection, case: _Case) -> list[str]:
    """Compares what plans were expected to bring with what is measured now, once that can be told.

    An operator that is not full says little about what it could carry: that more was not reached counts against a plan only
    when more was asked for."""
    limits = {o["operator"]: o for o in case.finding["operators"]}
    operators = {o.operator: o for o in case.part.operators}
    said = []
    for plan in rescale.plans(conn, case.pipeline, limit=JUDGED_PLANS):
        if plan.state != "done" or plan.ended_at is None or plan.ended_at > case.interval.start or "effective" in plan.observed:
            continue
        operator, able = operators.get(plan.operator), limits.get(plan.operator, {}).get("capacity")
        if operator is None or able is None:
            continue
        effect = judge(
            _change(plan), Sample(parallelism=operator.measured, capacity=able), case.run.policy, now=case.interval.end
        )  # fmt: skip
        full = operator.busy_share is not None and operator.busy_share >= case.run.policy.capacity_lambda
        if effect is Effect.TOO_EARLY or (effect is Effect.INEFFECTIVE and not full):
            continue
        rescale.observe(conn, plan.id, {"rate": able, "effective": effect is Effect.EFFECTIVE})
        words = f"{plan} was {effect}: {plan.operator} can carry {able:.0f} rows/s, {plan.expected['rate']:.0f} were expected"
        capacity.tell(conn, case.pipeline, effect, words, subject=plan.operator)
        said.append(f"{case.pipeline}: {words}")
    return said


def _change(plan: rescale.Plan) -> Change:
    assert plan.ended_at is not None
    return Change(
        at=plan.ended_at,
        operator=plan.operator,
        application=plan.application,
        kind=Kind(plan.kind),
        executors_from=plan.executors_from,
        executors_to=plan.executors_to,
        rate_before=plan.expected.get("rate_before"),
        expected_rate=plan.expected.get("rate"),
    )
