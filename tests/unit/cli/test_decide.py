"""`spillway decide qod`: JSON in, JSON out, one sentence and code 2 for bad input, and nothing heavy is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spillway.cli.app import app
from spillway.decide.qod.examples import chain_observation
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = chain_observation().to_json()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.json").write_text(EXAMPLE)


def run(*args: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["decide", "qod", *args], input=given, prog_name="spillway")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def decided(*args: str, given: str | None = None) -> dict[str, Any]:
    code, out, err = run(*args, given=given)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_from_a_file_from_a_dash_and_from_nothing() -> None:
    first = decided("seen.json")
    assert first == decided("-", given=EXAMPLE) == decided(given=EXAMPLE)
    assert list(first)[:6] == ["feasible", "edges", "queries", "moves", "missing", "infeasible"]
    edge = first["edges"][0]
    assert (edge["from"], edge["topic"], edge["to"]) == (None, "yellow", "union")
    assert edge["keep"] == pytest.approx(87.0 / 123.0)
    assert edge["reason"].startswith("keeps 70.73 %: n1 has 87 % of a core")
    assert first["queries"]["bill"]["desired"] == pytest.approx(87.0 / 123.0)
    assert "topic" not in first["edges"][1]


def test_policy_paper_and_policy_file(tmp_path: Path) -> None:
    assert decided("seen.json", "--policy", "paper")["queries"]["bill"]["desired"] == pytest.approx(0.7233333)
    (tmp_path / "slow.yaml").write_text("qod_drain_horizon_s: 60\n")
    waiting = EXAMPLE.replace('"lag":0.0', '"lag":720.0')
    fast, slow = decided(given=waiting), decided("-", "--policy", "slow.yaml", given=waiting)
    assert fast["queries"]["bill"]["desired"] < slow["queries"]["bill"]["desired"]


def test_a_decision_can_be_fed_on() -> None:
    """What is remembered goes back in as `previous`."""
    first = decided("seen.json")
    again = decided("-", given=json.dumps({**json.loads(EXAMPLE), "previous": first["remember"]}))
    assert not any(edge["published"] for edge in again["edges"])


@pytest.mark.parametrize(
    ("args", "given", "message"),
    [
        (
            ["none.json"],
            None,
            "error: none.json cannot be read: No such file or directory; give an observation as JSON, or -.",
        ),
        (["."], None, "error: . cannot be read: Is a directory; give an observation as JSON, or -."),
        ([], "", "error: standard input: line 1, column 1 is not valid JSON (Expecting value); give one JSON object."),
        ([], '{"nodes": []}', "error: standard input: operators is missing, but must be an array of objects."),
        (
            [],
            EXAMPLE.replace('"lag"', '"lags"'),
            "error: standard input: edges[0] has the unknown field lags; did you mean lag?",
        ),
        (
            [],
            EXAMPLE.replace('"cores":1.0', '"cores":1e308'),
            "error: standard input: nodes[0].cores is 1e+308, but must be a number from 0 to 1e+15.",
        ),
        (["seen.json", "--policy", "no.yaml"], None, "error: the policy file no.yaml cannot be read: No such file or directory"),
        (["seen.json", "--polizy", "x"], None, "error: No such option: --polizy"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(args: list[str], given: str | None, message: str) -> None:
    code, out, err = run(*args, given=given)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert len(err.splitlines()) == 1


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from spillway.cli.app import app\n"
        "try:\n    app(['decide', 'qod', 'seen.json'], prog_name='spillway')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = ('pyspark', 'airflow', 'pandas', 'scipy', 'psycopg2', 'great_expectations', 'matplotlib', 'networkx', 'rich')\n"
        "print(sorted(name for name in heavy if name in sys.modules), file=sys.stderr)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "[]\n"
    assert json.loads(done.stdout)["feasible"] is True
