"""`spillway decide capacity`: JSON in, JSON out, one sentence and code 2 for bad input, and only what it needs is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spillway.cli.app import app
from spillway.decide.capacity.checks import CutBroken
from spillway.decide.capacity.examples import chain
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = chain().to_json()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.json").write_text(EXAMPLE)


def run(*args: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["decide", "capacity", *args], input=given, prog_name="spillway")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_from_a_file_from_a_dash_and_from_nothing() -> None:
    code, out, err = run("seen.json")
    assert (code, err) == (0, "")
    assert (code, out, err) == run("-", given=EXAMPLE) == run(given=EXAMPLE)
    found = json.loads(out)
    assert list(found)[:7] == ["max_flow", "cut_value", "cut", "bottlenecks", "potential", "drain", "in_source_units"]
    assert (found["max_flow"], found["cut"], found["bottlenecks"]) == (900.0, [["parse", "count"]], ["count"])
    assert found["in_source_units"] is True


def test_a_policy_file(tmp_path: Path) -> None:
    (tmp_path / "strict.yaml").write_text("capacity_lambda: 1.0\ncapacity_space_min: 0\n")
    nearly = chain(flow=890.0).to_json()
    assert json.loads(run(given=nearly)[1])["potential"] == ["count"]
    assert json.loads(run("-", "--policy", "strict.yaml", given=nearly)[1])["potential"] == []


@pytest.mark.parametrize(
    ("args", "given", "message"),
    [
        (["none.json"], None, "error: none.json cannot be read: No such file or directory"),
        ([], "{", "error: standard input: line 1, column 2 is not valid JSON"),
        (
            [],
            EXAMPLE.replace('"flow"', '"flov"'),
            "error: standard input: edges[0] has the unknown field flov; did you mean flow?",
        ),
        ([], EXAMPLE.replace("2000.0", "-2000.0"), "error: standard input: edges[0].capacity is -2000.0, but must be a number"),
        ([], EXAMPLE.replace("2000.0", "NaN"), "error: standard input: edges[0].capacity is nan, but must be a number"),
        (["seen.json", "--policy", "no.yaml"], None, "error: the policy file no.yaml cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(args: list[str], given: str | None, message: str) -> None:
    code, out, err = run(*args, given=given)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert len(err.splitlines()) == 1


def test_an_answer_that_does_not_hold_is_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise CutBroken("the flow from source ads is 5 rows/s, but its cut lets 4 through")

    monkeypatch.setattr("spillway.decide.capacity.detect", broken)
    code, out, err = run("seen.json")
    assert (code, out) == (1, "")
    assert err == (
        "error: An answer was found that does not hold, so none is given: "
        "the flow from source ads is 5 rows/s, but its cut lets 4 through.\n"
    )


def test_only_what_it_needs_is_imported() -> None:
    """Bad input is refused before the solver is loaded; NetworkX is for tests and for those who ask for it."""
    program = (
        "import sys; from spillway.cli.app import app\n"
        "try:\n    app(['decide', 'capacity', sys.argv[1]], prog_name='spillway')\n"
        "except SystemExit as end:\n    assert end.code == int(sys.argv[2]), end.code\n"
        "heavy = ('pyspark', 'airflow', 'pandas', 'scipy', 'psycopg2', 'great_expectations', 'matplotlib', 'networkx', 'rich')\n"
        "print(sorted(name for name in heavy if name in sys.modules))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])}
    for file, code, loaded in (("seen.json", "0", "['scipy']"), ("none.json", "2", "[]")):
        done = subprocess.run(
            [sys.executable, "-c", program, file, code], env=env, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.splitlines()[-1] == loaded
