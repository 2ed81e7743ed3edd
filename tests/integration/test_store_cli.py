"""The command against a real Postgres, from applying a file to stopping its pipeline."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from spillway.cli.app import app
from typer.testing import CliRunner

from tests.support.database import Database

pytestmark = pytest.mark.integration

WORDS = """\
pipeline: words
description: counts words
operators:
  count: {function: "jobs.words:count", kind: aggregate, query: {min_accuracy: 0.5}}
edges:
  - {topic: words.in, to: count}
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: Database) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "env").write_text("".join(f"{k}={v}\n" for k, v in database.environ().items()))
    monkeypatch.setenv("SPILLWAY_HOME", str(run_folder))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.yaml").write_text(WORDS)


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args), prog_name="spillway")
    return result.exit_code, result.stdout, result.stderr


def beat(database: Database, state: str, detail: str = "") -> None:
    """What a launcher and a driver write."""
    database.sql("control", "update spillway.application set generation = 1, launched_at = now() where generation = 0")
    database.sql(
        "job",
        "insert into spillway.heartbeat (pipeline, application, generation, holder, state, detail)"
        " values ('words', 'count', 1, 'h', %s, %s)"
        " on conflict (pipeline, application, generation) do update set state = excluded.state, at = now()",
        state, detail,
    )  # fmt: skip


def test_apply_diff_show(tmp_path: Path) -> None:
    code, out, _ = run("topology", "diff", "words.yaml")
    assert code == 0
    assert out.splitlines()[0] == "pipeline words: added"
    code, out, err = run("topology", "apply", "words.yaml")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["pipeline words is now version 1", "  pipeline words: added"]
    assert run("topology", "apply", "words.yaml") == (0, "pipeline words is unchanged, version 1 stays in force\n", "")
    assert run("topology", "diff", "words.yaml") == (0, "pipeline words is unchanged, version 1 is in force\n", "")
    (tmp_path / "words.yaml").write_text(WORDS.replace("jobs.words:count", "jobs.words:better"))
    change = "operator count: function: jobs.words:count → jobs.words:better (restarts count)"
    assert run("topology", "diff", "words.yaml") == (0, f"{change}\n", "")
    assert json.loads(run("topology", "diff", "--json", "words.yaml")[1]) == {
        "pipeline": "words",
        "version": 1,
        "changes": [
            {
                "subject": "operator count",
                "field": "function",
                "old": "jobs.words:count",
                "new": "jobs.words:better",
                "restarts": ["count"],
            }
        ],
    }
    assert run("topology", "apply", "words.yaml")[1] == f"pipeline words is now version 2\n  {change}\n"
    assert run("topology", "show", "words", "--version", "1", "--source") == (0, WORDS, "")
    shown = run("topology", "show", "words")[1]
    assert "words version 2, applied " in shown
    assert "jobs.words:better" in shown
    assert json.loads(run("topology", "show", "words", "--json")[1])["operators"][0]["function"] == "jobs.words:better"


def test_refusals_are_one_sentence() -> None:
    assert run("start", "words") == (
        2,
        "",
        "error: there is no pipeline words: none was applied yet, use `spillway topology apply FILE`.\n",
    )
    run("topology", "apply", "words.yaml")
    assert run("topology", "show", "wards") == (2, "", "error: there is no pipeline wards: did you mean words?\n")
    assert run("status", "wards") == (2, "", "error: there is no pipeline wards: did you mean words?\n")
    expected = "error: there is no pipeline tips (there is: words): put it in force with `spillway topology apply FILE`.\n"
    for command in (("start", "tips"), ("stop", "tips"), ("status", "tips"), ("keep", "tips"), ("topology", "remove", "tips")):
        assert run(*command) == (2, "", expected)
    code, out, err = run("keep", "words", "words.in:count", "1.5")
    assert (code, out, err) == (2, "", "error: keep 1.5 is outside [0, 1]: give the share of events to keep.\n")


def test_keep_and_events() -> None:
    run("topology", "apply", "words.yaml")
    code, out, err = run("keep", "words", "words.in:count", "0.4", "--ttl", "1m", "--reason", "drill")
    assert (code, out) == (0, "keep of words.in:count is 0.4 for 1m, then 0.4 is held (decision 1)\n")
    assert err == "warning: query count falls to accuracy 0.4, below its floor 0.5\n"
    assert run("keep", "words")[1].startswith("words.in:count  0.4  (decision 1, cli:")
    run("keep", "words", "words.in:count", "0.6", "--ttl", "0.1s")
    time.sleep(0.2)
    assert run("keep", "words")[1].endswith("by hand, its time to live is over)\n")
    assert run("keep", "words", "--clear") == (0, "keeps everything again: words.in:count\n", "")
    assert run("keep", "words", "--clear") == (0, "nothing was set below 1\n", "")
    lines = run("events")[1].splitlines()
    assert [line.split()[2] for line in lines] == ["applied", "keep", "keep", "keep"]
    assert "keep of words.in:count is 0.4 for 60 s: drill; query count falls" in lines[1]
    assert len(run("events", "-n", "1")[1].splitlines()) == 1


def test_dead_letters_in_a_row_are_one_line(database: Database) -> None:
    run("topology", "apply", "words.yaml")

    def bad(edge: str, batch: int) -> None:
        database.sql(
            "job",
            "insert into spillway.event (actor, pipeline, subject, kind, text, at) "
            "values ('job', 'words', %s, 'dead_letter', %s, '2026-05-01 12:00:00Z'::timestamptz + make_interval(secs => %s))",
            edge, f"bad in batch {batch}", batch,
        )  # fmt: skip

    for batch in range(40):
        bad("a:count", batch)
        bad("b:count", batch)
    run("start", "words")
    bad("a:count", 41)
    lines = run("events")[1].splitlines()
    assert [(line.split()[2], line.split()[3]) for line in lines] == [
        ("applied", "words"),
        ("dead_letter", "words/a:count"),
        ("dead_letter", "words/b:count"),
        ("desired", "words"),
        ("dead_letter", "words/a:count"),
    ]
    assert lines[1].startswith("2026-05-01 12:00:39Z")
    assert lines[1].endswith("bad in batch 39  [job]  (the last of 40 since 2026-05-01 12:00:00Z)")
    assert lines[4].endswith("bad in batch 41  [job]")
    assert run("events", "-n", "2")[1].splitlines() == lines[3:], "so many lines, not so many events"


def test_status(database: Database) -> None:
    assert run("status") == (0, "no pipeline was applied yet: use `spillway topology apply FILE`\n", "")
    run("topology", "apply", "words.yaml")
    run("start", "words")
    out = run("status")[1]
    assert "never started (should be running)" in out
    beat(database, "running")
    out = run("status")[1]
    assert "words v1" in out
    assert "never started" not in out
    (found,) = json.loads(run("status", "--json")[1])
    (application,) = found["applications"]
    assert (application["state"], application["generation"]) == ("running", 1)
    assert application["operators"][0]["accuracy"] is None


def test_start_and_stop_wait_for_the_heartbeat(database: Database) -> None:
    run("topology", "apply", "words.yaml")

    def driver() -> None:
        time.sleep(0.5)
        beat(database, "starting")
        time.sleep(1.5)
        beat(database, "running")

    thread = threading.Thread(target=driver)
    thread.start()
    code, out, err = run("start", "words", "--wait", "--timeout", "30s")
    thread.join()
    assert (code, err) == (0, "")
    said = [line.split("] ")[-1] for line in out.splitlines()]
    assert said[0] == "pipeline words should be running"
    assert said[-1] == "count is running"
    code, out, err = run("stop", "words", "--wait", "--timeout", "1s")
    assert code == 1
    assert err == "error: pipeline words is not stopped after 1 s (count is running): see `spillway events words`.\n"
    beat(database, "stopped")
    assert run("stop", "words", "--wait")[1].splitlines()[0] == "pipeline words was already asked to be stopped"
    assert run("topology", "remove", "words") == (0, "pipeline words is out of force\n", "")


def test_who_waits_is_told_why_a_driver_failed(database: Database) -> None:
    run("topology", "apply", "words.yaml")
    beat(database, "failed", "there is no column zoen")
    code, out, _ = run("start", "words", "--wait", "--timeout", "1s")
    assert code == 1
    assert [line.split("] ")[-1] for line in out.splitlines()][1:] == ["count is failed: there is no column zoen"]


def test_reset(database: Database) -> None:
    run("topology", "apply", "words.yaml")
    beat(database, "running")
    database.sql(
        "job", "insert into spillway.lease (pipeline, application, generation, holder) values ('words', 'count', 1, 'h')"
    )
    running = "operator count of pipeline words still runs (application count): stop it first with `spillway stop words --wait`."
    assert run("reset", "words", "count", "--yes") == (2, "", f"error: {running}\n")
    beat(database, "failed")
    means = (
        "operator count of pipeline words will start anew:\n"
        "  its state is lost\n"
        "  its input is read from where `starting` says\n"
        "    words.in: earliest\n"
        "  its outputs and dead letters may repeat rows that are there already\n"
    )
    code, out, err = run("reset", "words", "count")
    assert (code, out.startswith(means), err) == (1, True, "error: aborted.\n"), "nobody said yes"
    assert database.sql("read", "select checkpoint from spillway.operator_state") == [(0,)]
    assert run("reset", "words", "count", "--yes") == (
        0,
        f"{means}operator count has the new checkpoint 1: `spillway start words` begins it\n",
        "",
    )
    assert run("reset", "words", "sum", "-y")[2] == "error: pipeline words has no operator sum: its operators are count.\n"


def test_migrate() -> None:
    assert run("migrate") == (0, "the database is up to date\n", "")
