"""Every mistake a topology file can have, with the exact words a person reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from spillway.topology import check_files, check_text
from topology_worlds import GOOD

BAD: list[dict[str, Any]] = YAML(typ="safe").load((Path(__file__).parent / "bad_topologies.yaml").read_text(encoding="utf-8"))


def changed(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text, f"the good topology has no {old!r}"
        text = text.replace(old, new)
    return text


def test_the_good_topology_is_good() -> None:
    pipeline, problems = check_text(GOOD)
    assert problems == []
    assert pipeline is not None


@pytest.mark.parametrize("case", BAD, ids=[case["mistake"] for case in BAD])
def test_mistake_is_explained(case: dict[str, Any]) -> None:
    text = changed(*((change["from"], change["to"]) for change in case["change"]))
    pipeline, problems = check_text(text, file="f")
    assert pipeline is None
    assert [str(problem) for problem in problems] == [f"f:{words}" for words in case["says"]]


def test_all_problems_are_reported_at_once() -> None:
    text = changed(
        ("trigger: 2s", "trigger: 2"), ("buckets: 4", "buckets: 2"), ("{from: union, to: once}", "{from: union, to: onse}")
    )
    _, problems = check_text(text)
    assert [(p.line, p.field) for p in problems] == [(3, "trigger"), (12, "operators.union.buckets"), (25, "edges[2].to")]


def test_line_of_a_left_out_field_is_that_of_its_parent() -> None:
    _, (problem,) = check_text(changed(("    buckets: 4\n", ""), ("max: 4", "max: 9")))
    assert (problem.line, problem.field) == (8, "operators.union.buckets")
    assert "8 buckets cannot be shared by 9 instances" in problem.message


def test_two_cycles_are_two_problems() -> None:
    edges = "  - {from: union, to: once}\n  - {from: once, to: union}\n  - {from: bill, to: bill}"
    _, problems = check_text(
        changed(
            ("  - {from: union, to: once}", edges),
            ("    kind: dedup\n", "    key: zone\n"),
            ("    query: {priority: 2, min_accuracy: 0.5}\n", ""),
            ("    output: {topic: taxi.bill.out}\n", ""),
        )
    )
    assert [p.message for p in problems] == ["closes the cycle union → once → union", "closes the cycle bill → bill"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "{file}:1: the file is empty; allowed: a mapping of fields in YAML, encoded in UTF-8"),
        (b"# nothing\n", "{file}:1: the file is empty; allowed: a mapping of fields in YAML, encoded in UTF-8"),
        (b"- a\n", "{file}:1: the file is a list; allowed: a mapping of fields in YAML, encoded in UTF-8"),
        (b"a: 1\nb: \xff\n", "{file}:2: byte 0xff is not UTF-8; allowed: a mapping of fields in YAML, encoded in UTF-8"),
        (
            b"a: 1\nb: \x01\n",
            "{file}:2: the file has a character YAML does not allow; allowed: a mapping of fields in YAML, encoded in UTF-8",
        ),
        (b"a: " + b"[" * 5000, "{file}:1: the file nests too deeply; allowed: a mapping of fields in YAML, encoded in UTF-8"),
        (b"#" * 1_000_001, "{file}:1: is larger than 1000000 bytes; allowed: a small file"),
        (None, "{file}:1: no such file; allowed: the path of a YAML file"),
    ],
    ids=["empty", "only a comment", "a list", "not UTF-8", "control character", "deep", "large", "missing"],
)
def test_file_that_is_no_topology(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "t.yaml"
    if content is not None:
        file.write_bytes(content)
    assert [str(p) for p in check_files([file]).problems] == [words.format(file=file)]


def test_directory_is_no_topology(tmp_path: Path) -> None:
    assert [str(p) for p in check_files([tmp_path]).problems] == [
        f"{tmp_path}:1: is a directory; allowed: the path of a YAML file"
    ]


def test_aliases_that_unfold_without_end_are_refused_quickly() -> None:
    bombs = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    _, problems = check_text(GOOD + "x:\n  a0: &a0 [0]\n" + bombs)
    assert "aliases unfold to more than 50000 values" in [p.message for p in problems]


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert check_files([file]).problems == ()


OTHER = """\
pipeline: other
operators:
  f: {function: "a.b:c"}
edges:
  - {topic: TOPIC, to: f, shared: SHARED}
"""


def two(tmp_path: Path, topic: str, shared: str, *, good: str = GOOD) -> list[str]:
    (tmp_path / "a.yaml").write_text(good)
    (tmp_path / "b.yaml").write_text(OTHER.replace("TOPIC", topic).replace("SHARED", shared))
    return [str(p).replace(f"{tmp_path}/", "") for p in check_files([tmp_path / "a.yaml", tmp_path / "b.yaml"]).problems]


@pytest.mark.parametrize(
    ("topic", "shared"),
    [
        ("taxi.yellow", "false"),
        ("taxi.yellow", "true"),
        ("taxi.bill.out", "true"),
        ("taxi.union.bill", "true"),
        ("taxi.once.dead", "true"),
    ],
    ids=["read by both", "shared by one only", "written output", "written edge", "dead letters"],
)
def test_two_pipelines_claim_a_topic(tmp_path: Path, topic: str, shared: str) -> None:
    assert two(tmp_path, topic, shared) == [
        f"b.yaml:5: edges[0].topic: topic {topic} is claimed by pipeline other and by taxi (a.yaml); "
        "allowed: a topic in one pipeline, or `shared: true` on the edge of both where both only read it"
    ]


def test_two_pipelines_claim_topics_kafka_cannot_tell_apart(tmp_path: Path) -> None:
    (words,) = two(tmp_path, "taxi.bill_out", "true")
    assert words.startswith("b.yaml:5: edges[0].topic: topic taxi.bill_out is claimed by pipeline other and by taxi (a.yaml);")


def test_two_pipelines_share_a_topic(tmp_path: Path) -> None:
    good = GOOD.replace("starting: latest", "starting: latest, shared: true")
    assert two(tmp_path, "taxi.yellow", "true", good=good) == []


def test_two_files_declare_one_pipeline(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    (problem,) = check_files([tmp_path / "a.yaml", tmp_path / "b.yaml"]).problems
    assert (problem.line, problem.field) == (1, "pipeline")
    assert problem.message == f"taxi is also declared in {tmp_path}/a.yaml"


@pytest.mark.parametrize(
    ("function", "args", "field", "message"),
    [
        (
            "no_such_module_here:f",
            "{}",
            "function",
            "module no_such_module_here cannot be imported (ModuleNotFoundError: No module named 'no_such_module_here')",
        ),
        ("json:no_such", "{}", "function", "module json has no no_such"),
        ("json:__name__", "{}", "function", "json:__name__ is not callable"),
        (
            "textwrap:dedent",
            "{n: 3}",
            "args",
            "textwrap:dedent does not fit the declared args (got an unexpected keyword argument 'n')",
        ),
    ],
    ids=["module missing", "function missing", "not callable", "args do not fit"],
)
def test_functions_are_imported_when_asked(tmp_path: Path, function: str, args: str, field: str, message: str) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(f"pipeline: p\noperators:\n  f: {{function: '{function}', args: {args}}}\nedges:\n  - {{topic: t, to: f}}\n")
    assert check_files([file]).problems == ()
    (problem,) = check_files([file], import_functions=True).problems
    assert (problem.line, problem.field, problem.message) == (3, f"operators.f.{field}", message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import sys\nsys.exit(0)\n", "module {} cannot be imported (SystemExit: 0)"),
        ("async def f(df):\n    return df\n", "{}:f is a coroutine, which nobody would wait for"),
    ],
    ids=["a module that ends the program", "a coroutine"],
)
def test_no_module_ends_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: Callable[[str], str], source: str, message: str
) -> None:
    name = unique("user")
    (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "t.yaml").write_text(f"pipeline: p\noperators:\n  f: {{function: '{name}:f'}}\nedges:\n  - {{topic: t, to: f}}\n")
    monkeypatch.chdir(tmp_path)
    (problem,) = check_files(["t.yaml"], import_functions=True).problems
    assert problem.message == message.format(name)


def test_what_a_module_prints_is_not_part_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unique: Callable[[str], str]
) -> None:
    name = unique("user")
    (tmp_path / f"{name}.py").write_text("print('hello')\ndef f(df):\n    return df\n")
    (tmp_path / "t.yaml").write_text(f"pipeline: p\noperators:\n  f: {{function: '{name}:f'}}\nedges:\n  - {{topic: t, to: f}}\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert check_files(["t.yaml"], import_functions=True).problems == ()
    assert sys.path == before
    assert capsys.readouterr() == ("", "hello\n")


def test_shipped_functions_are_found_from_any_folder(tmp_path: Path) -> None:
    repo = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "spillway.cli", "topology", "check", "--import", str(repo / "pipelines" / "taxi.yaml")]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
