"""`spillway rescale | plans`: ask for another size of an operator, follow how it is carried out, look at what was done."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.guard import BadInput, Failed
from spillway.cli.who import me

if TYPE_CHECKING:
    from spillway.model.rescale_plan import RescalePlan
    from spillway.store.rescale import Plan, Step

KINDS = "restart, executors, handover or shadow"
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
PACE_S = 0.5
NOBODY_S = 75.0
"""A plan that nobody has begun by then: spillway_rescale does not run."""
INTERRUPTED = 130
MARKS = {"done": "✓", "running": "…", "failed": "✗", "undone": "↶", "waiting": " "}


def rescale(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]")] = None,
    operator: Annotated[str | None, typer.Argument(metavar="[OPERATOR]")] = None,
    to: Annotated[int | None, typer.Option("--to", metavar="N", help="executors of its application")] = None,
    buckets: Annotated[int | None, typer.Option(metavar="K", help="partitions of its state")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="where its application is to run; any: on all of them")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"{KINDS} (default: the planner's choice)")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and ask for nothing")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not follow its steps")] = False,
    cancel: Annotated[int | None, typer.Option(metavar="PLAN", help="take back a plan that has not changed anything yet")] = None,
    timeout: Annotated[str, typer.Option(help="longest to follow it, such as 90s or 30m")] = "60m",
    as_json: Json = False,
) -> None:
    """Give an operator other executors, buckets or another node, without losing anything.

    Prints the plan with the pause it expects, and follows its steps. Ctrl-C leaves the plan running."""
    from spillway.store import rescale as store
    from spillway.store import session

    if cancel is not None:
        if pipeline or operator or to or buckets or node or kind:
            raise BadInput("--cancel takes back one plan: give nothing else.")
        with session("control") as conn:
            found = store.cancel(conn, cancel, me())
        typer.echo(f"{found} is {'being rolled back' if found.open else 'taken back'}")
        return
    if pipeline is None or operator is None:
        raise BadInput("give PIPELINE and OPERATOR, such as `spillway rescale taxi heavy --to 4`, or --cancel PLAN.")
    if to is None and buckets is None and node is None and kind is None:
        raise BadInput(
            f"say what {operator} is to have: --to N executors, --buckets K or --node NODE; --kind restart does it as it is."
        )
    limit_s = _seconds(timeout)
    planned = _planned(pipeline, operator, to, buckets, node, kind)
    if not planned.changes:
        typer.echo(planned.words)
        return
    if as_json and dry_run:
        typer.echo(planned.to_json())
        return
    if not as_json:
        for line in explain(planned):
            typer.echo(line)
    if dry_run:
        return
    with session("control") as conn:
        plan = store.request(conn, pipeline, planned, by=me())
    if not as_json:
        typer.echo(f"plan {plan.id} is asked for; `spillway plans {pipeline}` shows it")
    if not no_wait:
        plan = _follow(plan, limit_s, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(store.as_dict(plan), indent=2))
    if not no_wait and plan.state != "done":
        raise Failed(f"{plan} is {plan.state.replace('_', ' ')}: {plan.detail.rstrip('.')}.")


def _planned(
    pipeline: str, operator: str, to: int | None, buckets: int | None, node: str | None, kind: str | None
) -> RescalePlan:  # fmt: skip
    from spillway.decide.rescale import plan_request
    from spillway.model.rescale import Kind, Request
    from spillway.model.rescale_plan import Answer
    from spillway.policy import Policy
    from spillway.store import Refused, session
    from spillway.store.rescale_world import world

    if kind is not None and kind not in list(Kind):
        raise BadInput(f"{kind} is not a way to rescale: give {KINDS}.")
    for option, value in (("--to", to), ("--buckets", buckets)):
        if value is not None and value < 1:
            raise BadInput(f"{option} {value} is not possible: give 1 or more.")
    with session("read") as conn:
        known = world(conn, pipeline, now=datetime.now(UTC))
    request = Request(operator=operator, to=to, buckets=buckets, node=node, kind=Kind(kind) if kind else None)
    planned = plan_request(known, request, Policy.load())
    if planned.answer is Answer.REFUSED:
        words = planned.words
        raise Refused(f"operator {operator} of pipeline {pipeline} is not rescaled: {words}{'' if words.endswith('?') else '.'}")
    return planned


def explain(plan: RescalePlan) -> list[str]:
    """A plan in words, one line each."""
    said = [plan.words]
    changes = [
        f"executors {plan.executors_from} → {plan.executors_to}" if plan.executors_from != plan.executors_to else "",
        f"buckets {plan.buckets_from} → {plan.buckets_to}" if plan.rebuckets else "",
        f"node {plan.node_from or 'any'} → {plan.node_to or 'any'}" if plan.moves else "",
    ]
    said.append(f"  application {plan.application}: {', '.join(c for c in changes if c) or 'started again as it is'}")
    pause = "not known" if plan.expected_pause_s is None else f"about {plan.expected_pause_s:.1f} s"
    said.append(f"  by {plan.kind}, with a pause of {pause}")
    if plan.expected_rate is not None:
        before = "" if plan.rate_before is None else f" instead of {plan.rate_before:.0f}"
        said.append(f"  {plan.operator} should then carry {plan.expected_rate:.0f} rows/s{before}")
    said += [f"  {one.stage}: {one.before} → {one.after}, {one.words}" for one in plan.passes]
    said.append(f"  steps: {', '.join(plan.steps)}")
    return said


def plans(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="how many of the newest")] = 20,
    steps: Annotated[bool, typer.Option("--steps", help="with the steps of each")] = False,
    as_json: Json = False,
) -> None:
    """List plans to rescale operators of a pipeline, and what came of them."""
    from spillway.store import pipelines, session
    from spillway.store import rescale as store

    with session("read") as conn:
        pipelines.load(conn, pipeline)
        found = store.plans(conn, pipeline, limit=limit)
    if as_json:
        typer.echo(json.dumps([store.as_dict(plan) for plan in found], indent=2))
        return
    for plan in reversed(found):
        typer.echo(_line(plan))
        for step in plan.steps if steps else ():
            typer.echo(f"          {_step_line(step)}")
    if not found:
        typer.echo(f"no operator of {pipeline} was rescaled yet: see `spillway rescale {pipeline} OPERATOR --to N --dry-run`")


def _line(plan: Plan) -> str:
    state = f"at {plan.step}" if plan.state == "running" else plan.state.replace("_", " ")
    said = [
        f"{plan.id:>6}  {plan.requested_at:%Y-%m-%d %H:%M:%S}Z  {plan.operator:<14} {plan.kind:<9} {state:<15} {plan.changes}"
    ]
    if (pause := plan.observed.get("pause_s")) is not None:
        expected = plan.expected.get("pause_s")
        said.append(f"pause {pause:.1f} s" + (f" ({expected:.1f} s expected)" if expected is not None else ""))
    if (effective := plan.observed.get("effective")) is not None:
        said.append("effective" if effective else "ineffective")
    if plan.state in ("rolled_back", "failed"):
        said.append(plan.detail)
    return "; ".join([*said, f"[{plan.requested_by}]"])


def _step_line(step: Step) -> str:
    took = ""
    if step.began_at is not None and step.ended_at is not None:
        took = f"{(step.ended_at - step.began_at).total_seconds():.1f} s"
    return f"{MARKS[step.state]} {step.step:<14} {took:>8}  {step.detail}"


def _follow(plan: Plan, limit_s: float, *, quiet: bool) -> Plan:
    """Shows the steps as they go, until the plan has ended; an absent Postgres is waited out as well."""
    from spillway.cli.show import Progress
    from spillway.store import Unavailable, session
    from spillway.store.rescale import by_id

    began = time.monotonic()
    with Progress(quiet=quiet) as progress:
        try:
            while True:
                waited = time.monotonic() - began
                try:
                    with session("read", application_name="spillway-rescale") as conn:
                        plan = by_id(conn, plan.id) or plan
                    trouble = ""
                except Unavailable as error:
                    trouble = str(error)
                if not trouble and plan.state == "planned" and waited > NOBODY_S:
                    trouble = "nobody has begun it yet: is the DAG spillway_rescale paused in Airflow?"
                progress.show([*map(_shown, plan.steps)], _foot(plan, waited, trouble))
                if not plan.open:
                    return plan
                if waited > limit_s:
                    raise Failed(f"{plan} is still under way after {limit_s:g} s, at step {plan.step or plan.state}; it goes on.")
                time.sleep(PACE_S)
        except KeyboardInterrupt:
            back = "" if plan.beyond_return else f"; `spillway rescale --cancel {plan.id}` takes it back"
            typer.echo(f"{plan} goes on without you: `spillway plans {plan.pipeline}` shows it{back}.", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _shown(step: Step) -> tuple[str, str]:
    return step.state, _step_line(step)


def _foot(plan: Plan, waited_s: float, trouble: str) -> str:
    if trouble:
        return f"[{waited_s:5.1f}s] {trouble}"
    if plan.state == "done":
        return f"[{waited_s:5.1f}s] done: {plan.detail}"
    if plan.open:
        return f"[{waited_s:5.1f}s] {plan.state.replace('_', ' ')}{f': {plan.detail}' if plan.state == 'rolling_back' else ''}"
    return f"[{waited_s:5.1f}s] {plan.state.replace('_', ' ')}"


def _seconds(text: str) -> float:
    from spillway.topology.section import parse_duration

    seconds = parse_duration(text)
    if not seconds:
        raise BadInput(f"--timeout {text} is not a duration: give a number with a unit, such as 90s or 30m.")
    return seconds


def register(app: typer.Typer) -> None:
    for command in (rescale, plans):
        app.command()(command)
