"""`spillway up | down | services | logs | migrate | inject | bench | demo`: what is around the pipelines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from spillway.cli.guard import BadInput, Failed

ROOT = Path(__file__).resolve().parents[3]
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def up(
    only: Annotated[str | None, typer.Option("--services", help="which, separated by commas (default: all)")] = None,
) -> None:
    """Start the embedded services and wait until they are healthy."""
    _embedded(["up", *(["--services", only] if only else [])])


def down() -> None:
    """Stop the embedded services and leave no process."""
    _embedded(["down"])


def services() -> None:
    """Show the embedded services."""
    _embedded(["status"])


def logs(
    name: Annotated[str, typer.Argument(metavar="SERVICE")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=1)] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow")] = False,
) -> None:
    """Show the end of a service's log."""
    _embedded(["logs", "-n", str(lines), *(["-f"] if follow else []), "--", name])


def migrate() -> None:
    """Bring the database schema up to date."""
    from spillway.store.migrate import migrate as run

    applied = run()
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("the database is up to date")


def inject(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="a scenario file, such as scenarios/rush_hour.yaml")],
    as_json: Annotated[bool, typer.Option("--json", help="print the report as one JSON object")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no line per second")] = False,
) -> None:
    """Play a scenario file into Kafka."""
    from spillway.inject.player import main_play
    from spillway.store.environment import require

    raise typer.Exit(main_play(scenario, bootstrap=require("SPILLWAY_KAFKA"), as_json=as_json, quiet=quiet))


def bench(ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Run a benchmark of bench/, with its arguments."""
    known = sorted(f.stem for f in (ROOT / "bench").glob("*.py") if not f.stem.startswith("_"))
    if name not in known:
        raise BadInput(f"there is no benchmark {name}: there are {', '.join(known) or 'none'}.")
    raise typer.Exit(subprocess.run([sys.executable, str(ROOT / "bench" / f"{name}.py"), *ctx.args], check=False).returncode)


def demo(keep: Annotated[bool, typer.Option("--keep", help="leave everything up afterwards")] = False) -> None:
    """Run a taxi pipeline through rush hour, ending in a verdict."""
    from spillway.demo.run import run

    raise typer.Exit(run(keep_up=keep) or 0)


def register(app: typer.Typer) -> None:
    for command in (up, down, services, logs, migrate, inject, demo):
        app.command()(command)
    app.command(context_settings=PASS_ON)(bench)


def _embedded(argv: list[str]) -> None:
    from spillway.embedded import EmbeddedError
    from spillway.embedded.__main__ import main

    try:
        raise typer.Exit(main(argv))
    except EmbeddedError as error:
        raise Failed(str(error)) from error
