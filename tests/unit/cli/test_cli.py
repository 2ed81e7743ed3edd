"""The command as a person uses it: words, streams and exit codes, without services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spillway.cli.app import app
from spillway.inject.broker import Broker
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
GOOD = """\
pipeline: demo
operators:
  count: {function: "jobs.words:count", kind: aggregate}
edges:
  - {topic: words, to: count}
"""


@pytest.fixture(autouse=True)
def no_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPILLWAY_HOME", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(GOOD.replace("to: count", "to: cuont").replace("pipeline: demo", "pipeline: other"))


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args), prog_name="spillway")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert run("--version") == (0, f"spillway {version('spillway')}\n", "")


def test_the_demo_says_what_it_can_be_asked() -> None:
    code, out, _ = run("demo", "--help")
    assert code == 0
    assert "--keep" in out


def test_check_good() -> None:
    assert run("topology", "check", "good.yaml") == (
        0,
        "good.yaml: pipeline demo is good (1 operator, 1 edge, 1 application)\n",
        "",
    )


def test_check_bad() -> None:
    code, out, err = run("topology", "check", "bad.yaml", "good.yaml", "none.yaml")
    assert code == 2
    assert out == "good.yaml: pipeline demo is good (1 operator, 1 edge, 1 application)\n"
    assert err.splitlines() == [
        "bad.yaml:5: edges[0].to: unknown operator 'cuont' (did you mean count?); allowed: count",
        "none.yaml:1: no such file; allowed: the path of a YAML file",
        "2 problems",
    ]


def test_check_as_json() -> None:
    code, out, err = run("topology", "check", "--json", "bad.yaml", "good.yaml")
    assert (code, err) == (2, "")
    assert json.loads(out) == {
        "files": [{"file": "good.yaml", "pipeline": "demo"}],
        "problems": [
            {
                "file": "bad.yaml",
                "line": 5,
                "field": "edges[0].to",
                "message": "unknown operator 'cuont' (did you mean count?)",
                "allowed": "count",
            }
        ],
    }


def test_check_imports_only_when_asked() -> None:
    assert run("topology", "check", "good.yaml")[0] == 0
    code, _, err = run("topology", "check", "--import", "good.yaml")
    assert code == 2
    assert "good.yaml:3: operators.count.function: module jobs.words cannot be imported" in err


def test_check_imports_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "cli_probe_jobs.py").write_text("def count(df, *, n=1):\n    return df\n")
    (tmp_path / "good.yaml").write_text(GOOD.replace("jobs.words", "cli_probe_jobs"))
    assert run("topology", "check", "--import", "good.yaml")[0] == 0


def test_bad_files_are_not_applied() -> None:
    code, out, err = run("topology", "apply", "good.yaml", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "error: nothing was applied."


@pytest.mark.parametrize(
    ("args", "variable"),
    [
        (("topology", "apply", "good.yaml"), "SPILLWAY_DSN_CONTROL"),
        (("topology", "diff", "good.yaml"), "SPILLWAY_DSN_READ"),
        (("topology", "show", "demo"), "SPILLWAY_DSN_READ"),
        (("start", "demo"), "SPILLWAY_DSN_CONTROL"),
        (("stop", "demo"), "SPILLWAY_DSN_CONTROL"),
        (("status",), "SPILLWAY_DSN_READ"),
        (("keep", "demo", "words:count", "0.5"), "SPILLWAY_DSN_CONTROL"),
        (("events",), "SPILLWAY_DSN_READ"),
        (("migrate",), "SPILLWAY_DSN_OWNER"),
        (("inject", "x.yaml"), "SPILLWAY_KAFKA"),
        (("send", "words"), "SPILLWAY_KAFKA"),
        (("tail", "words"), "SPILLWAY_KAFKA"),
    ],
)
def test_missing_variable_is_named(tmp_path: Path, args: tuple[str, ...], variable: str) -> None:
    file = tmp_path / "run" / "env"
    expected = f"error: {variable} is not set and {file} does not give it: run `make up`, or set the variable.\n"
    assert run(*args) == (2, "", expected)


def test_postgres_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_DSN_READ", "postgresql://someone:hidden@127.0.0.1:1/spillway")
    code, out, err = run("status")
    assert (code, out) == (1, "")
    assert err == "error: Postgres at 127.0.0.1:1 does not answer: start it with `make up`, or check SPILLWAY_DSN_READ.\n"


@pytest.mark.parametrize("command", ["send", "tail"])
def test_kafka_that_is_away(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(Broker.partitions, "__defaults__", (0.5,))
    monkeypatch.setenv("SPILLWAY_KAFKA", "127.0.0.1:1")
    expected = "error: No Kafka broker answers at 127.0.0.1:1: start it (`make up`) or check SPILLWAY_KAFKA.\n"
    assert run(command, "words") == (2, "", expected)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nonsense",), "No such command 'nonsense'."),
        (("keep",), "Missing argument 'PIPELINE'."),
        (("keep", "demo", "e", "much"), "Invalid value for '[VALUE]': "),
        (("keep", "demo", "a:b"), "VALUE is missing: `spillway keep demo a:b 0.5`, or --clear."),
        (("keep", "demo", "0.4"), "0.4 is no edge: `spillway keep demo EDGE 0.5`; without EDGE and VALUE it shows the edges."),
        (("keep", "demo", "e", "0.5", "--clear"), "--clear keeps everything: leave VALUE out."),
        (("keep", "demo", "e", "0.5", "--ttl", "soon"), "--ttl soon is not a duration: give a number with a unit"),
        (("keep", "demo", "e", "0.5", "--ttl", "0s"), "--ttl 0s is not a duration: give a number with a unit"),
        (("start", "demo", "--timeout", "5"), "--timeout 5 is not a duration: give a number with a unit"),
        (("tail",), "Missing argument 'TOPIC'."),
        (("tail", "words", "-n", "0"), "Invalid value for '-n' / '--limit': "),
        (("events", "-n", "0"), "Invalid value for '-n' / '--limit': "),
        (("topology", "check"), "Missing argument 'FILE...'."),
        (("bench", "no_such"), "there is no benchmark no_such: there are "),
    ],
)
def test_bad_input_is_one_sentence_and_2(args: tuple[str, ...], words: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_unexpected_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("spillway.topology.check_files", burst)
    assert run("topology", "check", "good.yaml") == (
        1,
        "",
        "error: RuntimeError: two lines (set SPILLWAY_DEBUG=1 to see where).\n",
    )
    monkeypatch.setenv("SPILLWAY_DEBUG", "1")
    result = CliRunner().invoke(app, ["topology", "check", "good.yaml"])
    assert isinstance(result.exception, RuntimeError)


ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")} | {"PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}"}


def spillway(*args: str, cwd: Path, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command, environ = [sys.executable, "-m", "spillway.cli", *args], ENVIRON | {"SPILLWAY_HOME": str(cwd)}
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environ, timeout=60, check=False
    )


def test_a_real_process(tmp_path: Path) -> None:
    good = spillway("topology", "check", "good.yaml", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    bad = spillway("topology", "check", "bad.yaml", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("bad.yaml:5: edges[0].to: ")
    away = spillway("status", cwd=tmp_path)
    assert away.returncode == 2
    assert away.stderr.startswith("error: SPILLWAY_DSN_READ is not set")


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = spillway("topology", "check", "good.yaml", cwd=tmp_path, stdout=writing)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_start_is_light() -> None:
    """Help needs none of the heavy libraries, and little CPU."""
    probe = (
        "import sys, resource\n"
        "sys.argv = ['spillway', '--help']\n"
        "from spillway.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code in (0, None)\n"
        "heavy = {'pyspark', 'airflow', 'pandas', 'numpy', 'psycopg2', 'confluent_kafka', 'great_expectations', 'rich'}\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)), used.ru_utime + used.ru_stime)\n"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=ENVIRON, timeout=60, check=True)
    last = result.stdout.splitlines()[-1]
    assert last.startswith("HEAVY [] ")
    assert float(last.split()[-1]) < 0.5
