"""`spillway rescale` and `spillway plans` against a real Postgres, with somebody who carries plans out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spillway.cli.app import app
from typer.testing import CliRunner

from tests.support.database import Database
from tests.support.rescaling import Line

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, migrated: Database) -> None:
    for name in [n for n in os.environ if n.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "env").write_text("".join(f"{k}={v}\n" for k, v in migrated.environ().items()))
    monkeypatch.setenv("SPILLWAY_HOME", str(run_folder))
    monkeypatch.setattr("spillway.cli.rescale.PACE_S", 0.05)


@pytest.fixture
def line(migrated: Database) -> Iterator[Line]:
    found = Line(migrated)
    yield found
    found.close()


class Carrier(threading.Thread):
    """Does what spillway_rescale and the drivers do, until it is told to stop."""

    def __init__(self, line: Line) -> None:
        super().__init__(daemon=True)
        self._line, self._over = line, threading.Event()

    def __enter__(self) -> Carrier:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        while not self._over.wait(0.02):
            if self._line.sql("select 1 from spillway.rescale_plan where pipeline = %s", self._line.name):
                self._line.carry(passes=1)


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args), prog_name="spillway")
    return result.exit_code, result.stdout, result.stderr


def plan_of(line: Line) -> Any:
    return json.loads(run("plans", line.name, "--json")[1])[0]


def test_a_plan_is_printed_and_followed_to_its_end(line: Line) -> None:
    with Carrier(line):
        code, out, err = run("rescale", line.name, "count", "--to", "4", "--kind", "executors")
    assert (code, err) == (0, "")
    said = out.splitlines()
    assert said[0].startswith("count from 2 to 4 executors by executors, with a pause of about ")
    assert "  application main: executors 2 → 4" in said
    assert "  steps: validate, order, scaled, verify, digest, done" in said
    assert [line.split()[1] for line in said if line.startswith("✓")] == [
        "validate",
        "order",
        "scaled",
        "verify",
        "digest",
        "done",
    ]
    code, out, _ = run("plans", line.name)
    assert code == 0
    assert "count          executors done            executors 2 → 4; pause" in out
    assert plan_of(line)["observed"]["pause_s"] > 0


def test_a_dry_run_asks_for_nothing(line: Line) -> None:
    code, out, _ = run("rescale", line.name, "count", "--buckets", "16", "--dry-run")
    assert code == 0
    assert "buckets 8 → 16" in out
    assert run("plans", line.name)[1].startswith(f"no operator of {line.name} was rescaled yet")
    planned = json.loads(run("rescale", line.name, "count", "--to", "3", "--dry-run", "--json")[1])
    assert (planned["executors"], planned["answer"]) == ({"from": 2, "to": 3}, "change")


def test_what_it_has_already_is_no_error(line: Line) -> None:
    assert run("rescale", line.name, "count", "--to", "2") == (0, "count has all that already\n", "")


def test_nothing_asked_for_is_said(line: Line) -> None:
    code, out, err = run("rescale", line.name, "count")
    assert (code, out) == (2, "")
    assert err.startswith("error: say what count is to have: --to N executors, --buckets K or --node NODE;")


def test_a_plan_that_goes_back_is_a_failure_with_its_reason(line: Line) -> None:
    line.cluster.refuses = "the cluster has no node n2."
    with Carrier(line):
        code, _, err = run("rescale", line.name, "count", "--node", "n2")
    assert code == 1
    assert "is rolled back: launch: the successor of" in err
    assert "the cluster has no node n2" in err
    assert "rolled back" in run("plans", line.name)[1]
    assert "✗ launch" in run("plans", line.name, "--steps")[1]


def test_no_wait_and_cancel(line: Line) -> None:
    code, out, _ = run("rescale", line.name, "count", "--node", "n2", "--no-wait")
    assert code == 0
    number = plan_of(line)["id"]
    assert f"plan {number} is asked for" in out
    code, _, err = run("rescale", line.name, "count", "--to", "3")
    assert (code, "a plan for main is under way" in err) == (2, True)
    assert run("rescale", "--cancel", str(number))[0] == 0
    assert plan_of(line)["state"] == "rolled_back"
    assert run("rescale", "--cancel", str(number))[0] == 2


def test_a_plan_that_nobody_begins_is_explained(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.cli.rescale.NOBODY_S", 0.0)
    seen: list[str] = []
    monkeypatch.setattr("spillway.cli.show.Progress.show", lambda self, lines, foot: seen.append(foot))
    code, _, err = run("rescale", line.name, "count", "--to", "3", "--timeout", "300ms")
    assert code == 1
    assert "is the DAG spillway_rescale paused in Airflow?" in seen[-1]
    assert "is still under way after 0.3 s, at step planned; it goes on" in err


def test_ctrl_c_leaves_the_plan_running_and_says_so(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spillway.cli.show.Progress.show", interrupt)
    code, _, err = run("rescale", line.name, "count", "--to", "3")
    assert code == 130
    number = plan_of(line)["id"]
    assert (
        f"goes on without you: `spillway plans {line.name}` shows it; `spillway rescale --cancel {number}` takes it back." in err
    )
    assert plan_of(line)["state"] == "planned"


REFUSED = [
    (("cuont", "--to", "3"), {}, "there is no operator cuont; did you mean count?"),
    (("count", "--to", "9"), {}, "count cannot have 9 executors: its bounds are 1 to 6"),
    (("count", "--to", "6", "--buckets", "4"), {}, "count would have 4 buckets for 6 executors, some of them idle"),
    (("count", "--node", "n7"), {}, "there is no node n7"),
    (("count", "--node", "n2", "--kind", "executors"), {}, "executors cannot move it to another node; handover or shadow can"),
    (("count", "--to", "3"), {"SPILLWAY_POLICY_RESCALE_QUOTA_PER_DAY": "0"}, "0 of 0 changes within 24 hours are used up"),
    (("count", "--to", "3"), {"SPILLWAY_POLICY_RESCALE_FROZEN": "00:00-24:00"}, "wait until it is over"),
]


@pytest.mark.parametrize(("arguments", "environment", "words"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_what_is_refused_says_why_in_one_sentence(
    line: Line, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], environment: dict[str, str], words: str
) -> None:
    for node in ("n1", "n2"):
        line.job(
            "insert into spillway.node_metric (node, at, cores, cpu_pct, own_cpu_pct, load1, mem_used, mem_total, net_rx_bps,"
            " net_tx_bps, window_s) values (%s, now(), 1, 0, 0, 0, 0, 0, 0, 0, 5)", node,
        )  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = run("rescale", line.name, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert run("plans", line.name, "--json")[1].strip() == "[]"


def test_state_that_is_not_committed_is_refused(line: Line) -> None:
    line.sql("update spillway.operator_state set checkpoint = 3 where pipeline = %s", line.name)
    code, _, err = run("rescale", line.name, "count", "--to", "3")
    assert (code, "count has no committed batch to go on from yet" in err) == (2, True)


def test_an_engine_that_cannot_repartition_is_refused(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.store.rescale_world.version", lambda package: "4.1.2")
    code, _, err = run("rescale", line.name, "count", "--buckets", "16")
    assert code == 2
    assert "the buckets of count cannot be changed: Spark 4.1.2 cannot repartition a checkpoint, 4.2 or newer is needed." in err
    assert run("rescale", line.name, "count", "--to", "3", "--dry-run")[0] == 0


def test_a_pipeline_that_is_not_there(line: Line) -> None:
    for command in (("rescale", "nowhere", "count", "--to", "2"), ("plans", "nowhere")):
        code, _, err = run(*command)
        assert (code, "there is no pipeline nowhere" in err) == (2, True)
