"""The way back of a plan: what it prepared is dropped, what it ordered is ordered back. Done again, it does nothing more."""

from __future__ import annotations

from spillway.act.launch import LauncherUnreachable
from spillway.act.rescale.facts import RUNNING, Finding, Scene
from spillway.model.rescale import Kind
from spillway.store.queries import execute

WITHDRAWN = ("failed", "gone")


def undo(scene: Scene) -> Finding:
    """One look at the way back; done when what runs is as it was, or nobody is left to change it."""
    if scene.kind in (Kind.HANDOVER, Kind.SHADOW):
        return _hand_back(scene) if scene.plan.done("cutover") else _withdraw(scene)
    if not scene.plan.done("order"):
        return Finding.done("nothing was ordered")
    return _executors(scene) if scene.kind is Kind.EXECUTORS else _restart(scene)


def _executors(scene: Scene) -> Finding:
    plan, facts = scene.plan, scene.facts
    execute(scene.conn, "rescale_executors", **scene.who, executors=plan.executors_from, was=plan.executors_to)
    back = facts.executors != plan.executors_to
    if back and (facts.desired != RUNNING or facts.executors != plan.executors_from or facts.registered == plan.executors_from):
        return Finding.done(f"{scene.name} has {facts.executors} executors")
    return Finding.waits(f"{scene.name} goes back to {plan.executors_from} executors, {facts.registered} are registered")


def _restart(scene: Scene) -> Finding:
    """Another restart, with the buckets and executors there were."""
    plan, facts = scene.plan, scene.facts
    assert plan.incarnation_to is not None
    again = plan.incarnation_to + 1
    execute(
        scene.conn, "rescale_restart", pipeline=plan.pipeline, operator=plan.operator, incarnation=again,
        buckets=plan.buckets_from, checkpoint=plan.checkpoint_from, now=scene.now,
    )  # fmt: skip
    if plan.executors_from != plan.executors_to:
        execute(scene.conn, "rescale_executors", **scene.who, executors=plan.executors_from, was=plan.executors_to)
    runs = scene.lives and facts.phase == RUNNING and (facts.actual_incarnation or 0) >= again
    if runs and facts.actual_buckets == plan.buckets_from:
        return Finding.done(f"{plan.operator} runs again with {plan.buckets_from} buckets")
    if facts.desired != RUNNING and facts.incarnation >= again:
        return Finding.done(f"{scene.name} is stopped; it will start with {plan.buckets_from} buckets")
    return Finding.waits(f"{plan.operator} goes back to {plan.buckets_from} buckets: {facts.phase}")


def _withdraw(scene: Scene) -> Finding:
    """The successor clears up after itself and ends; one that does not is ended."""
    plan, facts = scene.plan, scene.facts
    if facts.successor_plan != plan.id:
        return Finding.done("nothing was launched")
    execute(scene.conn, "successor_withdraw", plan=plan.id)
    name = f"generation {plan.generation_to} of {scene.name}"
    if facts.successor_state in WITHDRAWN:
        return Finding.done(f"{name} has withdrawn")
    if facts.successor_handle is None:
        # Submitted or not: it finds itself unwanted once it is up, and a driver that no open plan knows is killed as a stray.
        return Finding.done(f"{name} was not seen to run")
    if scene.launcher.status(facts.successor_handle).dead:
        return Finding.done(f"{name} has ended")
    waited = scene.age_s(plan.changed_at)
    if waited > scene.policy.stop_timeout_s:
        try:
            scene.launcher.kill(facts.successor_handle)
        except LauncherUnreachable as error:
            return Finding.waits(f"{name} does not withdraw, and the cluster does not answer: {error}")
        return Finding.waits(f"{name} does not withdraw for {waited:.0f} s: it is killed")
    return Finding.waits(f"{name} withdraws: {facts.successor_state}")


def _hand_back(scene: Scene) -> Finding:
    """Behind the cut-over: `spillway_streams` launches the application where it was. A checkpoint that a shadow has made stays:
    what was written since is in no other."""
    plan, facts = scene.plan, scene.facts
    execute(scene.conn, "rescale_back", plan=plan.id)
    if facts.desired != RUNNING:
        return Finding.done(f"{scene.name} is stopped")
    if (facts.node, facts.executors) != (plan.node_from, plan.executors_from):
        return Finding.waits(f"{scene.name} goes back to {plan.node_from or 'any node'} with {plan.executors_from} executors")
    if scene.lives and facts.launched_node == plan.node_from and facts.registered in (None, plan.executors_from):
        return Finding.done(f"{scene.name} runs on {plan.node_from or 'any node'} with {plan.executors_from} executors")
    return Finding.waits(f"{scene.name} is launched on {plan.node_from or 'any node'}: {facts.beat}")
