"""The steps of a driver that rehearses beside the one that runs, and takes over from it.

A launch is an intent first (a row), then a submission, then a record of its handle, as in `spillway.act.streams`: a crash after
any of them leaves what the next pass finds by its name, or launches.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from spillway.act.launch import LauncherUnreachable, LaunchRefused, LaunchSpec
from spillway.act.rescale.facts import RUNNING, Finding, Scene, overtaken
from spillway.act.streams import launch_spec
from spillway.model.rescale import Kind
from spillway.store.queries import execute, row

BUILT = ("ready",)
REPARTITIONED = ("catching_up", "ready")
LOST = ("failed", "gone")
SIGNS = 3
"""Heartbeats that a successor may miss before the cluster is asked what became of it."""


def launch(scene: Scene) -> Finding:
    """Puts a second driver beside the running one, and waits for its first word."""
    facts = scene.facts
    if words := overtaken(scene):
        return Finding.failed(words)
    if facts.successor_plan != scene.plan.id:
        return _until_calm(scene) or _submit(scene)
    if facts.successor_handle is None:
        return _find(scene)
    if words := _ended(scene):
        return Finding.failed(words)
    if facts.successor_state == "wanted":
        return Finding.waits(f"generation {scene.plan.generation_to} of {scene.name} is starting on {_where(scene)}")
    return Finding.done(
        f"generation {scene.plan.generation_to} of {scene.name} is up on {_where(scene)}", handle=facts.successor_handle
    )


def _until_calm(scene: Scene) -> Finding | None:
    """Not while the operator lags and its shedders work that off: what starts takes the CPU that it needs for that. No longer
    than `rescale_calm_s`, for what cannot be worked off is why it is rescaled."""
    plan, policy = scene.plan, scene.policy
    if scene.waited_s >= policy.rescale_calm_s:
        return None
    since = scene.now - timedelta(seconds=policy.rescale_calm_s)
    who = {"pipeline": plan.pipeline, "operator": plan.operator, "checkpoint": plan.checkpoint_from}
    last = row(scene.conn, "rescale_behind", **who, since=since)
    if last is None or (last["lag_rows"] or 0) <= last["rows_read"]:
        return None
    return Finding.waits(
        f"{last['lag_rows']} rows wait for {plan.operator}, more than its last batch of {last['rows_read']}: shedding comes first"
    )


def _submit(scene: Scene) -> Finding:
    plan, conn = scene.plan, scene.conn
    if not execute(conn, "successor_intend", plan=plan.id, launcher=scene.launcher.name, now=scene.now):
        return Finding.waits(f"{plan} is about to be taken back")
    spec = spec_of(scene)
    conn.commit()
    try:
        handle = scene.launcher.submit(spec)
    except LaunchRefused as error:
        return Finding.failed(f"the successor of {scene.name} was not launched: {error}")
    except LauncherUnreachable as error:
        return Finding.waits(f"the cluster does not answer: {error}")
    execute(conn, "successor_handle", plan=plan.id, handle=handle, launcher=scene.launcher.name)
    return Finding.waits(
        f"generation {plan.generation_to} of {scene.name} was submitted to run on {_where(scene)}", handle=handle
    )


def _find(scene: Scene) -> Finding:
    """Whoever launched it has died before he wrote down its handle: it runs under its name, or was never submitted."""
    plan, facts = scene.plan, scene.facts
    name = spec_of(scene).name
    try:
        sighting = scene.launcher.find(scene.store.store)
    except LauncherUnreachable as error:
        return Finding.waits(f"the cluster does not answer: {error}")
    handle = next((f.handle for f in sighting.found if f.name == name), None)
    if handle is not None:
        execute(scene.conn, "successor_handle", plan=plan.id, handle=handle, launcher=scene.launcher.name)
        return Finding.waits(f"{name} was submitted but not recorded: {handle} is it", handle=handle)
    since = scene.age_s(facts.successor_launched_at)
    if since <= scene.policy.backoff_first_s or (sighting.unidentified and since <= scene.policy.launch_timeout_s):
        return Finding.waits(f"{name} was about to be submitted and is not seen yet")
    return _submit(scene)


def spec_of(scene: Scene) -> LaunchSpec:
    plan = scene.plan
    assert plan.generation_to is not None
    declared = launch_spec(scene.conn, plan.pipeline, plan.application, plan.generation_to, scene.store.store)
    most = max(declared.max_executors, plan.executors_to)
    return replace(declared, node=plan.node_to, executors=plan.executors_to, max_executors=most, successor=plan.id)


def rehearsed(scene: Scene) -> Finding:
    follows = scene.facts.behind_rows is not None
    return _reaches(scene, BUILT, "follows what runs" if follows else "has rehearsed", "rehearses")


def repartitioned(scene: Scene) -> Finding:
    return _reaches(scene, REPARTITIONED, f"has cloned the state into {scene.plan.buckets_to} buckets", "clones and repartitions")


def caught_up(scene: Scene) -> Finding:
    return _reaches(scene, BUILT, "has caught up", "catches up")


def _reaches(scene: Scene, wanted: Collection[str], has: str, does: str) -> Finding:
    facts, name = scene.facts, f"generation {scene.plan.generation_to} of {scene.name}"
    if words := overtaken(scene) or _ended(scene):
        return Finding.failed(words)
    if facts.successor_state in wanted:
        shown = {"state": facts.successor_state, "batches": facts.successor_batches, "behind_rows": facts.behind_rows}
        return Finding.done(f"{name} {has}", **shown)
    behind = "" if facts.behind_rows is None else f", {facts.behind_rows} rows behind"
    return Finding.waits(f"{name} {does}: {facts.successor_state}, {facts.successor_batches} batches{behind}")


def _ended(scene: Scene) -> str | None:
    """Why a successor will not take over any more."""
    facts, policy = scene.facts, scene.policy
    name = f"generation {scene.plan.generation_to} of {scene.name}"
    said = f": {facts.successor_detail}" if facts.successor_detail else ""
    if facts.successor_plan != scene.plan.id:
        return f"{name} is recorded no longer"
    if facts.successor_state in LOST:
        return f"{name} has ended before it could take over{said}"
    silent_s = scene.age_s(facts.successor_at or facts.successor_launched_at)
    if silent_s <= SIGNS * policy.heartbeat_s or facts.successor_handle is None:
        return None
    status = scene.launcher.status(facts.successor_handle)
    if status.dead:
        return f"{name} has ended ({status}) before it could take over{said}"
    if facts.successor_at is not None and silent_s > policy.silent_s:
        return f"{name} is silent for {silent_s:.0f} s"
    return None


def cutover(scene: Scene) -> Finding:
    """The point of no return, one transaction: the successor is the application's driver, and the one that runs is fenced."""
    plan, facts = scene.plan, scene.facts
    if words := overtaken(scene) or _ended(scene):
        return Finding.failed(words)
    shed = _shed(scene)
    if shed and scene.kind is Kind.SHADOW:
        return Finding.failed(f"{shed}, which a shadow cannot repeat: ask again when all is kept")
    if scene.age_s(facts.successor_at) > SIGNS * scene.policy.heartbeat_s:
        return Finding.waits(f"generation {plan.generation_to} of {scene.name} gives no sign of life")
    if not execute(scene.conn, "successor_take_over", plan=plan.id, now=scene.now):
        return Finding.waits(
            f"generation {plan.generation_to} of {scene.name} is {facts.successor_state}, not ready to take over"
        )
    execute(scene.conn, "successor_told", plan=plan.id)
    loads = ""
    if plan.follows and (shed or facts.behind_rows is None):
        execute(scene.conn, "successor_stays", plan=plan.id)
        loads = f", and loads the state anew: {shed or 'it could not follow'}"
    elif plan.follows:
        execute(scene.conn, "successor_checkpoint", plan=plan.id, now=scene.now)
    return Finding.done(
        f"generation {plan.generation_to} of {scene.name} takes over at the next committed batch{loads}",
        batch_id=facts.batch_id, offsets=facts.offsets,
    )  # fmt: skip


def _shed(scene: Scene) -> str | None:
    """Why what has followed may not be gone on from: it repeats batches by the keeps of now, which were others when they ran, so
    that its state is not what it should be as soon as anything was shed since it was launched."""
    plan = scene.plan
    launched = next((s.began_at for s in plan.steps if s.step == "launch"), None)
    if not plan.follows or launched is None:
        return None
    who = {"pipeline": plan.pipeline, "operator": plan.operator}
    found = row(scene.conn, "rescale_shed", **who, checkpoint=plan.checkpoint_from, since=launched)
    if found:
        return f"{found['edge']} kept {found['keep']:.3g} of its rows meanwhile"
    edges = [edge.name for edge in scene.spec().inputs(plan.operator)]
    told = row(scene.conn, "rescale_sheds", **who, edges=edges, lately_s=0.0)
    return f"{told['edge']} is to keep less than all of its rows" if told else None


def taken_over(scene: Scene) -> Finding:
    """The driver of the application runs the operator where and as the plan says. If it died on the way, `spillway_streams` has
    launched another one, which is as good."""
    plan, facts = scene.plan, scene.facts
    if stopped_by := scene.stopped_by_someone:
        return stopped_by
    as_told = facts.actual_generation == facts.generation and facts.actual_checkpoint == plan.checkpoint_to
    if scene.lives and as_told and facts.phase == RUNNING and facts.generation >= (plan.generation_to or 0):
        words = f"generation {facts.generation} of {scene.name} runs {plan.operator} on {_where(scene)}"
        return Finding.done(words, generation=facts.generation, batch_id=facts.batch_id)
    return Finding.waits(
        f"generation {facts.generation} of {scene.name} is {facts.beat or facts.successor_state}, {plan.operator} {facts.phase}"
    )


def _where(scene: Scene) -> str:
    return scene.plan.node_to or "any node"
