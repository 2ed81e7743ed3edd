"""`spillway simulate FILE`: a scenario on the twin, without any service."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.guard import BadInput

if TYPE_CHECKING:
    from spillway.policy import Policy
    from spillway.simulate.against import Comparison, Error
    from spillway.simulate.run import Run
    from spillway.simulate.scenario import TwinScenario
    from spillway.simulate.verdict import QueryVerdict, Verdict

PAPER = "paper"


class Control(StrEnum):
    SPILLWAY = "with control"
    PAPER = "with the papers' control"
    NOBODY = "without control"


def simulate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a scenario of the twin, such as scenarios/twin/rush_hour.yaml")],
    policy: Annotated[
        str | None,
        typer.Option(metavar="paper|FILE", help="a policy file instead of the scenario's own, or the papers' literal cycle"),
    ] = None,
    no_control: Annotated[bool, typer.Option("--no-control", help="nobody decides: every edge keeps everything")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="another course of chance than the scenario's")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="draw rate, lag, keep and accuracy (.png, .svg)")] = None,
    record: Annotated[str | None, typer.Option(metavar="FILE", help="write the run as a recording")] = None,
    against: Annotated[
        str | None, typer.Option(metavar="FILE", help="play a recorded run instead, and print the twin's error")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Play a scenario on the twin: no services, seconds instead of minutes.

    Exit code 1 when a promise was broken."""
    from spillway.inject.scenario import ScenarioError
    from spillway.policy import Policy
    from spillway.simulate.scenario import load

    try:
        scenario = load(file)
    except ScenarioError as error:
        raise BadInput(str(error)) from None
    paper = policy == PAPER
    rules = Policy.load(policy, {}) if policy and not paper else scenario.policy
    chance = scenario.seed if seed is None else seed
    if against is not None:
        if no_control or paper or plot or record:
            raise BadInput(
                "--against plays the keeps of the recording: leave out --no-control, --policy paper, --plot and --record."
            )
        _compare(scenario, rules, chance, against, as_json)
    else:
        if plot:
            _can_be_written(plot)
        who = Control.NOBODY if no_control else Control.PAPER if paper else Control.SPILLWAY
        _play(scenario, rules, chance, who, plot, record, as_json)


def _can_be_written(plot: str) -> None:
    """Said before anything is played."""
    from spillway.plot import PlotError, check_path

    try:
        check_path(plot)
    except PlotError as error:
        raise BadInput(str(error)) from None


def _play(
    scenario: TwinScenario, policy: Policy, seed: int, who: Control, plot: str | None, record: str | None, as_json: bool
) -> None:
    from functools import partial

    from spillway.decide.qod import decide
    from spillway.simulate.recording import record as recorded
    from spillway.simulate.run import play
    from spillway.simulate.verdict import LAG_LIMIT_S, verdict

    controller = None if who is Control.NOBODY else partial(decide, paper=who is Control.PAPER)
    run = play(scenario.world, policy, duration_s=scenario.duration_s, seed=seed, controller=controller)
    found = verdict(run)
    if plot:
        from spillway.plot import PlotError, draw
        from spillway.simulate.table import marks, samples

        title = f"{scenario.name} on the twin, {who}"
        try:
            draw(samples(run), plot, title=title, marks=marks(run), lag_limit_s=LAG_LIMIT_S)
        except PlotError as error:
            raise BadInput(str(error)) from None
    if record:
        made = recorded(run, source=f"twin, scenario {scenario.name}, seed {seed}, {who}")
        _write(record, made.to_json() + "\n")
    if as_json:
        typer.echo(json.dumps(_document(scenario, seed, who, run, found), indent=2))
    else:
        _print(scenario, who, run, found)
        for what, where in (("figure", plot), ("recording", record)):
            if where:
                typer.echo(f"{what}: {where}")
    if not found.kept:
        raise typer.Exit(1)


def _document(scenario: TwinScenario, seed: int, who: Control, run: Run, found: Verdict) -> dict[str, object]:
    return {
        "scenario": scenario.name,
        "seed": seed,
        "control": who.name.lower(),
        "seconds": run.cycles[-1].window.end_s,
        "cycles": len(run.cycles),
        **found.as_dict(),
        "moves": [
            {"t_s": t, "operator": m.operator, "instance": m.instance, "from": m.source, "to": m.target, "reason": m.reason}
            for t, m in run.moves
        ],
        "infeasible": [{"t_s": t, "queries": list(queries)} for t, queries in run.infeasible],
    }


def _print(scenario: TwinScenario, who: Control, run: Run, found: Verdict) -> None:
    from rich.markup import escape
    from rich.table import Table

    from spillway.cli.show import console

    out = console()
    cycles, seconds = len(run.cycles), run.cycles[-1].window.end_s
    out.print(f"[bold]{scenario.name}[/]: {escape(scenario.description)}", highlight=False, soft_wrap=True)
    out.print(f"{seconds:g} s in {cycles} cycles of {run.policy.qod_cycle_s:g} s, {who}", highlight=False)
    table = Table("query", "priority")
    for name in ("offered", "processed", "accuracy min", "mean", "floor", "lag max", "recovered"):
        table.add_column(name, justify="right")
    for query in found.queries:
        table.add_row(*_row(query))
    out.print(table)
    for t_s, move in run.moves:
        line = f"{t_s:6.0f} s  {move.operator}[{move.instance}] moves from {move.source} to {move.target}: {move.reason}"
        out.print(escape(line), highlight=False, soft_wrap=True)
    for t_s, queries in run.infeasible[:1]:
        line = f"{t_s:6.0f} s  the floors do not fit: {', '.join(queries)} (in {len(run.infeasible)} of {_cycles(cycles)})"
        out.print(escape(line), highlight=False, soft_wrap=True)
    color = "green" if found.kept else "red"
    out.print(
        f"[{color}]verdict: {'kept' if found.kept else 'broken'}[/]: {escape(found.sentence)}", highlight=False, soft_wrap=True
    )


def _row(query: QueryVerdict) -> tuple[str, ...]:
    from spillway.simulate.verdict import LAG_LIMIT_S

    accuracy = f"{query.accuracy_min:.2f}"
    if query.below_cycles:
        accuracy = f"[red]{accuracy}[/]"
    lag = f"{query.lag_max_s:,.1f} s"
    if query.lag_max_s > LAG_LIMIT_S:
        lag += f" (late {_cycles(query.late_cycles)})"
    recovered = "–" if not query.rushed else "no" if query.recovered is None else f"after {_cycles(query.recovered)}"
    return (
        query.query,
        str(query.priority),
        f"{query.offered:,}",
        f"{query.processed:,}",
        accuracy,
        f"{query.accuracy_mean:.2f}",
        f"{query.floor:g}",
        lag,
        recovered,
    )


def _cycles(count: int) -> str:
    return f"{count} cycle{'' if count == 1 else 's'}"


def _compare(scenario: TwinScenario, policy: Policy, seed: int, file: str, as_json: bool) -> None:
    from spillway.simulate.against import against
    from spillway.simulate.recording import RecordingError, read

    try:
        found = against(scenario.world, policy, read(file), seed=seed)
    except RecordingError as error:
        raise BadInput(str(error)) from None
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
    else:
        _print_comparison(scenario, found)


def _print_comparison(scenario: TwinScenario, found: Comparison) -> None:
    from rich.markup import escape
    from rich.table import Table

    from spillway.cli.show import console

    out = console()
    what = escape(found.source or "a recorded run")
    out.print(f"the twin of [bold]{scenario.name}[/] against {what}, {found.cycles} cycles", highlight=False)
    table = Table("operator", "measure")
    for name in ("recorded mean", "mean error", "bias", "worst", "cycles"):
        table.add_column(name, justify="right")
    for operator in found.operators:
        for measure, unit, error in (
            ("lag", "s", operator.lag_s),
            ("accuracy", "", operator.accuracy),
            ("cpu", "%", operator.cpu),
        ):
            table.add_row(operator.operator, measure, *_error(error, unit))
        table.add_section()
    out.print(table)


def _error(error: Error | None, unit: str) -> tuple[str, ...]:
    if error is None:
        return "–", "–", "–", "–", "0"
    digits = 3 if not unit else 1
    values = (error.recorded, error.mean, error.bias, error.worst)
    return (*(f"{value:.{digits}f} {unit}".rstrip() for value in values), str(error.cycles))


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


def register(app: typer.Typer) -> None:
    app.command()(simulate)
