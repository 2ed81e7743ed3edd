"""The first half of an evaluation of capacity: observe and detect. Each step finds what it needs in the store.

Gates stand behind both. What one does not let through is recorded with its evidence, and nothing is proposed for its pipeline;
the others go on. Pipelines are evaluated each for itself: what they share of a node shows in how long their batches take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import Step
from spillway.decide.capacity import detect
from spillway.gates.capacity_tables import Found
from spillway.gates.verdict import Failure
from spillway.model.capacity import CapacityWorld, Verdict
from spillway.model.window import Declared, Interval
from spillway.observe.capacity import Measured, read_capacity
from spillway.observe.capacity_world import capacity_world
from spillway.store import capacity, decisions
from spillway.store.decisions import CAPACITY, REFUSED, Run, Seen

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.capacity")


def observe(conn: Connection, interval: Interval, run: Run) -> Step:
    """Closes the window, puts it to the gate, and stores the flow network of each pipeline that can be evaluated."""
    from spillway.gates.capacity import check_measured

    found = read_capacity(conn, interval, run.policy, off_too=not run.live)
    decisions.save_policy(conn, run)
    waiting = {p: why for p in found.parts if (why := _waits(found, p))}
    judged = {p: part for p, part in found.parts.items() if p not in waiting}
    verdict = check_measured(judged, run.policy.qod_ahead_s)
    said = [_hold(conn, interval, run, found.window.declared[p], why) for p, why in waiting.items()]
    refused = [_refuse(conn, interval, run, found, p, verdict.failures[p]) for p in judged if not verdict.passed(p)]
    ready = [p for p in judged if verdict.passed(p)]
    capacity.reopen(conn, run, interval, ready)
    for pipeline in ready:
        world = capacity_world(judged[pipeline], _before(conn, interval, run, found.window.declared[pipeline]))
        name = f"{capacity.WORLD}{pipeline}"
        decisions.save_observation(conn, run, interval, name, [pipeline], world.to_json())
        said.append(f"{pipeline}: {len(world.operators)} operators and {len(world.edges)} edges")
    conn.commit()
    return Step(said=tuple(said), refused=tuple(refused))


def _waits(found: Measured, pipeline: str) -> str | None:
    """Why nothing can be said of a pipeline yet, though nothing about it is wrong."""
    if moving := found.moving.get(pipeline):
        return moving
    warming = {o.application for o in found.window.operators if o.pipeline == pipeline and o.warming}
    if warming:
        return f"{', '.join(sorted(warming))} of {pipeline} is still starting"
    part = found.parts[pipeline]
    if waits := [o for o in part.unshared() if not part.operator(o).batches]:
        return f"{', '.join(waits)} of {pipeline} has not shown yet what becomes of its rows"
    return None


def _before(conn: Connection, interval: Interval, run: Run, declared: Declared) -> Mapping[str, Any] | None:
    """What the last evaluation found, unless it is older than metrics may be."""
    since = interval.start - timedelta(seconds=interval.seconds * run.policy.qod_stale_cycles)
    found = capacity.findings(conn, run, declared, since=since, end=interval.start, limit=1)
    return found[0].output if found else None


def _hold(conn: Connection, interval: Interval, run: Run, declared: Declared, why: str) -> str:
    capacity.save(conn, run, interval, declared, kind=CAPACITY, observation=None, status="held", reason=why)
    return f"{declared.pipeline.name}: held, {why}"


def _refuse(
    conn: Connection, interval: Interval, run: Run, found: Measured, pipeline: str, failures: tuple[Failure, ...]
) -> str:  # fmt: skip
    name, declared = f"{REFUSED}{capacity.WORLD}{pipeline}", found.window.declared[pipeline]
    seen = decisions.save_observation(conn, run, interval, name, [pipeline], found.parts[pipeline].part())
    decision = capacity.save(
        conn, run, interval, declared, kind=CAPACITY, observation=seen, status="refused", reason=sentence(failures)
    )  # fmt: skip
    return record(conn, run, decision, pipeline, "observation", failures)


def record(
    conn: Connection, run: Run, decision: int | None, pipeline: str, gate: str, failures: tuple[Failure, ...]
) -> str:  # fmt: skip
    """What a gate found against a decision, for the record and, live, for people."""
    if decision is not None:
        decisions.save_gate(conn, decision, gate, [(f.suite, f.rule, f.evidence) for f in failures])
        if run.live:
            rules = ", ".join(sorted({f.rule for f in failures}))
            told = f"the {gate} gate refused {rules}"
            capacity.tell(conn, pipeline, "refused", f"{told}: nothing is proposed. {sentence(failures)}", about=told)
    return f"the {gate} gate refused {pipeline}: {sentence(failures)}"


def sentence(failures: Iterable[Failure]) -> str:
    return "; ".join(str(f) for f in failures)


def detect_all(conn: Connection, interval: Interval, run: Run) -> Step:
    """Looks for the bottleneck of every pipeline that was observed, from what was stored of it, and puts the finding to the gate.

    What was refused on this window stays refused, however often a step runs."""
    every = read_capacity(conn, interval, run.policy, off_too=not run.live).window.declared
    before = capacity.refused(conn, run, interval, CAPACITY)
    said: list[str] = []
    refused = [f"{pipeline} was refused before: {known.reason}" for pipeline, known in before.items() if known.decided]
    for seen in capacity.worlds(conn, run, interval):
        [pipeline] = seen.pipelines
        if pipeline not in every or pipeline in before:
            continue
        try:
            good, words = _detect(conn, interval, run, every[pipeline], seen)
        except Exception as error:  # a fault of the detecting: recorded, and the other pipelines are looked at
            log.exception("the bottleneck of %s could not be looked for", pipeline)
            good, words = False, f"detecting failed: {type(error).__name__}: {' '.join(str(error).split())}"
            capacity.save(
                conn, run, interval, every[pipeline], kind=CAPACITY, observation=seen.id, status="failed", reason=words
            )  # fmt: skip
        (said if good else refused).append(f"{pipeline}: {words}")
    conn.commit()
    return Step(said=tuple(said), refused=tuple(refused))


def _detect(conn: Connection, interval: Interval, run: Run, declared: Declared, seen: Seen) -> tuple[bool, str]:
    """Whether the finding passed its gate, and what it says. Nothing is written before all of it is known."""
    from spillway.gates.capacity import check_detected

    world, pipeline = CapacityWorld.from_json(seen.body), declared.pipeline.name
    finding = detect(world, run.policy).as_dict()
    found = Found(pipeline=declared.pipeline, world=world, finding=finding, over_flow=run.policy.capacity_over_flow)
    verdict = check_detected([found])
    failures = verdict.failures.get(pipeline, ())
    decision = capacity.save(
        conn, run, interval, declared, kind=CAPACITY, observation=seen.id, status="refused" if failures else "decided",
        reason=sentence(failures) or finding["reason"], output=finding,
    )  # fmt: skip
    if failures:
        return False, record(conn, run, decision, pipeline, verdict.gate, failures)
    if run.live and decision is not None:
        capacity.put(conn, pipeline, interval.end, decision, finding["edges"])
        _tell(conn, interval, run, declared, finding)
    return True, finding["reason"]


def _tell(conn: Connection, interval: Interval, run: Run, declared: Declared, finding: Mapping[str, Any]) -> None:
    """A bottleneck, once; and when it is gone."""
    pipeline, names = declared.pipeline.name, finding["bottlenecks"]
    if names:
        named = f"bottleneck {', '.join(names)}:"
        capacity.tell(conn, pipeline, "bottleneck", f"{named} {finding['reason']}", about=named, subject=names[0])
        return
    last = _before(conn, interval, run, declared)
    if last and last["bottlenecks"] and finding["verdict"] != Verdict.NOT_KNOWN:
        named = f"no bottleneck any more: {', '.join(last['bottlenecks'])}"
        capacity.tell(conn, pipeline, "room", f"{named}; {finding['reason']}", about=named, subject=last["bottlenecks"][0])
