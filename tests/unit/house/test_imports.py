"""The import table of docs/architecture.md is true: nothing is imported that it does not allow, and it allows nothing unused."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
TOP, INSIDE = 0, 1


def table(text: str) -> dict[str, tuple[set[str], set[str]]]:
    """Room → (allowed at the top, allowed inside functions), from the table under `Who may import what`."""
    section = text.split("## Who may import what", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \|$", section, re.M)
    return {room: (set(re.findall(r"`([\w.]+)`", top)), set(re.findall(r"`([\w.]+)`", inside))) for room, top, inside in rows}


def rooms(repo: Path) -> dict[str, list[Path]]:
    """Every folder and file of the code, by the name it is imported under."""
    found: dict[str, list[Path]] = {"dags": sorted((repo / "dags").glob("*.py"))}
    for package, folder in (("spillway", repo / "plugins" / "spillway"), ("spark_jobs", repo / "spark_jobs")):
        for entry in sorted(folder.iterdir()):
            files = sorted(entry.rglob("*.py")) if entry.is_dir() else [entry] if entry.suffix == ".py" else []
            if files and entry.name != "__init__.py":
                found[f"{package}.{entry.stem}"] = files
    return found


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, int]]:
    """Modules and where they are imported. What is only for the type checker does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, INSIDE if inside else TOP) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"
            known = REPO.joinpath(
                *(("plugins", *node.module.split(".")) if node.module.startswith("spillway") else node.module.split("."))
            )
            for alias in node.names:
                inner = (known / alias.name).is_dir() or (known / f"{alias.name}.py").exists()
                yield f"{node.module}.{alias.name}" if inner else node.module, INSIDE if inside else TOP
        else:
            yield from imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def below(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def wrong(room: str, file: str, source: str, allowed: tuple[set[str], set[str]], used: set[tuple[int, str]]) -> list[str]:
    problems = []
    for module, where in imports(ast.parse(source)):
        if module.split(".")[0] in sys.stdlib_module_names or below(module, room) or module in ("spillway", "spark_jobs"):
            continue
        columns = [TOP] if where == TOP else [INSIDE, TOP]
        matching = [(column, name) for column in columns for name in allowed[column] if below(module, name)]
        used.update(matching[:1])
        if not matching:
            problems.append(f"{file}: {room} may not import {module}{'' if where == TOP else ' inside a function'}")
    return problems


@pytest.fixture(scope="module")
def allowed() -> dict[str, tuple[set[str], set[str]]]:
    return table((REPO / "docs" / "architecture.md").read_text(encoding="utf-8"))


def test_every_room_has_a_row(allowed: dict[str, tuple[set[str], set[str]]]) -> None:
    assert sorted(allowed) == sorted(rooms(REPO))


@pytest.mark.parametrize("room", sorted(rooms(REPO)))
def test_a_room_imports_what_its_row_allows_and_all_of_it(room: str, allowed: dict[str, tuple[set[str], set[str]]]) -> None:
    used: set[tuple[int, str]] = set()
    problems = []
    for file in rooms(REPO)[room]:
        problems += wrong(room, str(file.relative_to(REPO)), file.read_text(encoding="utf-8"), allowed[room], used)
    assert problems == []
    assert {(c, n) for c in (TOP, INSIDE) for n in allowed[room][c]} - used == set(), "allowed, but nobody needs it"


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("spillway.model", "import numpy"),
        ("spillway.model", "from spillway.policy import Policy"),
        ("spillway.policy", "from ruamel.yaml import YAML"),
        ("spillway.decide", "def f():\n    from spillway.store import connect"),
        ("spillway.decide", "from spillway import act"),
        ("spillway.topology", "def f():\n    import pyspark"),
        ("spillway.store", "import psycopg2"),
        ("spillway.store", "class A:\n    from airflow.sdk import dag"),
        ("spark_jobs.runtime", "def f():\n    import airflow"),
        ("spark_jobs.runtime", "from spillway.store import settings"),
        ("spark_jobs.sinks", "from spillway.embedded import Stack"),
        ("dags", "from spillway.act.tasks import converge_streams"),
        ("dags", "import psycopg2"),
    ],
)
def test_what_the_table_forbids(room: str, source: str, allowed: dict[str, tuple[set[str], set[str]]]) -> None:
    assert wrong(room, "some.py", source, allowed[room], set())


def test_what_is_always_allowed(allowed: dict[str, tuple[set[str], set[str]]]) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import airflow\n"
    assert wrong("spillway.model", "some.py", typed, allowed["spillway.model"], set()) == []
    own = "import json\nfrom spillway.model import topology"
    assert wrong("spillway.model", "some.py", own, allowed["spillway.model"], set()) == []
