"""The steps of a plan. Each looks at the store, does at most one thing, and says what it found; done again, it does nothing more.

What a step writes is part of the transaction that records its outcome. Only `launch` reaches beyond the store, after it has
written down that it will.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from spillway.act.rescale.digest import digest
from spillway.act.rescale.facts import OVER, RUNNING, Finding, Scene, overtaken
from spillway.act.rescale.observed import Times, observed
from spillway.act.rescale.offsets import chain
from spillway.act.rescale.successor import SIGNS, caught_up, cutover, launch, rehearsed, repartitioned, taken_over
from spillway.decide.rescale.kind import Wanted, lacks
from spillway.model.rescale import Kind
from spillway.store.queries import execute, row, rows
from spillway.store.rescale_world import repartition_refused

QUIET_S = 20.0
"""An operator whose topics have not grown for this long has nothing to show."""
LOOK_BACK = timedelta(seconds=120)
"""How far before a plan its steady state is looked for."""


def validate(scene: Scene) -> Finding:
    """May it begin? Named rules on everything it relies on."""
    from spillway.gates.plans import check_plan

    plan, facts = scene.plan, scene.facts
    spec = scene.spec()
    operators = [spec.operator(name) for name in spec.application(plan.application).operators]
    least, most = max(o.parallelism.min for o in operators), min(_most(o.parallelism.max, plan) for o in operators)
    seen = row(scene.conn, "rescale_node_seen", node=plan.node_to, since=scene.now - timedelta(seconds=60)) or {}
    found = {
        "subject": plan.operator,
        "overtaken": overtaken(scene),
        "lives": scene.lives,
        "moving": facts.moving,
        "executors": plan.executors_to,
        "beyond_bounds": 0 if plan.executors_to == plan.executors_from else _beyond(plan.executors_to, least, most),
        "buckets": plan.buckets_to,
        "buckets_short": plan.executors_to - plan.buckets_to if facts.stateful else 0,
        "stateful": int(facts.stateful),
        "batch_id": facts.batch_id if facts.actual_checkpoint == plan.checkpoint_from else None,
        "beyond_kind": _beyond_kind(scene),
        "engine": repartition_refused() if plan.buckets_to != plan.buckets_from else None,
        "node_seen": plan.node_to is None or plan.node_to == plan.node_from or not seen.get("measured") or bool(seen.get("seen")),
    }
    rules, failures = check_plan(plan.pipeline, plan=[found])
    shown = {k: v for k, v in found.items() if k != "subject" and v is not None}
    if failures:
        return Finding.failed("; ".join(str(f) for f in failures), rules=rules, failed=[f.rule for f in failures], seen=shown)
    return Finding.done(f"{rules} rules hold", rules=rules, seen=shown)


def _most(declared: int, plan: Any) -> int:
    """An application that already has more than is declared may have less, or stay."""
    return max(declared, min(plan.executors_from, plan.executors_to))


def _beyond(value: int, least: int, most: int) -> int:
    return min(0, value - least) or max(0, value - most)


def _beyond_kind(scene: Scene) -> str | None:
    plan = scene.plan
    wanted = Wanted(buckets=plan.buckets_from != plan.buckets_to, node=plan.node_from != plan.node_to)
    what = lacks(scene.kind, wanted)
    return f"{plan.kind} cannot {what}" if what else None


# ---- told to the driver that runs ----


def order(scene: Scene) -> Finding:
    """The order itself: from here on the driver does as it is told."""
    plan, facts = scene.plan, scene.facts
    if words := overtaken(scene):
        return Finding.failed(words)
    if not scene.lives:
        return Finding.waits(f"{scene.name} gives no heartbeat: nothing is ordered of it")
    if plan.executors_to != plan.executors_from:
        execute(scene.conn, "rescale_executors", **scene.who, executors=plan.executors_to, was=plan.executors_from)
    if plan.incarnation_to is not None:
        execute(
            scene.conn, "rescale_restart", pipeline=plan.pipeline, operator=plan.operator, incarnation=plan.incarnation_to,
            buckets=plan.buckets_to, checkpoint=plan.checkpoint_from, now=scene.now,
        )  # fmt: skip
    return Finding.done(f"{scene.name} is told: {plan.changes}", batch_id=facts.batch_id, offsets=facts.offsets)


def stopped(scene: Scene) -> Finding:
    """The query has come to rest at a committed batch, or is already beyond that."""
    plan, facts, ordered = scene.plan, scene.facts, scene.since("order")
    assert plan.incarnation_to is not None and ordered is not None
    if stop := scene.stopped_by_someone or _refused(scene, ordered):
        return stop
    beyond = (facts.actual_incarnation or 0) >= plan.incarnation_to
    since = ordered - timedelta(seconds=scene.policy.qod_clock_skew_s)
    rests = facts.stopped_batch is not None and facts.stopped_at is not None and facts.stopped_at >= since
    if beyond or (rests and facts.phase in ("stopped", "repartitioning", "starting")):
        batch = facts.batch_id if facts.stopped_batch is None else facts.stopped_batch
        return Finding.done(f"{plan.operator} came to rest at batch {batch}", stopped_batch=batch, offsets=facts.offsets)
    return Finding.waits(f"{plan.operator} is {facts.phase or 'not reported'}, at batch {facts.batch_id}")


def started(scene: Scene) -> Finding:
    plan, facts, ordered = scene.plan, scene.facts, scene.since("order")
    assert ordered is not None
    if stop := scene.stopped_by_someone or _refused(scene, ordered):
        return stop
    if not _runs_as(scene, plan.incarnation_to or 0, plan.buckets_to):
        of = f"incarnation {facts.actual_incarnation} with {facts.actual_buckets} buckets"
        return Finding.waits(f"{plan.operator} is {facts.phase or 'not reported'}, {of}")
    if plan.executors_to != plan.executors_from and facts.registered != plan.executors_to:
        return Finding.waits(f"{facts.registered} of {plan.executors_to} executors are registered")
    return Finding.done(f"{plan.operator} runs again", incarnation=facts.actual_incarnation, buckets=facts.actual_buckets)


def _refused(scene: Scene, ordered: datetime) -> Finding | None:
    """Its driver goes on as it was, because the state cannot be given other buckets. A query that merely failed is started again
    by its driver."""
    who = {"pipeline": scene.plan.pipeline, "operator": scene.plan.operator}
    words = (row(scene.conn, "rescale_troubles", **who, since=ordered) or {}).get("refused")
    return Finding.failed(f"the driver refused: {words}") if words else None


def _runs_as(scene: Scene, incarnation: int, buckets: int) -> bool:
    facts = scene.facts
    as_told = (facts.actual_incarnation or 0) >= incarnation and facts.actual_buckets == buckets
    return scene.lives and facts.phase == RUNNING and as_told and facts.actual_generation == facts.generation


def scaled(scene: Scene) -> Finding:
    """As many executors are registered as were asked for."""
    plan, facts, ordered = scene.plan, scene.facts, scene.since("order")
    if stopped_by := scene.stopped_by_someone:
        return stopped_by
    if facts.executors != plan.executors_to:
        return Finding.failed(f"{scene.name} was given {facts.executors} executors meanwhile")
    fresh = facts.beat_at is not None and ordered is not None and facts.beat_at >= ordered
    if scene.lives and fresh and facts.registered == plan.executors_to:
        return Finding.done(f"{facts.registered} executors are registered", registered=facts.registered)
    return Finding.waits(f"{facts.registered} of {plan.executors_to} executors are registered")


# ---- did it do any harm, and what came of it? ----


def changed_at(scene: Scene) -> datetime:
    """When what runs was told to change."""
    told = scene.since("order", "cutover")
    assert told is not None
    return told


def verify(scene: Scene) -> Finding:
    """The first batches since the change have committed, and their offsets follow upon those before without gap or overlap."""
    from spillway.gates.plans import check_plan

    plan, policy = scene.plan, scene.policy
    if stopped_by := scene.stopped_by_someone:
        return stopped_by
    told, who = changed_at(scene), {"pipeline": plan.pipeline, "operator": plan.operator}
    trouble = (row(scene.conn, "rescale_troubles", **who, since=told) or {}).get("failed_at")
    found = rows(scene.conn, "rescale_batches", **who, since=told)
    ran = [b for b in found if _is_after(scene, b) and b["input_rows"] > 0]
    healthy = [b for b in ran if trouble is None or b["started_at"] > trouble]
    short = policy.rescale_verify_batches - len(healthy)
    quiet = short > 0 and len(healthy) == len(ran) and _quiet(scene, ran[-1]["ended_at"] if ran else told)
    if short > 0 and not quiet and scene.waited_s < policy.rescale_verify_timeout_s:
        return Finding.waits(f"{len(healthy)} of {policy.rescale_verify_batches} batches since the change")
    links = chain(_partitions(scene, told), from_checkpoint=plan.checkpoint_from)
    if links.broken and not _reported(scene):
        return Finding.waits("the driver that was taken over from may not have reported its last batch yet")
    batches = [{"subject": plan.operator, "batches": len(healthy), "batches_short": 0 if quiet else short}]
    rules, failures = check_plan(plan.pipeline, batches=batches, offsets=list(links.joints))
    evidence: dict[str, Any] = {
        "rules": rules,
        "batches": len(healthy),
        "joints": len(links.joints),
        "joints_unknown": links.unknown,
    }
    if failures:
        evidence |= {"failed": [f.rule for f in failures], "broken": [j for j in links.joints if j["gap"] or j["overlap"]][:20]}
        return Finding.failed("; ".join(str(f) for f in failures), **evidence)
    rest = ", and nothing more has arrived" if quiet else ""
    follow = f"offsets follow without gap or overlap at {len(links.joints)} places"
    return Finding.done(f"{len(healthy)} batches since the change are healthy{rest}; {follow}", **evidence)


def _is_after(scene: Scene, batch: Mapping[str, Any]) -> bool:
    """Whether a batch was run by what the plan has made."""
    plan = scene.plan
    if batch["checkpoint"] != plan.checkpoint_to or batch["generation"] < (plan.generation_to or 0):
        return False
    stop = scene.evidence("stopped").get("stopped_batch")
    return stop is None or batch["batch_id"] > stop


def _partitions(scene: Scene, told: datetime) -> list[dict[str, Any]]:
    """From the last batch before the change on. Where another checkpoint was taken over from a driver that did not say good-bye,
    what that one read last is known to its checkpoint alone: then only what came after, and the digest has to tell."""
    plan = scene.plan
    last = (scene.evidence("order") or scene.evidence("cutover")).get("batch_id")
    found = rows(
        scene.conn, "rescale_partitions", pipeline=plan.pipeline, operator=plan.operator, checkpoint=plan.checkpoint_from,
        batch_id=-1 if last is None else last, since=told - LOOK_BACK,
    )  # fmt: skip
    gentle = not plan.follows or scene.facts.beat_before in OVER
    return found if gentle else [r for r in found if r["checkpoint"] == plan.checkpoint_to]


def _reported(scene: Scene) -> bool:
    """A driver gives its lease back before its last metrics are written: they are there when it has fallen silent."""
    if scene.kind not in (Kind.HANDOVER, Kind.SHADOW):
        return True
    silent_s = SIGNS * scene.policy.heartbeat_s + scene.policy.metric_timeout_s
    return scene.age_s(scene.facts.beat_before_at) > silent_s


def _quiet(scene: Scene, since: datetime) -> bool:
    """The operator runs, and its topics have not grown for a while: there is no batch to wait for. Where nobody measured them
    nothing is known of that."""
    if scene.age_s(since) < QUIET_S or not scene.lives or scene.facts.phase != RUNNING:
        return False
    topics = [e.topic for e in scene.spec().inputs(scene.plan.operator)]
    found = row(scene.conn, "rescale_arrived", topics=topics, since=since) or {}
    return found.get("rows") == 0


def done(scene: Scene) -> Finding:
    """Nothing is left to do but to say what it was like."""
    plan, told = scene.plan, changed_at(scene)
    begun = next((s.began_at for s in plan.steps if s.ordinal > 0 and s.began_at), told)
    settled = scene.since("verify") or scene.now
    found = rows(
        scene.conn, "rescale_batches", pipeline=plan.pipeline, operator=plan.operator, since=begun - LOOK_BACK
    )  # fmt: skip
    seen = observed(found, Times(begun=begun, changed=told, settled=settled))
    pause = f"{seen['pause_s']:.1f} s" if seen["pause_s"] is not None else "not known"
    steady = f"{seen['steady_s']:.1f} s" if seen["steady_s"] is not None else "not known"
    return Finding.done(f"the longest gap was {pause}, the steady one is {steady}", **seen)


STEPS: Mapping[str, Callable[[Scene], Finding]] = {
    "validate": validate,
    "order": order,
    "stopped": stopped,
    "started": started,
    "scaled": scaled,
    "launch": launch,
    "rehearsed": rehearsed,
    "repartitioned": repartitioned,
    "caught_up": caught_up,
    "cutover": cutover,
    "taken_over": taken_over,
    "verify": verify,
    "digest": digest,
    "done": done,
}
