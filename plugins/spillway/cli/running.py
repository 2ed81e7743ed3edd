"""`spillway start | stop | status | keep | reset | events`: ask for what should be, look at what is."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.guard import BadInput, Failed
from spillway.cli.who import me

if TYPE_CHECKING:
    from spillway.store.events import Told
    from spillway.store.settings import Setting

Pipeline = Annotated[str, typer.Argument(metavar="PIPELINE")]
Wait = Annotated[bool, typer.Option("--wait", help="follow the heartbeats until it is so")]
Timeout = Annotated[str, typer.Option(help="longest wait, such as 90s or 5m")]
MOST_EVENTS = 10_000


def start(pipeline: Pipeline, wait: Wait = False, timeout: Timeout = "3m") -> None:
    """Ask for a pipeline to run; spillway_streams launches it."""
    _desire(pipeline, "running", wait, timeout)


def stop(pipeline: Pipeline, wait: Wait = False, timeout: Timeout = "3m") -> None:
    """Ask for a pipeline to stop at a batch boundary."""
    _desire(pipeline, "stopped", wait, timeout)


def status(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Show pipelines, applications, batches, lag, keep and accuracy."""
    from spillway.policy import Policy
    from spillway.store import pipelines, session
    from spillway.store.status import status as read

    with session("read", application_name="spillway-status") as conn:
        found = read(conn, pipeline, fence_s=Policy.load().fence_s)
        if pipeline is not None and not found:
            raise pipelines.unknown(conn, pipeline)
    if as_json:
        typer.echo(json.dumps([p.as_dict() for p in found], indent=2))
    elif not found:
        typer.echo("no pipeline was applied yet: use `spillway topology apply FILE`")
    else:
        from spillway.cli.show import print_status

        print_status(found)


def keep(
    pipeline: Pipeline,
    edge: Annotated[str | None, typer.Argument(metavar="[EDGE]", help="producer:consumer, or topic:consumer")] = None,
    value: Annotated[float | None, typer.Argument(metavar="[VALUE]", help="share of events to keep, 0 to 1")] = None,
    ttl: Annotated[str | None, typer.Option(help="time to live, such as 60s; without it the keep stays")] = None,
    reason: Annotated[str, typer.Option(help="why, for the record")] = "by hand",
    clear: Annotated[bool, typer.Option("--clear", help="keep everything again, on EDGE or on all edges")] = False,
) -> None:
    """Set the share of events an edge keeps, or show what is set."""
    from spillway.model.topology import Silent
    from spillway.store import session, settings
    from spillway.store.pipelines import load, modes

    ttl_s = _seconds("--ttl", ttl) if ttl is not None else None
    if clear and value is not None:
        raise BadInput("--clear keeps everything: leave VALUE out.")
    if clear:
        with session("control") as conn:
            cleared = settings.clear(conn, pipeline, me(), edge)
        typer.echo(f"keeps everything again: {', '.join(cleared)}" if cleared else "nothing was set below 1")
        return
    if edge is None:
        with session("read") as conn:
            spec, found = load(conn, pipeline), settings.current(conn, pipeline)
        for name, share in settings.effective(spec, found).items():
            typer.echo(f"{name}  {share:g}{_origin(found.get(name))}")
        return
    if value is None and ":" not in edge:
        raise BadInput(f"{edge} is no edge: `spillway keep {pipeline} EDGE 0.5`; without EDGE and VALUE it shows the edges.")
    if value is None:
        raise BadInput(f"VALUE is missing: `spillway keep {pipeline} {edge} 0.5`, or --clear.")
    with session("control") as conn:
        published = settings.set_keep(conn, pipeline, edge, value, ttl_s, me(), reason)
        applied = modes(conn).get(pipeline) == "apply"
        silent = next(e.when_silent for e in load(conn, pipeline).edges if e.name == edge)
    until = f" for {ttl}, then {'everything is kept' if silent is Silent.OPEN else f'{value:g} is held'}" if ttl else ""
    typer.echo(f"keep of {edge} is {value:g}{until} (decision {published.setting.decision_id})")
    if published.warning:
        typer.echo(f"warning: {published.warning}", err=True)
    if applied:
        typer.echo(f"warning: the next cycle sets it anew; `spillway mode {pipeline} advise` leaves it to you", err=True)


def _origin(setting: Setting | None) -> str:
    if setting is None:
        return ""
    over = ", its time to live is over" if setting.expired else ""
    return f"  (decision {setting.decision_id}, {setting.issued_by}: {setting.reason}{over})"


def events(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on printing what comes")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=MOST_EVENTS, help="how many of the newest")] = 30,
) -> None:
    """Show what happened; dead letters of an edge in a row are one line, unless it follows."""
    from spillway.store import session
    from spillway.store.events import Told, fold, recent

    with session("read", application_name="spillway-events", autocommit=True) as conn:
        if not follow:
            for told in fold(recent(conn, limit=MOST_EVENTS, pipeline=pipeline))[-limit:]:
                typer.echo(_line(told))
            return
        last = 0
        while True:
            for event in recent(conn, limit=limit, after=last, pipeline=pipeline):
                last = event.id
                typer.echo(_line(Told(event=event, since=event.at)))
            limit = MOST_EVENTS
            time.sleep(1.0)


def _line(told: Told) -> str:
    event = told.event
    subject = "/".join(part for part in (event.pipeline, event.subject) if part)
    alike = f"  (the last of {told.count} since {told.since:%Y-%m-%d %H:%M:%S}Z)" if told.count > 1 else ""
    return f"{event.at:%Y-%m-%d %H:%M:%S}Z  {event.kind:<12} {subject:<28} {event.text}  [{event.actor}]{alike}"


def reset(
    pipeline: Pipeline,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Start a stopped operator anew, with another checkpoint."""
    from spillway.store import pipelines, session

    with session("control") as conn:
        pipelines.refuse_reset(conn, pipeline, operator)
        current = pipelines.in_force(conn, pipeline)
        conn.rollback()
        edges = current.pipeline.inputs(operator) if current else ()
        starting = "".join(f"\n    {edge.topic}: {edge.starting}" for edge in edges)
        typer.echo(
            f"operator {operator} of pipeline {pipeline} will start anew:\n"
            "  its state is lost\n"
            f"  its input is read from where `starting` says{starting}\n"
            "  its outputs and dead letters may repeat rows that are there already"
        )
        if not yes:
            typer.confirm("go on?", abort=True)
        checkpoint = pipelines.reset(conn, pipeline, operator, me())
    typer.echo(f"operator {operator} has the new checkpoint {checkpoint}: `spillway start {pipeline}` begins it")


def register(app: typer.Typer) -> None:
    for command in (start, stop, status, keep, reset, events):
        app.command()(command)


def _desire(pipeline: str, desired: str, wait: bool, timeout: str) -> None:
    from spillway.store import pipelines, session

    limit_s = _seconds("--timeout", timeout)
    with session("control") as conn:
        changed = pipelines.set_desired(conn, pipeline, "running" if desired == "running" else "stopped", me())
    typer.echo(f"pipeline {pipeline} {'should be' if changed else 'was already asked to be'} {desired}")
    if wait:
        _wait(pipeline, desired, limit_s)


def _wait(pipeline: str, desired: str, limit_s: float) -> None:
    """Prints each application's states as they change; an absent Postgres is waited out as well."""
    from spillway.policy import Policy
    from spillway.store import Unavailable, session
    from spillway.store.status import status as read

    began, shown, fence_s = time.monotonic(), dict[str, str](), Policy.load().fence_s
    while True:
        try:
            with session("read", application_name="spillway-wait") as conn:
                found = read(conn, pipeline, fence_s=fence_s)
        except Unavailable as error:
            found = []
            if shown.get("") != str(error):
                shown[""] = str(error)
                typer.echo(f"[{time.monotonic() - began:5.1f}s] {error}", err=True)
        for application in (a for p in found for a in p.applications):
            if shown.get(application.application) != application.state:
                shown[application.application] = application.state
                why = f": {application.detail}" if application.state == "failed" and application.detail else ""
                typer.echo(f"[{time.monotonic() - began:5.1f}s] {application.application} is {application.state}{why}")
        if found and all(p.settled for p in found):
            return
        if time.monotonic() - began > limit_s:
            late = [f"{a.application} is {a.state}" for p in found for a in p.applications if not a.settled]
            what = ", ".join(late) or "nothing is known"
            raise Failed(f"pipeline {pipeline} is not {desired} after {limit_s:g} s ({what}): see `spillway events {pipeline}`.")
        time.sleep(1.0)


def _seconds(option: str, text: str) -> float:
    from spillway.topology.section import parse_duration

    seconds = parse_duration(text)
    if not seconds:
        raise BadInput(f"{option} {text} is not a duration: give a number with a unit, such as 500ms, 60s or 5m.")
    return seconds
