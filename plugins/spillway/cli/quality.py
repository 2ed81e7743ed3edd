"""`spillway mode | decisions | why | replay`: what cycles may do, what they decided and why, and what they would have decided."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spillway.cli.guard import BadInput
from spillway.cli.who import me
from spillway.model.qod import shortage

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.act.replay import Comparison
    from spillway.model.window import Interval
    from spillway.store.decisions import Stored

Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
SHOWN = 40


def mode(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]")] = None,
    value: Annotated[str | None, typer.Argument(metavar="[MODE]", help="off, advise or apply")] = None,
) -> None:
    """Show or set what cycles do with a pipeline.

    off: leave it alone. advise: decide and store, publish nothing. apply: publish what was decided."""
    from spillway.store import pipelines, session

    if value is None:
        with session("read") as conn:
            found = pipelines.modes(conn)
            if pipeline is not None and pipeline not in found:
                raise pipelines.unknown(conn, pipeline)
        for name, its in found.items():
            if pipeline in (None, name):
                typer.echo(f"{name}  {its}")
        return
    assert pipeline is not None
    with session("control") as conn:
        changed = pipelines.set_mode(conn, pipeline, value, me())
        shedding = _shedding(conn, pipeline) if value != "apply" else []
    typer.echo(f"the mode of {pipeline} {'is' if changed else 'was already'} {value}")
    if shedding:
        typer.echo(f"still in force: {', '.join(shedding)}; `spillway keep {pipeline} --clear` keeps everything again")


def _shedding(conn: Any, pipeline: str) -> list[str]:
    from spillway.store import settings
    from spillway.store.pipelines import load

    keeps = settings.effective(load(conn, pipeline), settings.current(conn, pipeline))
    return [f"keep {keep:g} of {edge}" for edge, keep in keeps.items() if keep < 1.0]


def decisions(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=10_000, help="how many of the newest")] = 20,
    replay: Annotated[str, typer.Option(metavar="NAME", help="those of a replay instead of the live ones")] = "",
    observation: Annotated[
        int | None, typer.Option(metavar="ID", help="print what decision ID was made on, as `spillway decide` reads it")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what was decided."""
    from spillway.store import session
    from spillway.store.decisions import recent
    from spillway.store.pipelines import modes, unknown

    with session("read") as conn:
        if observation is not None:
            typer.echo(json.dumps(_world(conn, observation)))
            return
        found = recent(conn, pipeline=pipeline, limit=limit, replay=replay)
        if pipeline is not None and not found and pipeline not in modes(conn):
            raise unknown(conn, pipeline)
    if as_json:
        typer.echo(json.dumps([_as_dict(d) for d in found], indent=2))
        return
    for d in reversed(found):
        typer.echo(f"{d.id:>8}  {d.interval_end:%Y-%m-%d %H:%M:%S}Z  {d.pipeline:<16} {d.mode:<7} {d.status:<10} {_line(d)}")
    if not found:
        typer.echo("nothing was decided yet: see `spillway mode`, and the DAG spillway_qod in Airflow")


def _world(conn: Any, decision: int) -> dict[str, Any]:
    from spillway.store import Refused
    from spillway.store.decisions import QOD, by_id, seen_by

    stored = by_id(conn, decision)
    seen = seen_by(conn, stored.observation) if stored and stored.observation is not None else None
    if stored is None or seen is None:
        raise Refused(f"there is no observation of decision {decision}: `spillway decisions` lists what there is.")
    if seen.refused:
        see = f"`spillway {'why' if stored.kind == QOD else 'bottleneck'} {stored.pipeline} --decision {decision}` tells why"
        read = f"`spillway decide {stored.kind}`"
        raise Refused(f"decision {decision} was refused for what was observed, which {read} does not read: {see}.")
    return seen.body


def _line(decision: Stored) -> str:
    if decision.status in ("refused", "failed") or decision.output is None:
        return decision.reason
    queries = ", ".join(f"{name} {q['desired']:.3g}" for name, q in decision.output["queries"].items())
    below = decision.output["infeasible"]
    return queries + (f"  INFEASIBLE for {', '.join(below['queries'])}" if below else "")


def why(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    edge: Annotated[str | None, typer.Argument(metavar="[EDGE]", help="producer:consumer, or topic:consumer")] = None,
    decision: Annotated[int | None, typer.Option("--decision", metavar="ID", help="an earlier one than the last")] = None,
    as_json: Json = False,
) -> None:
    """Explain the last decision on a pipeline."""
    from spillway.store import Refused, pipelines, session
    from spillway.store.decisions import QOD, by_id, gate_failures, recent

    with session("read") as conn:
        spec = pipelines.load(conn, pipeline)
        if edge is not None and edge not in [e.name for e in spec.edges]:
            raise Refused(f"pipeline {pipeline} has no edge {edge}: its edges are {', '.join(e.name for e in spec.edges)}.")
        found = by_id(conn, decision) if decision is not None else next(iter(recent(conn, pipeline=pipeline, limit=1)), None)
        if found is None or found.pipeline != pipeline:
            its = pipelines.modes(conn).get(pipeline)
            off = f": its mode is off, see `spillway mode {pipeline} advise`" if its == "off" else ""
            raise Refused(f"there is no {'such ' if decision is not None else ''}decision on {pipeline}{off}.")
        if found.kind != QOD:
            raise Refused(
                f"decision {found.id} is not on what edges keep: see `spillway bottleneck {pipeline} --decision {found.id}`."
            )
        failures = gate_failures(conn, found.id)
    if as_json:
        typer.echo(json.dumps({**_as_dict(found), "gates": _plain(failures)}, indent=2))
        return
    for line in explain(found, failures, edge):
        typer.echo(line)


def explain(decision: Stored, failures: list[dict[str, Any]], edge: str | None = None) -> list[str]:
    """A decision in words, one line each."""
    window = f"{decision.interval_start:%H:%M:%S} to {decision.interval_end:%H:%M:%S}Z"
    when = f", in force since {decision.published_at:%H:%M:%S}Z" if decision.published_at else ""
    said = [
        f"decision {decision.id} on {decision.pipeline} by what was measured from {window} on {decision.interval_end:%Y-%m-%d}: "
        f"{decision.status} (mode {decision.mode}{when})"
    ]
    if decision.reason:
        said.append(f"  because {decision.reason}")
    said += [f"  {f['gate']} gate, {f['rule']}: {json.dumps(f['evidence'])}" for f in failures]
    output = decision.output
    if output is None:
        return said
    for e in output["edges"]:
        if edge in (None, e["name"]):
            said.append(f"  {e['name']}  {e['keep']:.4g}  {e['reason']}")
    if edge is not None:
        return said
    for name, q in output["queries"].items():
        possible = "" if q["possible"] is None else f", {q['possible']:.4g} is possible"
        said.append(f"  query {name} gets accuracy {q['desired']:.4g} (floor {q['floor']:g}, priority {q['priority']}{possible})")
    said += [f"  {m['operator']} should move from {m['from']} to {m['to']}: {m['reason']}" for m in output["moves"]]
    if below := output["infeasible"]:
        said.append(f"  INFEASIBLE for {', '.join(below['queries'])}: {shortage(below)}")
    said += [f"  missing: {field}" for field in output["missing"]]
    if decision.verified:
        said.append(
            f"  afterwards: {decision.verified['verdict']}" + "".join(f"; {m}" for m in decision.verified.get("missed", ()))
        )
    return said


def replay(
    since: Annotated[
        str, typer.Option("--from", metavar="T", help="begin: 2026-05-01T12:00 (UTC), or how long ago, such as 60m")
    ],
    to: Annotated[str | None, typer.Option("--to", metavar="T", help="end, in the same way (default: now)")] = None,
    policy: Annotated[str | None, typer.Option(metavar="FILE", help="another policy than the one in force")] = None,
    pipeline: Annotated[str | None, typer.Option(metavar="P", help="show this one only")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="under which to store it (default: by the policy)")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="draw keep and accuracy of both (.png, .svg)")] = None,
    as_json: Json = False,
) -> None:
    """Decide past windows once more, and show the difference.

    Decisions are stored beside the historic ones; nothing that runs is touched."""
    from spillway.act.replay import compare, historic, intervals, samples
    from spillway.act.replay import replay as run_replay
    from spillway.policy import Policy
    from spillway.store import session
    from spillway.store.decisions import REPLAY, Run, oldest_measured, span

    now = datetime.now(UTC)
    rules = Policy.load(policy)
    settled = now - timedelta(seconds=rules.qod_settle_s)
    start, end = moment("--from", since, now), min(moment("--to", to, now) if to else now, settled)
    run = Run(origin=REPLAY, replay=name or f"replay-{Run(policy=rules).digest[:8]}", policy=rules)
    if start >= end or next(intervals(start, end, rules.qod_cycle_s), None) is None:
        raise BadInput(f"there is no whole window of {rules.qod_cycle_s:g} s between {_when(start)} and {_when(end)}.")
    if plot:
        _drawable(plot)
    began = time.monotonic()
    with session("control", application_name="spillway-replay") as conn:
        if pipeline is not None:
            from spillway.store.pipelines import load

            load(conn, pipeline)
        start = stored_from(start, end, oldest_measured(conn), rules.qod_cycle_s)
        progress = Progress(sum(1 for _ in intervals(start, end, rules.qod_cycle_s)))
        done = run_replay(conn, start, end, run, on_window=progress)
        before, after = historic(conn, start, end, run, pipeline), span(conn, run, start, end, pipeline)
    took_s = time.monotonic() - began
    found = compare(before, after)
    if plot:
        from spillway.plot import PlotError, draw

        try:
            draw(samples(start, before, after), plot, title=f"decisions from {start:%Y-%m-%d %H:%M} to {end:%H:%M} UTC")
        except PlotError as error:
            raise BadInput(str(error)) from None
    if as_json:
        document = {
            "replay": run.replay, "policy": run.digest, "from": start.isoformat(), "to": end.isoformat(), "windows": done,
            "seconds": round(took_s, 3), "differences": [d.as_dict() for d in found.differences],
            "accuracy": {query: {"was": was, "would_be": would} for query, (was, would) in found.kept.items()},
        }  # fmt: skip
        typer.echo(json.dumps(document, indent=2))
        return
    _print(found, run.replay, done, took_s)


def _drawable(plot: str) -> None:
    from spillway.plot import PlotError, check_path

    try:
        check_path(plot)
    except PlotError as error:
        raise BadInput(f"{error}.") from None


def stored_from(start: datetime, end: datetime, oldest: datetime | None, cycle_s: float) -> datetime:
    """`start`, or the window that the oldest measurement lies in: before that there is nothing to decide on, and it is said."""
    first = datetime.fromtimestamp(oldest.timestamp() // cycle_s * cycle_s, tz=UTC) if oldest else end
    if first <= start:
        return start
    if oldest is None or first + timedelta(seconds=cycle_s) > end:
        what = f"the oldest measurement is of {_when(oldest)}" if oldest else "nothing was measured yet"
        raise BadInput(f"there is nothing to replay between {_when(start)} and {_when(end)}: {what}.")
    typer.echo(f"nothing is stored from before {_when(first)}: the replay begins there", err=True)
    return first


class Progress:
    """Says now and then how far a replay is, to whoever waits for it."""

    def __init__(self, windows: int, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.windows, self.every_s, self.clock = windows, every_s, clock
        self.done, self.said = 0, clock()

    def __call__(self, interval: Interval) -> None:
        self.done += 1
        if self.clock() - self.said >= self.every_s:
            self.said = self.clock()
            typer.echo(f"{self.done} of {self.windows} windows, up to {_when(interval.end)}", err=True)


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _print(found: Comparison, name: str, windows: int, took_s: float) -> None:
    from rich.table import Table

    from spillway.cli.show import console

    out = console()
    if found.differences:
        table = Table("window ends", "pipeline", "edge", "was", "would be", "why")
        for d in found.differences[:SHOWN]:
            table.add_row(f"{d.at:%m-%d %H:%M:%S}Z", d.pipeline, d.edge, _keep(d.was), _keep(d.would_be), d.reason)
        out.print(table)
        if len(found.differences) > SHOWN:
            out.print(f"and {len(found.differences) - SHOWN} more: --json lists them all")
    if found.kept:
        means = Table("query", "mean accuracy decided", "replayed")
        for query, (was, would) in found.kept.items():
            means.add_row(query, _keep(was), _keep(would))
        out.print(means)
    out.print(
        f"{windows} windows in {took_s:.1f} s, stored as replay {name}: {len(found.differences)} keeps differ; "
        f"{found.only_historic} decisions only then, {found.only_replayed} only now",
        highlight=False,
    )


def _keep(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def moment(option: str, text: str, now: datetime) -> datetime:
    """A moment, in UTC where no zone is given, or how long ago it was.

    >>> moment("--from", "90s", datetime(2026, 5, 1, 12, tzinfo=UTC)).isoformat()
    '2026-05-01T11:58:30+00:00'
    """
    from spillway.topology.section import parse_duration

    try:
        if seconds := parse_duration(text):
            return now - timedelta(seconds=seconds)
        given = datetime.fromisoformat(text)
        return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"{option} {text} is no moment: give 2026-05-01T12:00 (UTC), or how long ago, such as 60m.") from None


def _as_dict(decision: Stored) -> dict[str, Any]:
    from dataclasses import asdict

    return dict(_plain(asdict(decision)))


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda v: v.isoformat()))


def register(app: typer.Typer) -> None:
    for command in (mode, decisions, why, replay):
        app.command()(command)
