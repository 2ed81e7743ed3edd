"""What becomes of a plan to rescale when something is killed at each of its steps: a table of step × fault × outcome.

For every kind of plan and every step of it, as soon as the plan has come to that step: kill -9 of the driver, of an executor with
its Python workers, of whoever carries the plan out, of Postgres, of Kafka, and where there is one, of the successor. After that
nobody helps. The plan has to finish or to go back by itself, what runs has to be as the outcome says, and every event must have
been counted exactly once, which is checked by lineage.

Faults that leave a plan its drivers strike one plan at step after step, until it has ended; whatever steps are left then have a
plan of their own. What such a plan came to and what the ledger says is said of all its steps. The death of a driver or of a
successor always has a plan of its own.

    make bench NAME=rescale_faults
    make bench NAME=rescale_faults ARGS="--kinds restart --steps stopped,started --faults driver,postgres"
    make bench NAME=rescale_faults ARGS="--record faults.jsonl --minutes 60"

All of it takes hours. With `--record`, cells that are in the file and are good are not struck again, and the table has them all;
those that were not good are told beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from _carrier import Carrier
from _common import Record, exit_code, finish, say
from _ledger import Ledger, Verdict
from _line import changeable_policy
from _rescale import Feed, Rescaled
from spillway.decide.rescale.steps import STEPS
from spillway.embedded import Stack
from spillway.embedded.owner import scratch
from spillway.model.rescale import Kind
from spillway.store.rescale import Plan

from tests.support.line import until

YAML = """
pipeline: {name}
trigger: 1s
batch_target: 3s
lineage: true
operators:
  pass:
    function: tests.support.operators:hand_on_key
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
  tally:
    function: tests.support.operators:tally
    kind: aggregate
    output_mode: update
    schema: n bigint not null, key string not null
    key: key
    buckets: 4
    parallelism: {{max: 4}}
edges:
  - {{topic: {name}.in, to: pass, partitions: 2}}
  - {{from: pass, to: tally, partitions: 2}}
applications:
  main: {{operators: [pass, tally], node: n1, executors: 2, slots: 1}}
"""
OPERATOR, KEYS, RATE = "tally", 2_000, 300.0
FAULTS = ("driver", "executor", "scheduler", "postgres", "kafka", "successor")
IN_A_ROW = ("executor", "scheduler", "postgres", "kafka")
"""Faults of which one plan has to bear several, one after the other."""
REHEARSED = ("rehearsed", "repartitioned", "caught_up", "cutover", "taken_over")
"""Steps at which there is a successor to be killed."""
ENDED_WELL = ("done", "rolled_back")
PLAN_LIMIT_S, WORLD_LIMIT_S, LEDGER_LIMIT_S, REACH_LIMIT_S, EXECUTOR_LIMIT_S = 600.0, 240.0, 300.0, 400.0, 120.0


def steps(kind: str) -> list[str]:
    return [step.name for step in STEPS[Kind(kind)]]


def cells(kinds: Sequence[str], wanted: Sequence[str] | None, faults: Sequence[str]) -> list[tuple[str, str, str]]:
    """Kind, step and fault.

    >>> cells(["executors"], ["order", "verify"], ["driver", "successor"])
    [('executors', 'order', 'driver'), ('executors', 'verify', 'driver')]
    """
    return [
        (kind, step, fault)
        for kind in kinds
        for step in steps(kind)
        for fault in faults
        if (wanted is None or step in wanted) and (fault != "successor" or (step in REHEARSED and "cutover" in steps(kind)))
    ]


def rows(wanted: Sequence[tuple[str, str, str]]) -> list[tuple[str, list[str], str]]:
    """The same with the steps of one plan together, as far as one plan can bear them.

    >>> rows([("restart", "order", "kafka"), ("restart", "order", "driver"), ("restart", "done", "kafka")])
    [('restart', ['order', 'done'], 'kafka'), ('restart', ['order'], 'driver')]
    """
    found: dict[tuple[str, ...], tuple[str, list[str], str]] = {}
    for kind, step, fault in wanted:
        which = (kind, fault) if fault in IN_A_ROW else (kind, fault, step)
        found.setdefault(which, (kind, [], fault))[1].append(step)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    kind: str
    step: str
    fault: str
    outcome: str
    """How the plan ended, or what was waited for in vain."""
    went_on: bool = False
    """It came to the next step that it was struck at."""
    as_said: bool
    """What runs is what the outcome says it is."""
    verdict: Verdict
    took_s: float
    detail: str = ""

    @property
    def ended(self) -> bool:
        """By itself, and well; a plan that fails before its first order has changed nothing."""
        return self.outcome in ENDED_WELL or (self.outcome == "failed" and self.step == "validate" and not self.went_on)

    @property
    def came_to(self) -> str:
        return f"went on, {self.outcome}" if self.went_on else self.outcome

    @property
    def good(self) -> bool:
        return self.ended and self.as_said and self.verdict.exact


class Bed:
    """The pipeline under load, the carrier, and the ledger: one cell of the table after the other."""

    def __init__(self, stack: Stack, line: Rescaled, carrier: Carrier | None = None, *, seed: int = 1) -> None:
        """Without a carrier somebody else carries plans out."""
        self.stack, self.line, self._carrier = stack, line, carrier
        name, bootstrap = line.pipeline.name, stack.env["SPILLWAY_KAFKA"]
        self.feed = Feed(bootstrap, f"{name}.in", event, RATE)
        self.ledger = Ledger(bootstrap, f"{name}.in", f"{name}.pass.tally", f"{name}.tally.out")
        self._chance = random.Random(seed)

    @property
    def carrier(self) -> Carrier:
        assert self._carrier is not None
        return self._carrier

    def begin(self) -> None:
        until(self.line.running, 240, "the application runs")
        self.line.watch.start()
        self.feed.start()
        self.line.batches_go_on(5, 120)
        until(self.line.runs_as_it_should, 60, "the operator runs")

    def cell(self, kind: str, step: str, fault: str) -> Cell:
        return self.struck(kind, [step], fault)[0]

    def struck(self, kind: str, steps: Sequence[str], fault: str) -> list[Cell]:
        """One plan, struck at the first of these steps and at each of the others that it still comes to."""
        began, before = time.monotonic(), self.line.now_has()
        wanted, reached = change(kind, before), list[str]()
        outcome, detail, as_said = "", "", False
        self.carrier.hold_at(steps[0])
        try:
            plan = self.line.ask(kind, **wanted)
            for step, then in zip(steps, [*steps[1:], None], strict=True):
                until(lambda: self.carrier.held or self._over(plan.id), REACH_LIMIT_S, f"step {step}", every_s=0.05)
                if not self.carrier.held:
                    break
                reached.append(step)
                say(f"{kind}, {step}: {self._strike(fault, self.line.plan(plan.id), then)}")
            self.carrier.release()
            ended = self.line.followed(plan.id, PLAN_LIMIT_S)
            outcome, detail = ended.state if reached else "not reached", ended.detail
            as_said = self.runs_as(ended, before, wanted)
        except (AssertionError, TimeoutError, RuntimeError) as error:
            outcome = outcome or "stuck"
            detail = f"{detail}; {error}".strip("; ")
            self.carrier.release()
            self._await_end()
        finally:
            self.carrier.release()
        return self.judged(kind, fault, reached or steps[:1], began, outcome, detail, as_said)

    def judged(
        self, kind: str, fault: str, steps: Sequence[str], began: float, outcome: str, detail: str, as_said: bool
    ) -> list[Cell]:
        """What a plan that was struck at these steps came to, with what the ledger says of it."""
        self.feed.pause()
        verdict = self.ledger.settled(LEDGER_LIMIT_S)
        self.feed.resume()
        took = (time.monotonic() - began) / len(steps)
        return [
            Cell(
                kind=kind, step=step, fault=fault, outcome=outcome, went_on=step != steps[-1], as_said=as_said, verdict=verdict,
                took_s=round(took, 1), detail=detail,
            )
            for step in steps
        ]  # fmt: skip

    def _await_end(self) -> None:
        """Of a plan that was given up here: it would stand in the way of the next."""
        text = "select bool_and(ended_at is not null) from spillway.rescale_plan where pipeline = %s"
        with contextlib.suppress(AssertionError):
            until(lambda: self.line.sql(text, self.line.pipeline.name) == [(True,)], PLAN_LIMIT_S, "the plan has ended")

    def _over(self, plan: int) -> bool:
        """A store that is away says nothing of it."""
        with contextlib.suppress(psycopg2.Error):
            return not self.line.plan(plan).open
        return False

    def _strike(self, fault: str, plan: Plan, then: str | None) -> str:
        """The plan is between two passes, at its step; as soon as the blow has fallen it goes on, to where it is held `then`.
        Returns what was done."""
        line, now = self.line, self.line.now_has()
        if fault in ("postgres", "kafka"):
            pid = self.stack.kill(fault)
            self.carrier.release(then)
            self.stack.wait_healthy(fault)
            return f"killed {fault}, process {pid}"
        if fault == "scheduler":
            self.carrier.release()  # not to the next step: there it would be killed while it is held
            time.sleep(self._chance.uniform(0.0, 0.4))  # anywhere inside a pass
            killed = self.carrier.kill()
            if then is not None:
                self.carrier.hold_at(then)
            time.sleep(1.0)
            self.carrier.start()
            return f"killed whoever carries it out, {killed} processes"
        if fault == "executor":
            victims = self._executor(now["generation"])
        else:
            victims = line.driver(now["generation"] if fault == "driver" else plan.generation_to or -1)
        killed = line.kill(victims)
        self.carrier.release(then)
        if not killed:
            raise RuntimeError(f"there was no {fault} to be killed")
        return f"killed the {fault}, {killed} processes"

    def _executor(self, generation: int) -> list[psutil.Process]:
        """The oldest of a generation, which has most of the state, with its Python workers; not while it is the only one."""
        text = "select spark_app from spillway.heartbeat where pipeline = %s and application = %s and generation = %s"

        def there() -> list[psutil.Process]:
            apps = [app for (app,) in self.line.sql(text, self.line.pipeline.name, self.line.application, generation)]
            of = []
            for process in self.line.executors():
                with contextlib.suppress(psutil.Error):
                    of += [process] if any(app in process.cmdline() for app in apps) else []
            return sorted(of, key=lambda p: p.create_time())

        until(there, EXECUTOR_LIMIT_S, f"an executor of generation {generation}")  # one that takes over may wait for a last batch
        with contextlib.suppress(AssertionError):
            until(lambda: len(there()) > 1, 30, "two executors")
        return [p for one in there()[:1] for p in (one, *one.children(recursive=True))]

    def runs_as(self, plan: Plan, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Waits until the operator runs, by one driver, with what the outcome of the plan says it should have."""
        line = self.line
        until(line.runs_as_it_should, WORLD_LIMIT_S, "the operator runs again", every_s=0.3)
        until(lambda: len(line.drivers()) <= len(line.driver(line.now_has()["generation"])), 120, "one driver is left")
        line.batches_go_on(2)
        now, should = line.now_has(), {k: before[k] for k in ("executors", "buckets", "node")}
        if plan.state == "done":
            should |= {"executors" if name == "to" else name: value for name, value in wanted.items()}
        if differs := {k: (now[k], v) for k, v in should.items() if now[k] != v}:
            raise RuntimeError(f"{differs} is, and should be")
        return True


def event(number: int) -> tuple[bytes, bytes]:
    return str(number % KEYS).encode(), json.dumps({"n": number, "key": f"k{number * 7 % KEYS}"}).encode()


def change(kind: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """The other one of two, so that plans can follow upon each other whatever became of those before.

    >>> change("handover", {"executors": 2, "buckets": 4, "node": "n1"}), change("executors", {"executors": 3})
    ({'node': 'n2'}, {'to': 2})
    """
    if kind == Kind.EXECUTORS:
        return {"to": 2 if now["executors"] != 2 else 3}
    if kind == Kind.HANDOVER:
        return {"node": "n2" if now["node"] == "n1" else "n1"}
    return {"buckets": 8 if now["buckets"] == 4 else 4}


def table(found: Sequence[Cell]) -> str:
    """One line per step and fault."""
    head = (
        f"{'kind':<10} {'step':<14} {'fault':<10} {'outcome':<21} {'as said':<8} {'lost':>5} {'doubled':>8} {'wrong':>6} {'s':>7}"
    )
    lines = [head, "-" * len(head)]
    for c in found:
        v = c.verdict
        mark = "" if c.good else "   <- " + (c.detail or "not exact")
        lines.append(
            f"{c.kind:<10} {c.step:<14} {c.fault:<10} {c.came_to:<21} {'yes' if c.as_said else 'no':<8} "
            f"{v.lost:>5} {v.doubled:>8} {v.wrong:>6} {c.took_s:>7.1f}{mark}"
        )
    return "\n".join(lines)


def recorded(lines: Sequence[Mapping[str, Any]], wanted: Sequence[tuple[str, str, str]]) -> list[Cell]:
    """Cells of a record that are wanted, and good."""
    names = [f.name for f in fields(Cell)]
    found = [Cell(**{**{n: line[n] for n in names}, "verdict": Verdict(**line["verdict"])}) for line in lines]
    return [c for c in found if c.good and (c.kind, c.step, c.fault) in wanted]


def failures(lines: Sequence[Mapping[str, Any]], wanted: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
    """Cells of a record that were wanted, and were not good: striking them again must not make them forgotten."""
    names = ("kind", "step", "fault", "outcome", "detail", "commit")
    good = {id(line) for line in lines if recorded([line], wanted)}
    return [
        {n: str(line[n]) for n in names}
        for line in lines
        if id(line) not in good and (line["kind"], line["step"], line["fault"]) in wanted
    ]


def conclude(
    found: Sequence[Cell],
    left_out: int = 0,
    commits: Sequence[str] = (),
    failed: Sequence[Mapping[str, str]] = (),
    bench: str = "rescale_faults",
) -> int:
    """`failed`: cells that were struck before and were not good, also by other code than that of the last commit."""
    goals = {
        "every_plan_ends_by_itself": all(c.ended for c in found) and bool(found),
        "what_runs_is_as_the_outcome_says": all(c.as_said for c in found),
        "nothing_lost_or_doubled": all(c.verdict.exact for c in found),
        "every_cell_was_struck": not left_out,
        "no_cell_of_this_code_failed_before": not any(f["commit"] == commits[-1] for f in failed),
    }
    outcomes = {
        fault: dict(Counter(c.came_to for c in found if c.fault == fault)) for fault in dict.fromkeys(c.fault for c in found)
    }
    print(table(found))
    finish(
        bench,
        {
            "cells": [{**asdict(c), "good": c.good} for c in found],
            "plans": sum(not c.went_on for c in found),
            "outcomes": outcomes,
            "good": sum(c.good for c in found),
            "of": len(found),
            "left_out": left_out,
            "commits": list(commits),
            "failed_before": list(failed),
            "goals": goals,
        },
    )
    return exit_code(goals)


@contextlib.contextmanager
def bed(stack: Stack, folder: Path, name: str = "faults", **tunables: Any) -> Iterator[Bed]:
    """On services that are up."""
    with Carrier(stack.env, folder, **tunables) as carrier, Rescaled(stack, YAML.format(name=name), OPERATOR) as line:
        found = Bed(stack, line, carrier)
        found.begin()
        yield found
        found.feed.finish()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=among([str(k) for k in Kind]), default=[str(k) for k in Kind])
    parser.add_argument("--steps", type=among(sorted({s for k in Kind for s in steps(k)})), help="of all kinds (default: all)")
    parser.add_argument("--faults", type=among(FAULTS), default=list(FAULTS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no cell after this long")
    parser.add_argument("--record", type=Path, help="JSON lines to go on from, and to add to")
    args = parser.parse_args(argv)
    wanted, record, began = cells(args.kinds, args.steps, args.faults), Record(args.record), time.monotonic()
    found, failed = recorded(record.lines, wanted), failures(record.lines, wanted)
    known = {(c.kind, c.step, c.fault) for c in found}
    with changeable_policy(), scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=("postgres", "kafka", "spark"))
        try:
            say("starting the services")
            stack.up()
            with bed(stack, folder / "carrier") as under:
                for kind, row, fault in rows([cell for cell in wanted if cell not in known]):
                    left = row
                    while left and time.monotonic() - began <= 60 * args.minutes:
                        new = under.struck(kind, left, fault)
                        found, left = [*found, *new], left[len(new) :]
                        for cell in new:
                            record.add(asdict(cell))
                        for line in table(new).splitlines()[2:]:
                            say(f"{len(found)} of {len(wanted)}: {line}")
        finally:
            say("stopping the services")
            stack.clean()
    order = {cell: number for number, cell in enumerate(wanted)}
    found.sort(key=lambda c: order[c.kind, c.step, c.fault])
    return conclude(found, len(wanted) - len(found), record.commits(), failed)


def among(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return text.split(",")

    return parse


if __name__ == "__main__":
    sys.exit(main())
