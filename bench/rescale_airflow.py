"""What becomes of a plan to rescale that Airflow carries out, when its scheduler dies with every task it runs.

Airflow is among the services: `spillway_streams` starts the application, `spillway_rescale` takes the steps. A plan of each kind
is asked for, and at every step that it is seen at, the scheduler and all its processes are killed with -9. The embedded services
start another one, as a container's restart policy would; nobody else helps. What is asked of the plans and of the events is what
`rescale_faults` asks, which kills everything else, and holds plans at their steps so that it misses none.

    make bench NAME=rescale_airflow
    make bench NAME=rescale_airflow ARGS="--kinds restart,handover"
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import psutil
from _carrier import TUNABLES
from _common import Record, say
from _line import changeable_policy
from _rescale import Rescaled
from rescale_faults import OPERATOR, YAML, Bed, Cell, among, change, conclude, failures, recorded, steps
from spillway.embedded import Stack
from spillway.embedded.__main__ import ALL
from spillway.embedded.owner import scratch
from spillway.model.rescale import Kind

FAULT, SCHEDULER = "airflow", "airflow-scheduler"
PLAN_LIMIT_S = 1_800.0
POLICY = {**TUNABLES, "rescale_interval_s": 10.0, "streams_interval_s": 10.0}


def kill_scheduler(stack: Stack) -> int:
    """With all that it runs. Returns how many processes that were."""
    stack.wait_healthy(SCHEDULER)
    first = psutil.Process(stack.pids()[SCHEDULER])
    members = [first, *first.children(recursive=True)]
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(members, timeout=10)
    return len(members)


def struck(bed: Bed, stack: Stack, kind: str) -> list[Cell]:
    """One plan, with a kill at every step that it is seen at."""
    line, began, before = bed.line, time.monotonic(), bed.line.now_has()
    wanted, reached = change(kind, before), list[str]()
    outcome, detail, as_said = "stuck", "", False
    try:
        number = line.ask(kind, **wanted).id
        while (plan := line.plan(number)).open and time.monotonic() - began < PLAN_LIMIT_S:
            at = plan.at
            if at is not None and plan.state == "running" and at.step not in reached:
                reached.append(at.step)
                say(f"{kind}, {at.step}: killed Airflow's scheduler, {kill_scheduler(stack)} processes")
            time.sleep(0.1)
        outcome, detail = ("stuck", f"at {plan.at and plan.at.step}") if plan.open else (plan.state, plan.detail)
        as_said = not plan.open and bed.runs_as(plan, before, wanted)
    except (AssertionError, TimeoutError, RuntimeError) as error:
        detail = f"{detail}; {error}".strip("; ")
    return bed.judged(kind, FAULT, reached or steps(kind)[:1], began, outcome, detail, as_said)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=among([str(k) for k in Kind]), default=[str(k) for k in Kind])
    parser.add_argument("--record", type=Path, help="JSON lines to go on from, and to add to")
    args = parser.parse_args(argv)
    record = Record(args.record)
    every = [(kind, step, FAULT) for kind in args.kinds for step in steps(kind)]
    found, failed = recorded(record.lines, every), failures(record.lines, every)
    left = [kind for kind in args.kinds if not any(c.kind == kind for c in found)]
    with changeable_policy(POLICY), scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=ALL)
        try:
            say(f"starting {', '.join(ALL)}")
            stack.up()
            with Rescaled(stack, YAML.format(name="faults"), OPERATOR) as line:
                bed = Bed(stack, line)
                bed.begin()
                for kind in left:
                    new = struck(bed, stack, kind)
                    found += new
                    for cell in new:
                        record.add(asdict(cell))
                    stack.wait_healthy(SCHEDULER)
                bed.feed.finish()
        finally:
            say("stopping the services")
            stack.clean()
    missed = [kind for kind in args.kinds if len([c for c in found if c.kind == kind]) < len(steps(kind)) // 2]
    return conclude(found, len(missed), record.commits(), failed, bench="rescale_airflow")


if __name__ == "__main__":
    sys.exit(main())
