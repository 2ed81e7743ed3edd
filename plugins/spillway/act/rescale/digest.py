"""Is the state after a change what it was before? Counted and summed up by a job beside the pipeline; compared here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spillway.act.rescale.facts import Finding, Scene
from spillway.model.topology import Kind, Pipeline
from spillway.policy import Policy
from spillway.store.queries import rows
from spillway.store.rescale import Plan

DIGEST = "digest"
"""The step, and the job it waits for."""
TRIES = 3
"""Jobs that may fail before the comparison is given up."""


def digest(scene: Scene) -> Finding:
    """Rows and checksums of all buckets before and after. Where that cannot be told nothing is taken back: unknown is not bad."""
    from spillway.gates.plans import check_plan

    plan = scene.plan
    operators = members(scene.spec(), plan, scene.policy)
    if not operators:
        there = members(scene.spec(), plan, replace(scene.policy, rescale_digest="always"))
        return Finding.done("the policy asks for no comparison of state" if there else "there is no state to compare")
    found = {r["operator"]: r for r in rows(scene.conn, "rescale_digests", plan=plan.id)}
    missing = [name for name in operators if name not in found or not found[name]["both"]]
    if missing:
        tried = scene.step.evidence.get("tries", 0)
        if tried >= TRIES:
            said = scene.step.evidence.get("error", "the jobs left nothing behind")
            return Finding.failed(f"the state of {', '.join(missing)} was not compared: {said}", stays=True)
        return Finding.waits(f"the state of {', '.join(missing)} is being counted")
    table = [_compared(found[name]) for name in operators]
    rules, failures = check_plan(plan.pipeline, state=table)
    if failures:
        return Finding.failed("; ".join(str(f) for f in failures), rules=rules, failed=[f.rule for f in failures], state=table)
    total = sum(one["rows_after"] for one in table)
    rewritten = (plan.checkpoint_from, plan.buckets_from) != (plan.checkpoint_to, plan.buckets_to)
    words = "with the same checksum before and after" if rewritten else "lie where they lay, and can be read"
    return Finding.done(f"{total} rows of state {words}", rules=rules, state=table)


def members(spec: Pipeline, plan: Plan, policy: Policy) -> list[str]:
    """The operators whose state is compared: all of the application where its driver changes, else the one the plan is about."""
    if policy.rescale_digest == "never" or (policy.rescale_digest == "buckets" and plan.buckets_from == plan.buckets_to):
        return []
    names = spec.application(plan.application).operators if plan.generation_to is not None else (plan.operator,)
    return [name for name in names if spec.operator(name).kind is not Kind.STATELESS]


def _compared(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "subject": found["operator"],
        "buckets_before": found["buckets_before"],
        "buckets_after": found["buckets_after"],
        "rows_before": found["rows_before"],
        "rows_after": found["rows_after"],
        "uncounted": found["uncounted"],
        "rows_beside": (found["rows_after"] or 0) - (found["rows_before"] or 0),
        "same_checksum": found["same_checksum"],
    }
