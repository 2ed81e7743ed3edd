"""`spillway send | tail`: events into a topic and out of one, by hand."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spillway.cli.guard import BadInput, Failed

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


def send(
    topic: Topic,
    key: Annotated[str | None, typer.Option(metavar="FIELD", help="field of the JSON that becomes the key")] = None,
) -> None:
    """Send the lines of stdin to a topic, one event each."""
    from spillway.inject.broker import PlayError
    from spillway.inject.lines import send as run

    bootstrap, partitions = _find(topic)
    try:
        sent = run(bootstrap, topic, partitions, sys.stdin.buffer, key)
    except PlayError as error:
        raise Failed(str(error)) from error
    typer.echo(f"{sent.acknowledged} {'event was' if sent.acknowledged == 1 else 'events were'} acknowledged")
    if sent.acknowledged < sent.lines:
        why = sent.first_failure or "Kafka did not answer in time"
        raise Failed(f"{sent.lines - sent.acknowledged} of {sent.lines} events may not have arrived: {why}.")
    if sent.bad_line:
        raise BadInput(str(sent.bad_line))


def tail(
    topic: Topic,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=100_000, help="how many of the newest")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on printing what comes")] = False,
) -> None:
    """Show the newest committed events of a topic: key, tab, value."""
    from spillway.inject.broker import PlayError
    from spillway.inject.lines import Tail

    bootstrap, partitions = _find(topic)
    try:
        reader = Tail(bootstrap, topic, partitions)
        try:
            newest = reader.newest(limit)
            for event in newest:
                typer.echo(str(event))
            if not newest and not follow:
                typer.echo(f"topic {topic} has no event yet", err=True)
            if follow:
                for event in reader.follow():
                    typer.echo(str(event))
        finally:
            reader.close()
    except PlayError as error:
        raise Failed(str(error)) from error


def register(app: typer.Typer) -> None:
    for command in (send, tail):
        app.command()(command)


def _find(topic: str) -> tuple[str, int]:
    """Where Kafka is, and how many partitions the topic has."""
    from spillway.inject.broker import Broker, PlayError
    from spillway.store.environment import require

    bootstrap = require("SPILLWAY_KAFKA")
    try:
        return bootstrap, Broker(bootstrap).partitions(topic)
    except PlayError as error:
        raise BadInput(str(error)) from error
