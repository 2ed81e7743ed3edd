"""`spillway decide rescale`: JSON in, JSON out, one sentence and code 2 for bad input, and nothing heavy is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spillway.cli.app import app
from spillway.decide.rescale.examples import ads
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE: dict[str, Any] = json.loads(ads().to_json())


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.json").write_text(json.dumps(EXAMPLE))


def run(*args: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["decide", "rescale", *args], input=given, prog_name="spillway")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def decided(*args: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    code, out, err = run(*args, given=None if given is None else json.dumps(given))
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_from_a_file_from_a_dash_and_from_nothing() -> None:
    first = decided("seen.json")
    assert first == decided("-", given=EXAMPLE) == decided(given=EXAMPLE)
    parse, count = first["plans"]
    assert (parse["answer"], parse["target"]) == ("no_change", 2)
    assert (count["answer"], count["target"], count["kind"], count["expected_pause_s"]) == ("change", 3, "handover", 1.896)
    assert [(p["pass"], p["reason"]) for p in count["passes"]] == [("target", "sized_by_prior")]
    assert count["expected_rate"] > 520.0 and count["steps"][0] == "validate"


def test_a_policy_in_the_file_and_beside_it(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("rescale_quota_per_day: 0\n")
    assert decided("seen.json", "--policy", "policy.yaml")["plans"][1]["reason"] == "quota"
    assert decided(given={**EXAMPLE, "policy": {"rescale_step_factor": 2.0}})["plans"][1]["target"] == 2
    code, _, err = run(given=json.dumps({**EXAMPLE, "policy": {"rescale_step_faktor": 2.0}}))
    assert code == 2 and "the given policy has the unknown field rescale_step_faktor; did you mean rescale_step_factor?" in err
    code, _, err = run(given=json.dumps({**EXAMPLE, "policy": {"rescale_step_factor": "2"}}))
    assert code == 2 and "rescale_step_factor is '2', but must be a number" in err


def test_a_request_is_planned_or_refused() -> None:
    (plan,) = decided(given={**EXAMPLE, "request": {"operator": "count", "to": 4, "kind": "executors"}})["plans"]
    assert (plan["answer"], plan["kind"], plan["executors"]) == ("change", "executors", {"from": 1, "to": 4})
    (plan,) = decided(given={**EXAMPLE, "request": {"operator": "count", "to": 40}})["plans"]
    assert (plan["answer"], plan["reason"], plan["kind"]) == ("refused", "out_of_bounds", None)


def test_without_a_time_it_is_now() -> None:
    timeless = {name: value for name, value in EXAMPLE.items() if name != "now"}
    assert decided(given=timeless)["plans"] == decided("seen.json")["plans"]


@pytest.mark.parametrize(
    ("args", "given", "message"),
    [
        (["none.json"], None, "error: none.json cannot be read: No such file or directory"),
        ([], "", "error: standard input: line 1, column 1 is not valid JSON (Expecting value); give one JSON object."),
        ([], '{"edges": []}', "error: standard input: operators is missing, but must be an array of objects."),
        ([], '{"operators": [{"name": "a", "parallelism": 0}]}',
         "error: standard input: operators.a.parallelism is 0, but must be a whole number from 1 to 1000000000."),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_code_2(args: list[str], given: str | None, message: str) -> None:
    code, out, err = run(*args, given=given)
    assert (code, out) == (2, "")
    assert err.startswith(message) and len(err.splitlines()) == 1


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from spillway.cli.app import app\n"
        "try:\n    app(['decide', 'rescale', 'seen.json'], prog_name='spillway')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = ('pyspark', 'airflow', 'pandas', 'scipy', 'numpy', 'psycopg2', 'great_expectations', 'networkx', 'rich')\n"
        "print(sorted(name for name in heavy if name in sys.modules), file=sys.stderr)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "[]\n"
    assert json.loads(done.stdout)["plans"]
