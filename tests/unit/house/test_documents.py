"""What the documents name is there: links, targets of make, commands, files, tunables, pipelines and what is in them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.topology import check_files, check_text

REPO = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
ROOTS = (
    "plugins/",
    "spark_jobs/",
    "dags/",
    "sql/",
    "tests/",
    "bench/",
    "docs/",
    "pipelines/",
    "scenarios/",
    "container/",
    "tools/",
)
OURS_TO_MAKE = {"pipelines/tips.yaml", "spark_jobs/operators/tips.py"}
"""Files that the README asks its reader to write."""


def targets() -> set[str]:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", makefile, re.M))


def commands() -> set[str]:
    """`topology check`, `start`, …: every command of the command line."""
    import typer.main
    from spillway.cli.app import app

    def names(command: Any, prefix: str) -> Iterator[str]:
        for name, inner in getattr(command, "commands", {}).items():
            yield f"{prefix}{name}"
            yield from names(inner, f"{prefix}{name} ")

    return set(names(typer.main.get_command(app), ""))


def pipelines() -> dict[str, Pipeline]:
    """By name: the shipped ones, and the one that the README writes."""
    found = list(check_files((REPO / "pipelines").glob("*.yaml")).pipelines)
    (block,) = re.findall(
        r"<!-- example: pipelines/\S+ -->\n```yaml\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.S
    )
    example, problems = check_text(block)
    assert example is not None, problems
    return {p.name: p for p in (*found, example)}


def unknown_in_a_pipeline(text: str) -> Iterator[str]:
    """Commands that would be refused, because there is no such pipeline, operator or edge."""
    known = pipelines()
    for command, name, part in re.findall(
        r"\b(?:spillway|cli) (start|stop|keep|reset) ([a-z]\w*)(?: ([a-z][\w.:]*))?", _code(text)
    ):
        if name not in known:
            yield f"there is no pipeline {name}"
        elif command == "reset" and part not in [o.name for o in known[name].operators]:
            yield f"pipeline {name} has no operator {part}"
        elif command == "keep" and part and part not in [e.name for e in known[name].edges]:
            yield f"pipeline {name} has no edge {part}"


def wrong(text: str, folder: Path) -> list[str]:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", text) if not link.startswith("https://")]
    problems = [f"the link {link} leads nowhere" for link in links if not (folder / link).exists()]
    problems += [
        f"there is no target {t} for make" for t in re.findall(r"(?<![\w-])make ([a-z]+)\b", _code(text)) if t not in targets()
    ]
    known = commands()
    for first, second in re.findall(r"(?:\bspillway|run --rm cli) ([a-z]+)(?: ([a-z]+))?", _code(text)):
        if first not in known or (first == "topology" and f"topology {second}" not in known):
            problems.append(f"there is no command spillway {first} {second}")
    for path in re.findall(r"`([\w./-]+)`", text):
        if path.startswith(ROOTS) and path not in OURS_TO_MAKE and not (REPO / path).exists():
            problems.append(f"there is no {path}")
    tunables = {f.name for f in dataclasses.fields(Policy)}
    for name in re.findall(r"`([a-z]+_(?:[a-z]+_)*(?:s|rows|days|factor))`", text):
        if name not in tunables and name not in ("executor_rows",):
            problems.append(f"{name} is no field of the policy")
    return [*problems, *unknown_in_a_pipeline(text)]


def _code(text: str) -> str:
    """Only what is marked as code, without comments: prose may say that somebody makes something."""
    blocks = [re.sub(r"#.*", "", block) for block in re.findall(r"```sh\n(.*?)```", text, re.S)]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(d.relative_to(REPO)) for d in DOCUMENTS])
def test_what_a_document_names_is_there(document: Path) -> None:
    assert wrong(document.read_text(encoding="utf-8"), document.parent) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[here](docs/nowhere.md)", "leads nowhere"),
        ("`make everything`", "no target everything"),
        ("```sh\nmake coffee\n```", "no target coffee"),
        ("`spillway forecast taxi`", "no command spillway forecast"),
        ("`spillway topology undo taxi`", "no command spillway topology undo"),
        ("`plugins/spillway/forecast/`", "there is no plugins/spillway/forecast/"),
        ("`patience_s`", "patience_s is no field"),
        ("`spillway start ship --wait`", "no pipeline ship"),
        ("`spillway reset taxi bill`", "pipeline taxi has no operator bill"),
        ("```sh\n.venv/bin/spillway keep taxi union:bill 0.5\n```", "pipeline taxi has no edge union:bill"),
    ],
)
def test_each_of_it_can_be_wrong(text: str, says: str) -> None:
    assert says in " ".join(wrong(text, REPO))


def test_the_topology_that_is_explained_is_good_and_its_functions_are_there(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (REPO / "docs" / "topology.md").read_text(encoding="utf-8"), re.S)
    file = tmp_path / "example.yaml"
    file.write_text(block)
    assert check_files([file], import_functions=True).problems == ()


@pytest.mark.parametrize("what", ["capacity", "rescale"])
def test_the_answers_that_are_printed_are_those_of_the_command(what: str, tmp_path: Path) -> None:
    """Every word of it, up to the digits that are printed; an ellipsis leaves something out."""
    text = (REPO / "docs" / "algorithms.md").read_text(encoding="utf-8").partition(f"`spillway decide {what} [FILE|-]")[2]
    question, answer = re.findall(r"(?:^    .*\n)+", text, re.M)[:2]
    asked = tmp_path / "asked.json"
    asked.write_text(question)
    done = subprocess.run([sys.executable, "-m", "spillway.cli", "decide", what, str(asked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = words_of(done.stdout)
    assert [word for word in words_of(answer) if word not in said and not cut_short(word, said) and not rounded(word, said)] == []


def words_of(text: str) -> list[str]:
    return re.findall(r'"[^"]*"|-?[\d.]+', text)


def cut_short(word: str, said: list[str]) -> bool:
    return "…" in word and any(s.startswith(word.partition("…")[0]) for s in said)


def rounded(word: str, said: list[str]) -> bool:
    digits = len(word.partition(".")[2])
    numbers = [float(s) for s in said if re.fullmatch(r"-?\d+\.?\d*", s)]
    return bool(re.fullmatch(r"-?\d+\.\d+", word)) and any(f"{n:.{digits}f}" == word for n in numbers)


def test_every_decision_is_in_the_index_and_names_what_was_rejected() -> None:
    folder = REPO / "docs" / "adr"
    index = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert index == sorted(p.name for p in folder.glob("0*.md"))
    for name in index:
        assert re.findall(r"^## (.+)$", (folder / name).read_text(encoding="utf-8"), re.M) == [
            "Context",
            "Decision",
            "Rejected",
        ], name
