"""The first half of a cycle: observe and decide. Each step is a transaction and finds what it needs in the store.

Gates stand behind both. What one does not let through is recorded with its evidence, and its pipeline is left as it is; the
others go on. A replay takes the same steps on the metrics of the past.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.decide.qod import decide, learn
from spillway.gates.tables import Judged
from spillway.gates.verdict import Failure, Verdict
from spillway.model.qod import Cost, Observation, shortage
from spillway.model.window import Interval, Window
from spillway.observe.samples import read_samples
from spillway.observe.window import read_window
from spillway.observe.world import ADVISE, APPLY, age_s, keeps_before, observation, part, worlds
from spillway.store import decisions
from spillway.store.decisions import Run, Seen

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger("spillway.qod")
AFFINE = "affine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step did, in words, and what it refused."""

    said: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def observe(conn: Connection, interval: Interval, run: Run) -> Step:
    """Closes the window, puts it to the gate, and stores the worlds that are to be decided."""
    from spillway.gates.run import check_observation

    policy = run.policy
    window = read_window(conn, interval, policy, off_too=not run.live)
    verdict = check_observation(window, policy.qod_ahead_s)
    decisions.save_policy(conn, run)
    changing = {p: f"{', '.join(names)} of {p} is being rescaled" for p in window.declared if (names := window.rescaled(p))}
    refused = [_refuse(conn, window, run, p, verdict) for p in window.declared if not verdict.passed(p) and p not in changing]
    passed = {p: d.mode for p, d in window.declared.items() if verdict.passed(p) and p not in changing}
    starting = {p: f"{', '.join(names)} of {p} is still starting" for p in passed if (names := window.starting(p))}
    waiting = [_wait(conn, window, run, p, words) for p, words in (changing | starting).items()]
    ready = {p: mode for p, mode in passed.items() if p not in starting}
    decisions.reopen(conn, run, interval, list(ready))
    costs = _costs(conn, window, run, list(ready))
    modes = {p: d.mode for p, d in window.declared.items()}
    before = decisions.remembered(conn, run, interval, modes)
    said = []
    for world, members in _worlds(window, ready, run).items():
        seen = observation(window, members, before, costs, policy)
        decisions.save_observation(conn, run, interval, world, members, seen.to_json())
        said.append(f"{world}: {', '.join(members)}")
    conn.commit()
    return Step(said=tuple(said + waiting), refused=tuple(refused))


def _worlds(window: Window, modes: Mapping[str, str], run: Run) -> dict[str, list[str]]:
    """A pipeline whose metrics are stale is held alone, so that it holds up nobody else."""
    most = run.policy.qod_stale_cycles * window.interval.seconds
    stale = [p for p in modes if age_s(window, [p]) > most]
    fresh = worlds({p: mode for p, mode in modes.items() if p not in stale})
    return fresh | {f"stale/{p}": [p] for p in stale}


def _costs(conn: Connection, window: Window, run: Run, pipelines: list[str]) -> dict[tuple[str, str], Cost | None]:
    if run.policy.cpu_model != AFFINE or not pipelines:
        return {}
    instances = {(o.pipeline, o.operator): o.measured for o in window.operators}
    found = read_samples(conn, window.interval, run.policy, pipelines, instances)
    return {operator: learn(samples, run.policy) for operator, samples in found.items()}


def _refuse(conn: Connection, window: Window, run: Run, pipeline: str, verdict: Verdict) -> str:
    failures, declared = verdict.failures[pipeline], window.declared[pipeline]
    seen = decisions.save_observation(
        conn, run, window.interval, f"{decisions.REFUSED}{pipeline}", [pipeline], window.part(pipeline)
    )  # fmt: skip
    decision = decisions.save_decision(
        conn, run, window.interval, pipeline=pipeline, mode=declared.mode, version=declared.version, observation=seen,
        status="refused", reason=_sentence(failures),
    )  # fmt: skip
    return _record(conn, run, decision, pipeline, verdict.gate, failures)


def _record(
    conn: Connection, run: Run, decision: int | None, pipeline: str, gate: str, failures: tuple[Failure, ...]
) -> str:  # fmt: skip
    text = f"the {gate} gate refused {pipeline}: {_sentence(failures)}"
    if decision is not None:
        decisions.save_gate(conn, decision, gate, [(f.suite, f.rule, f.evidence) for f in failures])
        if run.live:
            rules = ", ".join(sorted({f.rule for f in failures}))
            told = f"the {gate} gate refused {rules}"
            decisions.tell(conn, pipeline, "refused", f"{told}: the keeps stay as they are. {_sentence(failures)}", about=told)
    return text


def _sentence(failures: Iterable[Failure]) -> str:
    return "; ".join(str(f) for f in failures)


def _wait(conn: Connection, window: Window, run: Run, pipeline: str, words: str) -> str:
    declared = window.declared[pipeline]
    decisions.save_decision(
        conn, run, window.interval, pipeline=pipeline, mode=declared.mode, version=declared.version, observation=None,
        status="held", reason=words,
    )  # fmt: skip
    return words


def decide_all(conn: Connection, interval: Interval, run: Run) -> Step:
    """Decides every world that was observed, from what was stored of it, and puts the decision to the gate.

    What was refused on this window stays refused, however often a step runs."""
    from spillway.gates.run import check_decision

    window = read_window(conn, interval, run.policy, off_too=not run.live)
    before = decisions.refused(conn, run, interval)
    said: list[str] = []
    refused = [f"{pipeline} was refused before: {found.reason}" for pipeline, found in before.items() if found.decided]
    for seen in decisions.observations(conn, run, interval):
        own = [p for p in _own(window, seen) if p not in before]
        if not own:
            continue
        try:
            judged = _judged(window, seen, run, own)
        except Exception as error:  # a fault of the deciding: recorded, and the other worlds are decided
            log.exception("world %s could not be decided", seen.world)
            refused += [_fail(conn, window, run, seen, p, error) for p in own]
            continue
        verdict = check_decision(judged)
        for one in judged:
            name, declared = one.pipeline.name, window.declared[one.pipeline.name]
            failures = verdict.failures.get(name, ())
            decision = decisions.save_decision(
                conn, run, interval, pipeline=name, mode=declared.mode, version=declared.version, observation=seen.id,
                status="refused" if failures else "held" if one.held else "decided",
                reason=_sentence(failures) or one.part["held"] or "", output=one.part,
            )  # fmt: skip
            if failures:
                refused.append(_record(conn, run, decision, name, verdict.gate, failures))
            else:
                said.append(f"{name}: {summary(one.part)}")
    conn.commit()
    return Step(said=tuple(said), refused=tuple(refused))


def _own(window: Window, seen: Seen) -> list[str]:
    """The pipelines a world decides, but for those that are declared no longer; the applied ones beside an advised one have a
    world of their own."""
    mode = seen.world if seen.world in (APPLY, ADVISE) else None
    return [p for p in seen.pipelines if p in window.declared and mode in (None, window.declared[p].mode)]


def _judged(window: Window, seen: Seen, run: Run, own: Iterable[str]) -> list[Judged]:
    found = Observation.from_json(seen.body)
    decision = decide(found, run.policy)
    return [
        Judged(
            pipeline=(spec := window.declared[name].pipeline),
            part=part(decision, spec, window.nodes_of(name)),
            before=keeps_before(found, spec),
            raise_limit=run.policy.qod_raise_limit,
        )
        for name in own
    ]


def _fail(conn: Connection, window: Window, run: Run, seen: Seen, pipeline: str, error: Exception) -> str:
    declared, words = window.declared[pipeline], f"deciding failed: {type(error).__name__}: {' '.join(str(error).split())}"
    decisions.save_decision(
        conn, run, window.interval, pipeline=pipeline, mode=declared.mode, version=declared.version, observation=seen.id,
        status="failed", reason=words,
    )  # fmt: skip
    if run.live:
        decisions.tell(conn, pipeline, "failed", f"{words}; the keeps stay as they are")
    return f"{pipeline}: {words}"


def summary(output: Mapping[str, Any]) -> str:
    """One line: what is kept of what, what moves, what cannot be met.

    >>> summary({"held": None, "queries": {"bill": {"desired": 0.8}}, "moves": [], "infeasible": None, "edges": []})
    'bill 0.8'
    """
    if output["held"]:
        return f"held, {output['held']}"
    said = ", ".join(f"{name} {query['desired']:.3g}" for name, query in output["queries"].items())
    for move in output["moves"]:
        said += f"; {move['operator']} should move from {move['from']} to {move['to']}"
    if infeasible := output["infeasible"]:
        said += f"; INFEASIBLE for {', '.join(infeasible['queries'])}, {shortage(infeasible)}"
    return said
