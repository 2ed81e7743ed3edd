"""Are the functions of a pipeline there? Imports the user's modules, so it runs only where that was asked for."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from pathlib import Path

from spillway.model.topology import Pipeline
from spillway.topology.problem import Problems

CLONE = Path(__file__).resolve().parents[3]
"""Where the modules of the shipped pipelines are, from whatever folder the command is called."""


def check_functions(pipeline: Pipeline, problems: Problems, *, root: Path | None = None) -> None:
    """Imports each function and binds the declared arguments to its signature. What modules print goes to stderr."""
    folders = [str((root or Path.cwd()).resolve()), str(CLONE)]
    before = list(sys.path)
    sys.path[:0] = [folder for folder in dict.fromkeys(folders) if folder not in before]
    try:
        for operator in pipeline.operators:
            if reason := _refusal(operator.function, operator.args):
                field = "args" if reason[1] == "args" else "function"
                problems.add(
                    f"operators.{operator.name}.{field}",
                    reason[0],
                    "an importable `def f(df, **args)` that takes the declared args",
                )
    finally:
        sys.path[:] = before


def _refusal(function: str, args: dict[str, object]) -> tuple[str, str] | None:
    module_name, _, name = function.partition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        return f"module {module_name} cannot be imported ({type(error).__name__}: {error})", "function"
    found = getattr(module, name, None)
    if found is None:
        return f"module {module_name} has no {name}", "function"
    if not callable(found):
        return f"{function} is not callable", "function"
    if inspect.iscoroutinefunction(found):
        return f"{function} is a coroutine, which nobody would wait for", "function"
    try:
        inspect.signature(found).bind(None, **args)
    except TypeError as error:
        return f"{function} does not fit the declared args ({error})", "args"
    except ValueError:
        return None
    return None
