"""`spillway decide … [FILE|-]`: a decision as a command; nothing but the pure function runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from spillway.cli.guard import BadInput, Failed

PAPER = "paper"
T = TypeVar("T")

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
    from spillway.model.qod import Observation
    from spillway.policy import Policy

    paper = policy == PAPER
    rules = Policy.load(None if paper else policy)
    typer.echo(decide(_understood(file, Observation.from_json), rules, paper=paper).to_json())


@app.command()
def capacity(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="a measured pipeline as JSON; - reads standard input")] = "-",
    policy: Annotated[str | None, typer.Option(metavar="FILE", help="a policy file")] = None,
) -> None:
    """Print what a pipeline could carry, which operators limit it, and how much more could be admitted, as one JSON object.

    The formats are in docs/algorithms.md."""
    from spillway.model.capacity import CapacityWorld
    from spillway.policy import Policy

    rules = Policy.load(policy)
    world = _understood(file, CapacityWorld.from_json)

    from spillway.decide.capacity import AnswerBroken, detect

    try:
        typer.echo(detect(world, rules).to_json())
    except AnswerBroken as error:
        raise Failed(f"An answer was found that does not hold, so none is given: {error}.") from None


@app.command()
def rescale(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="loads of operators as JSON; - reads standard input")] = "-",
    policy: Annotated[str | None, typer.Option(metavar="FILE", help="a policy file")] = None,
) -> None:
    """Print how many executors and buckets operators should get, how, and every pass that made it so, as one JSON object.

    With a `request` in it, the plan for that, or why it is refused. The formats are in docs/algorithms.md."""
    from datetime import UTC, datetime

    from spillway.decide.rescale import plan_request, plan_rescale
    from spillway.model.rescale import RescaleWorld
    from spillway.model.rescale_plan import RescaleDecision
    from spillway.policy import Policy

    rules = Policy.load(policy)
    world = _understood(file, lambda text: RescaleWorld.from_json(text, now=datetime.now(UTC)))
    rules = rules.changed(world.policy)
    if world.request is None:
        typer.echo(plan_rescale(world, rules).to_json())
    else:
        typer.echo(RescaleDecision(plans=(plan_request(world, world.request, rules),)).to_json())


def _understood(file: str, read: Callable[[bytes], T]) -> T:
    from spillway.model.qod import ObservationError

    try:
        return read(_read(file))
    except ObservationError as error:
        words = str(error)
        raise BadInput(f"{'standard input' if file == '-' else file}: {words}{'' if words.endswith('?') else '.'}") from None


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}; give an observation as JSON, or -.") from None
