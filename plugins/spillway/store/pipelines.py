"""Pipelines as declared: versions, what is in force, whether it should run. Each function that writes is one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.store import events
from spillway.store.connection import translate
from spillway.store.errors import Refused
from spillway.store.queries import execute, row, rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

    from spillway.store.applying import Applied

Desired = Literal["running", "stopped"]
MODES = ("off", "advise", "apply")


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    pipeline: Pipeline
    version: int
    desired: str
    digest: str
    source: str


def apply(conn: Connection, pipeline: Pipeline, source: str, by: str) -> Applied:
    """Puts a checked pipeline in force as a new version; does nothing when it equals the one in force."""
    from spillway.store.applying import apply_pipeline

    return apply_pipeline(conn, pipeline, source, by)


def names(conn: Connection) -> list[str]:
    with translate():
        return [found["pipeline"] for found in rows(conn, "pipeline_names")]


def in_force(conn: Connection, name: str) -> InForce | None:
    with translate():
        found = row(conn, "pipeline_in_force", pipeline=name)
    if found is None:
        return None
    return InForce(
        pipeline=Pipeline.from_json(found["spec"]),
        version=found["version"],
        desired=found["desired"],
        digest=found["digest"],
        source=found["source"],
    )


def load(conn: Connection, name: str, version: int | None = None) -> Pipeline:
    """The pipeline in the given version, else in the one in force."""
    if version is None:
        current = in_force(conn, name)
        if current is None:
            raise unknown(conn, name)
        return current.pipeline
    with translate():
        found = row(conn, "pipeline_version", pipeline=name, version=version)
    if found is None:
        raise Refused(f"pipeline {name} has no version {version}.")
    return Pipeline.from_json(found["spec"])


def set_desired(conn: Connection, name: str, desired: Desired, by: str) -> bool:
    """Asks for the pipeline to run or to stop; False when that was asked already."""
    if desired not in ("running", "stopped"):
        raise Refused(f"{desired} is not a state to ask for: ask for running or stopped.")
    with translate(), conn:
        current = row(conn, "pipeline_in_force", pipeline=name)
        if current is None:
            raise unknown(conn, name)
        changed = execute(conn, "application_set_desired", pipeline=name, desired=desired)
        if current["desired"] == desired and not changed:
            return False
        execute(conn, "pipeline_set_desired", pipeline=name, desired=desired, by=by)
        events.record(conn, actor=by, kind="desired", pipeline=name, text=f"pipeline {name} should be {desired}")
    return True


def set_mode(conn: Connection, name: str, mode: str, by: str) -> bool:
    """Whether cycles only advise on the pipeline, apply what they decide, or leave it alone; False when it was so already."""
    if mode not in MODES:
        raise Refused(f"{mode} is not a mode: give {', '.join(MODES[:-1])} or {MODES[-1]}.")
    with translate(), conn:
        if row(conn, "pipeline_in_force", pipeline=name) is None:
            raise unknown(conn, name)
        if not execute(conn, "pipeline_set_mode", pipeline=name, mode=mode):
            return False
        events.record(conn, actor=by, kind="mode", pipeline=name, text=f"the mode of pipeline {name} is {mode}")
    return True


def modes(conn: Connection) -> dict[str, str]:
    with translate():
        return {found["pipeline"]: found["mode"] for found in rows(conn, "pipeline_modes")}


def alive_applications(conn: Connection, name: str, policy: Policy) -> list[str]:
    """Applications that should run or may still be running."""
    found = rows(conn, "applications_alive", pipeline=name, lease_s=policy.lease_s, launch_timeout_s=policy.launch_timeout_s)
    return [a["application"] for a in found]


def remove(conn: Connection, name: str, by: str, *, policy: Policy | None = None) -> None:
    """Takes a stopped pipeline out of force and frees its topics; versions, checkpoints and metrics stay."""
    with translate(), conn:
        if row(conn, "pipeline_in_force", pipeline=name) is None:
            raise unknown(conn, name)
        rows(conn, "applications_lock", pipeline=name)
        if alive := alive_applications(conn, name, policy or Policy.load()):
            raise Refused(f"pipeline {name} still runs ({', '.join(alive)}): stop it first with `spillway stop {name} --wait`.")
        execute(conn, "settings_delete_others", pipeline=name, edges=[])
        execute(conn, "pipeline_delete", pipeline=name)
        events.record(conn, actor=by, kind="removed", pipeline=name, text=f"pipeline {name} was taken out of force")


def reset(conn: Connection, name: str, operator: str, by: str, *, policy: Policy | None = None) -> int:
    """Starts a stopped operator anew; returns the number of its new checkpoint.

    Its state and its position are lost, its input is read from the declared `starting`, its outputs may repeat rows. What the old
    checkpoint fixed (input edges, buckets, kind) may change until the next launch. Also for an operator, or a pipeline, that is
    declared no longer: its checkpoint stays, and a new version would be held to it.
    """
    with translate(), conn:
        refuse_reset(conn, name, operator, policy)
        done = row(conn, "operator_state_reset", pipeline=name, operator=operator)
        assert done is not None
        checkpoint = int(done["checkpoint"])
        text = f"operator {operator} starts anew with checkpoint {checkpoint}: its state and its position are gone"
        events.record(conn, actor=by, kind="reset", pipeline=name, subject=operator, text=text)
    return checkpoint


def refuse_reset(conn: Connection, name: str, operator: str, policy: Policy | None = None) -> None:
    """Raises what speaks against a reset; until the end of the transaction nobody launches the pipeline."""
    current = in_force(conn, name)
    known = [s["operator"] for s in rows(conn, "operator_states", pipeline=name)]
    if current is None and not known:
        raise unknown(conn, name)
    if operator not in known:
        raise Refused(f"pipeline {name} has no operator {operator}: its operators are {', '.join(known)}.")
    rows(conn, "applications_lock", pipeline=name)
    alive = alive_applications(conn, name, policy or Policy.load())
    if current:
        runs_it = [a.name for a in current.pipeline.applications if operator in a.operators]
        alive = [application for application in alive if application in runs_it or not runs_it]
    if alive:
        raise Refused(
            f"operator {operator} of pipeline {name} still runs (application {', '.join(alive)}): "
            f"stop it first with `spillway stop {name} --wait`."
        )


def unknown(conn: Connection, name: str) -> Refused:
    known = names(conn)
    close = get_close_matches(name, known, n=1)
    if close:
        return Refused(f"there is no pipeline {name}: did you mean {close[0]}?")
    if not known:
        return Refused(f"there is no pipeline {name}: none was applied yet, use `spillway topology apply FILE`.")
    there = f"there {'is' if len(known) == 1 else 'are'}: {', '.join(known)}"
    return Refused(f"there is no pipeline {name} ({there}): put it in force with `spillway topology apply FILE`.")
