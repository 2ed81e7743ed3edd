"""Topology files: YAML to a checked `Pipeline`, or to every problem it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spillway.model.topology import Pipeline
from spillway.topology.checks import check_applications, check_buckets, check_graph, check_together, check_topics
from spillway.topology.declare import Declared, declare
from spillway.topology.diff import Change, diff
from spillway.topology.document import read_document, read_text
from spillway.topology.problem import Problem, Problems
from spillway.topology.shedding import check_weights

__all__ = ["Change", "Checked", "CheckedFile", "Problem", "check_files", "check_text", "diff"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    file: str
    source: str
    pipeline: Pipeline | None
    """None when the file has problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    files: tuple[CheckedFile, ...]
    problems: tuple[Problem, ...]

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return tuple(f.pipeline for f in self.files if f.pipeline)


def check_files(paths: Iterable[str | Path], *, import_functions: bool = False) -> Checked:
    """Reads and checks the files, each for itself and all against each other."""
    read = []
    for path in dict.fromkeys(str(p) for p in paths):
        problems = Problems(file=path)
        text = read_text(path, problems)
        read.append((path, text or "", _check(text, problems, import_functions) if text is not None else None, problems))
    check_together([(declared, problems) for *_, declared, problems in read if declared])
    return Checked(
        files=tuple(
            CheckedFile(file=file, source=text, pipeline=declared.pipeline if declared and not problems.found else None)
            for file, text, declared, problems in read
        ),
        problems=tuple(problem for *_, problems in read for problem in problems.sorted()),
    )


def check_text(text: str, *, file: str = "<text>") -> tuple[Pipeline | None, list[Problem]]:
    """One topology given as text."""
    problems = Problems(file=file)
    declared = _check(text, problems, import_functions=False)
    return (declared.pipeline if declared and not problems.found else None), problems.sorted()


def _check(text: str, problems: Problems, import_functions: bool) -> Declared | None:
    data = read_document(text, problems)
    if data is None:
        return None
    declared = declare(data, problems)
    check_graph(declared, problems)
    check_buckets(declared.pipeline, problems)
    check_applications(declared.pipeline, problems)
    check_topics(declared, problems)
    check_weights(declared.pipeline, problems)
    if import_functions and not problems.found:
        from spillway.topology.functions import check_functions

        check_functions(declared.pipeline, problems)
    return declared.ordered()
