"""`spillway decide qod [FILE|-]`: a decision as a command; nothing but the pure function runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spillway.cli.guard import BadInput

PAPER = "paper"

app = typer.Typer(help="Take a decision from a file, without any service.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def decide() -> None:
    """Take a decision from a file, without any service."""


@app.command()
def qod(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="an observation as JSON; - reads standard input")] = "-",
    policy: Annotated[
        str | None,
        typer.Option(metavar="paper|FILE", help="'paper' for the papers' literal cycle, or a policy file"),
    ] = None,
) -> None:
    """Print what every edge keeps and what moves, as one JSON object.

    The stored inputs of any past decision can be fed back to it. The formats are in docs/algorithms.md."""
    from spillway.decide.qod import decide
    from spillway.model.qod import Observation, ObservationError
    from spillway.policy import Policy

    paper = policy == PAPER
    rules = Policy.load(None if paper else policy)
    try:
        observation = Observation.from_json(_read(file))
    except ObservationError as error:
        words = str(error)
        raise BadInput(f"{'standard input' if file == '-' else file}: {words}{'' if words.endswith('?') else '.'}") from None
    typer.echo(decide(observation, rules, paper=paper).to_json())


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}; give an observation as JSON, or -.") from None
