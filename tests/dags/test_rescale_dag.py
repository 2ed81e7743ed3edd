"""Plans as a DAG: nothing open ends a run at once, an open plan is carried to its end, its state is counted by a Spark job."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_process import REPO, call
from tests.support.database import Database
from tests.support.rescaling import Line

pytestmark = [pytest.mark.dags, pytest.mark.integration, pytest.mark.timeout(900)]
NOTHING = {"carry_out": "skipped", "jobs": "skipped", "offline": "skipped", "conclude": "skipped"}


@pytest.fixture
def airflow(airflow_on: Callable[..., dict[str, str]], tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Its Spark is a local one, and its cluster nobody asks."""
    return functools.partial(
        airflow_on,
        AIRFLOW_CONN_SPILLWAY_SPARK='{"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}',
        SPILLWAY_SPARK_MASTER="spark://127.0.0.1:1",
        SPILLWAY_SPARK_REST="http://127.0.0.1:1",
        SPILLWAY_SPARK_UI="http://127.0.0.1:1",
        SPILLWAY_OFFLINE=str(REPO / "tests" / "support" / "counting_job.py"),
        SPILLWAY_CHECKPOINTS=f"file:{tmp_path}",
        PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin",
    )


class Ticking(threading.Thread):
    """The drivers of a line go on by themselves."""

    def __init__(self, line: Line) -> None:
        super().__init__(daemon=True)
        self._line, self._over = line, threading.Event()

    def __enter__(self) -> Ticking:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        while not self._over.wait(0.3):
            self._line.tick()


def tasks(run: dict[str, Any]) -> dict[str, str]:
    return {name: state for name, state in run["tasks"].items() if name != "look"}


def test_from_nothing_to_done_and_a_job_that_fails(
    airflow: Callable[..., dict[str, str]], database: Database
) -> None:  # fmt: skip
    """One Airflow process for all: it takes seconds to come up."""
    line = Line(database)
    [idle] = call(airflow(), "test", str(REPO / "dags"), "spillway_rescale")
    assert (idle["state"], idle["tasks"]["look"], tasks(idle)) == ("success", "success", NOTHING)

    line.ask(to=4, kind="executors")
    with Ticking(line):
        [run] = call(airflow(), "test", str(REPO / "dags"), "spillway_rescale")
    assert (run["state"], set(run["tasks"].values())) == ("success", {"success"}), run
    done = line.plan()
    assert (done.state, line.application()[2]) == ("done", 4), done
    digest = next(s for s in done.steps if s.step == "digest")
    assert digest.evidence["tries"] == 1
    assert digest.evidence["state"][0]["rows_after"] == 828

    line.ask(to=2, kind="executors")
    with Ticking(line):
        found = call(airflow(SPILLWAY_TEST_REFUSES="count"), "test", str(REPO / "dags"), *["spillway_rescale"] * 4)
    assert [r["tasks"]["offline"] for r in found] == ["failed"] * 3 + ["skipped"]
    assert [r["state"] for r in found] == ["failed"] * 3 + ["success"]
    failed = line.plan()
    assert (failed.state, line.application()[2]) == ("failed", 2), "what is not known takes nothing back"
    assert "the state of count was not compared: spillway-digest" in failed.detail
    line.close()


def test_a_replay_of_the_past_carries_nothing_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    from spillway.act import tasks

    def refuse(*_: object) -> None:
        raise AssertionError("the store was opened")

    monkeypatch.setattr(tasks, "control", refuse)
    assert tasks.open_plans("backfill", {}) == []
    with pytest.raises(AssertionError, match="the store was opened"):
        tasks.open_plans("scheduled", {})
