"""The commands, by group. Everything heavy is imported inside the command that needs it."""

from __future__ import annotations

from typing import Annotated

import typer

from spillway.cli import capacity, decide, quality, rescale, running, services, simulate, topics, topology
from spillway.cli.guard import Guarded

app = typer.Typer(
    name="spillway",
    cls=Guarded,
    help="Keeps streaming pipelines inside their promises under overload.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"spillway {version('spillway')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Keeps streaming pipelines inside their promises under overload."""


app.add_typer(topology.app, name="topology")
app.add_typer(decide.app, name="decide")
running.register(app)
quality.register(app)
capacity.register(app)
rescale.register(app)
topics.register(app)
services.register(app)
simulate.register(app)
