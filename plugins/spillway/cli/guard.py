"""Errors of every command in one place: one sentence on stderr; 2 for bad input, 1 for a failed action, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

DEBUG = "SPILLWAY_DEBUG"


class BadInput(Exception):
    """What was given cannot be used; nothing was done."""


class Failed(Exception):
    """The action was tried and did not succeed."""


class Guarded(TyperGroup):
    """The root command; also what typer's test runner calls, so tests see what a person sees."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            result = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
            sys.exit(result if isinstance(result, int) else 0)
        except typer.Abort:
            _say("aborted.")
            sys.exit(1)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            message, code = explain(error)
            _say(message)
            sys.exit(code)


def explain(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for an error that reached the top."""
    from spillway.policy import PolicyError
    from spillway.store.errors import NotConfigured, Refused, StoreError

    if isinstance(error, typer.TyperException):
        hint = "" if type(error).__name__ == "NoArgsIsHelpError" else " (see --help)"
        return f"{error.format_message()}{hint}", error.exit_code
    if isinstance(error, BadInput | Refused | NotConfigured | PolicyError):
        return str(error), 2
    if isinstance(error, StoreError | Failed):
        return str(error), 1
    detail = " ".join(str(error).split())
    return f"{type(error).__name__}: {detail or 'no detail'} (set {DEBUG}=1 to see where).", 1


def _say(message: str) -> None:
    typer.echo(message if message.startswith("Usage:") else f"error: {message}", err=True)
