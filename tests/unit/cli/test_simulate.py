"""`spillway simulate` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spillway.cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
QUICK = """\
name: quick
description: One query on one core
duration: 4m
seed: 3
nodes: {n1: {cores: 1}}
topics:
  events: {rate: [{for: 45s, constant: 200}, {for: 105s, constant: 1600}, {constant: 200}]}
pipelines:
  - file: query.yaml
    operators: {query: {costs: {fixed_ms: 20, driver_ms: 20, wait_ms: 100, per_kept_us: 1000}}}
policy: {qod_raise_limit: 0.4, qod_drain_horizon_s: 15}
physics: {step_s: 0.2}
"""
PIPELINE = """\
pipeline: one
trigger: 2s
operators:
  query: {function: "jobs:query", query: {priority: 2, min_accuracy: 0.2}}
edges:
  - {topic: events, to: query}
applications:
  all: {operators: [query], node: n1}
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("quick.yaml").write_text(QUICK)
    Path("query.yaml").write_text(PIPELINE)
    Path("empty.yaml").write_text(f"{QUICK.partition('pipelines:')[0]}pipelines: []\n")
    Path("deep.json").write_text('{"format": "spillway-recording/1", "cycles": ' + "[" * 100_000 + "]" * 100_000 + "}")
    times = ("2026-05-01T12:00:00+00:00", "2026-05-01T12:00:15")
    seen = ({"nodes": [], "operators": [], "edges": [], "cycle_s": 15, "now": now} for now in times)
    Path("zones.jsonl").write_text("\n".join(map(json.dumps, seen)))


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *args], prog_name="spillway")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_the_table_and_the_verdict() -> None:
    code, out, err = run("quick.yaml")
    assert (code, err) == (0, "")
    assert "quick: One query on one core" in out
    assert "240 s in 16 cycles of 15 s, with control" in out
    assert all(word in out for word in ("offered", "processed", "accuracy min", "mean", "floor", "lag max", "recovered"))
    assert "195,000" in out, "offered"
    assert out.splitlines()[-1].startswith("verdict: kept: ")


def test_without_control_the_verdict_is_another_and_so_is_the_code() -> None:
    code, out, _ = run("quick.yaml", "--no-control")
    assert code == 1
    assert "without control" in out and "verdict: broken: query was more than 2 s behind for " in out


def test_one_json_document() -> None:
    code, out, _ = run("quick.yaml", "--json")
    found = json.loads(out)
    assert code == 0 and found["kept"] and found["control"] == "spillway" and found["cycles"] == 16
    (query,) = found["queries"]
    assert query["query"] == "query" and query["offered"] == 195_000
    assert 0.2 <= query["accuracy_min"] < query["accuracy_mean"] < 1.0
    assert found["moves"] == [] and found["infeasible"] == []


def test_the_seed_is_the_scenarios_unless_another_is_given() -> None:
    same, other = run("quick.yaml", "--json")[1], run("quick.yaml", "--json", "--seed", "4")[1]
    assert run("quick.yaml", "--json")[1] == same != other
    assert run("quick.yaml", "--json", "--seed", "3")[1] == same


def test_a_policy_file_takes_the_place_of_the_scenarios() -> None:
    Path("policy.yaml").write_text("qod_cycle_s: 30\n")
    assert json.loads(run("quick.yaml", "--json", "--policy", "policy.yaml")[1])["cycles"] == 8
    Path("policy.yaml").write_text("qod_cycle_s: 1\n")
    code, out, err = run("quick.yaml", "--policy", "policy.yaml")
    assert (code, out) == (2, "") and err.startswith("error: qod_cycle_s is 1, but must be a number from 5 to 300")


def test_the_papers_cycle_leaves_what_waits() -> None:
    papers, ours = (json.loads(run("quick.yaml", "--json", *args)[1]) for args in (("--policy", "paper"), ()))
    assert papers["control"] == "paper"
    assert papers["queries"][0]["late_cycles"] > ours["queries"][0]["late_cycles"]


def test_a_figure_and_a_recording_are_written_and_the_twin_is_compared_with_it() -> None:
    code, out, _ = run("quick.yaml", "--plot", "a.png", "--record", "run.json")
    assert code == 0 and "figure: a.png" in out and "recording: run.json" in out
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = run("quick.yaml", "--against", "run.json")
    assert (code, err) == (0, "")
    assert "the twin of quick against twin, scenario quick, seed 3, with control, 16 cycles" in out
    found = json.loads(run("quick.yaml", "--against", "run.json", "--json")[1])
    (query,) = found["operators"]
    assert query["cpu"]["mean"] < 5.0 and query["accuracy"]["mean"] < 0.03


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("none.yaml",), "error: none.yaml:1: no such file; allowed: "),
        (("quick.yaml", "--against", "none.json"), "error: none.json cannot be read: No such file or directory"),
        (("quick.yaml", "--against", "quick.yaml"), "error: quick.yaml is no recording: line 1 is not valid JSON"),
        (("quick.yaml", "--against", "x", "--no-control"), "error: --against plays the keeps of the recording"),
        (("quick.yaml", "--plot", "a.doc"), "error: a.doc cannot be written: a figure ends in .png, .svg or .pdf"),
        (("quick.yaml", "--record", "no/such/run.json"), "error: no/such/run.json cannot be written: No such file"),
        (("quick.yaml", "--policy", "none.yaml"), "error: the policy file none.yaml cannot be read"),
        (("empty.yaml",), "error: empty.yaml:8: pipelines: is empty; allowed: at least one {file}"),
        (("quick.yaml", "--against", "deep.json"), "error: deep.json is no recording: it is nested too deeply: give what "),
        (
            ("quick.yaml", "--against", "zones.jsonl"),
            "error: zones.jsonl is no recording: line 2: of now here and in line 1 only",
        ),
        ((), "error: Missing argument 'FILE'"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(args: tuple[str, ...], says: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith(says) and len(err.splitlines()) == 1


def test_the_first_minute_needs_no_services_and_much_less_than_a_minute() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "spillway.cli", "simulate", str(ROOT / "scenarios" / "twin" / "rush_hour.yaml")],
        env={**env, "PYTHONPATH": str(ROOT / "plugins")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: kept" in done.stdout
    assert time.monotonic() - began < 30.0


def test_the_command_line_starts_without_the_twin() -> None:
    code = "import sys, spillway.cli.app; sys.exit(bool({'numpy', 'matplotlib', 'spillway.simulate'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
