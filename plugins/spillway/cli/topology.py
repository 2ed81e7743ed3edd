"""`spillway topology check | apply | diff | show | remove`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from spillway.cli.guard import BadInput
from spillway.cli.who import me

if TYPE_CHECKING:
    from spillway.topology import Checked

app = typer.Typer(help="Check, compare and apply pipelines declared in YAML.", no_args_is_help=True, rich_markup_mode=None)

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="topology files, such as pipelines/taxi.yaml")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Import = Annotated[bool, typer.Option("--import", help="also import the operators' functions and bind their args")]


@app.command()
def check(files: Files, as_json: Json = False, import_functions: Import = False) -> None:
    """Explain every mistake of topology files."""
    checked = _read(files, import_functions)
    if as_json:
        good = [{"file": f.file, "pipeline": f.pipeline.name} for f in checked.files if f.pipeline]
        typer.echo(json.dumps({"files": good, "problems": [p.as_dict() for p in checked.problems]}, indent=2))
    else:
        for file in checked.files:
            if p := file.pipeline:
                parts = (("operator", p.operators), ("edge", p.edges), ("application", p.applications))
                counted = ", ".join(_count(len(found), what) for what, found in parts)
                typer.echo(f"{file.file}: pipeline {p.name} is good ({counted})")
        _print_problems(checked)
    if checked.problems:
        raise typer.Exit(2)


@app.command()
def apply(files: Files, import_functions: Import = False) -> None:
    """Put pipelines in force, as new versions."""
    from spillway.store import pipelines, session

    checked = _read(files, import_functions)
    if checked.problems:
        _print_problems(checked)
        raise BadInput("nothing was applied.")
    with session("control") as conn:
        for file in checked.files:
            assert file.pipeline is not None
            applied = pipelines.apply(conn, file.pipeline, file.source, me())
            typer.echo(str(applied))
            for change in applied.changes:
                typer.echo(f"  {change}")


@app.command()
def diff(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a topology file")],
    as_json: Json = False,
) -> None:
    """Show what applying a file would change."""
    from spillway.store import pipelines, session
    from spillway.topology import diff as compare

    checked = _read([file], False)
    if checked.problems:
        _print_problems(checked)
        raise BadInput("the file cannot be compared before its problems are solved.")
    new = checked.pipelines[0]
    with session("read") as conn:
        current = pipelines.in_force(conn, new.name)
    changes = compare(current.pipeline if current else None, new)
    if as_json:
        version = current.version if current else None
        typer.echo(json.dumps({"pipeline": new.name, "version": version, "changes": [c.as_dict() for c in changes]}, indent=2))
        return
    for change in changes:
        typer.echo(str(change))
    if not changes:
        typer.echo(f"pipeline {new.name} is unchanged, version {current.version if current else 0} is in force")


@app.command()
def show(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    version: Annotated[int | None, typer.Option(help="an earlier version")] = None,
    source: Annotated[bool, typer.Option("--source", help="print the YAML as it was applied")] = False,
    as_json: Json = False,
) -> None:
    """Show a pipeline as it is in force."""
    from spillway.store import pipelines, session
    from spillway.store.queries import row

    with session("read") as conn:
        found = pipelines.load(conn, pipeline, version)
        name = "pipeline_in_force" if version is None else "pipeline_version"
        stored = row(conn, name, pipeline=pipeline, version=version) or {}
    if source:
        typer.echo(stored["source"], nl=not stored["source"].endswith("\n"))
    elif as_json:
        typer.echo(found.to_json())
    else:
        from spillway.cli.show import print_pipeline

        print_pipeline(found, stored["version"], stored["applied_at"], stored["applied_by"])


@app.command()
def remove(pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")]) -> None:
    """Take a stopped pipeline out of force.

    Frees its topics; versions, checkpoints and metrics stay."""
    from spillway.store import pipelines, session

    with session("control") as conn:
        pipelines.remove(conn, pipeline, me())
    typer.echo(f"pipeline {pipeline} is out of force")


def _read(files: list[str], import_functions: bool) -> Checked:
    from spillway.topology import check_files

    return check_files(files, import_functions=import_functions)


def _print_problems(checked: Checked) -> None:
    for problem in checked.problems:
        typer.echo(str(problem), err=True)
    if checked.problems:
        typer.echo(_count(len(checked.problems), "problem"), err=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
