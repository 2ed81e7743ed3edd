from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytestmark = pytest.mark.dags
DAGS = {"spillway_streams", "spillway_housekeeping", "spillway_qod", "spillway_capacity", "spillway_rescale"}


def test_all_dags_are_read_without_an_error(parsed):
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == DAGS


def test_a_dag_file_is_cheap_to_parse(parsed):
    assert set(parsed["cpu_s"]) == {f"{dag}.py" for dag in DAGS}
    assert {name: cost for name, cost in parsed["cpu_s"].items() if cost >= 0.2} == {}


def test_parsing_imports_nothing_heavy(parsed):
    assert parsed["heavy"] == []


def test_schedules_are_aligned_and_never_overlap(parsed):
    for dag in parsed["dags"].values():
        assert dag["timetable"] == "DeltaDataIntervalTimetable"
        assert dag["max_active_runs"] == 1
        assert dag["catchup"] is False
        assert datetime.fromisoformat(dag["start_date"]) < datetime.now(UTC)
    assert parsed["dags"]["spillway_streams"]["every_s"] == 15
    assert parsed["dags"]["spillway_streams"]["tasks"] == ["converge"]
    assert parsed["dags"]["spillway_housekeeping"]["every_s"] == 3600
    assert parsed["dags"]["spillway_qod"]["every_s"] == 15
    assert parsed["dags"]["spillway_qod"]["tasks"] == ["decide", "observe", "publish", "verify"]
    assert parsed["dags"]["spillway_capacity"]["every_s"] == 60
    assert parsed["dags"]["spillway_capacity"]["tasks"] == ["detect", "observe", "propose"]
    assert parsed["dags"]["spillway_rescale"]["every_s"] == 30
    assert parsed["dags"]["spillway_rescale"]["tasks"] == ["carry_out", "conclude", "jobs", "look", "offline"]


@pytest.mark.parametrize("body", ["converge_streams", "keep_house", "keep_airflow_house"])
def test_a_replay_of_the_past_touches_nothing(body, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    from spillway.act import tasks

    def refuse(*_):
        raise AssertionError("the store was opened")

    monkeypatch.setattr(tasks, "control", refuse)
    monkeypatch.setattr("spillway.act.launch.launcher_from", lambda _: None)
    assert not getattr(tasks, body)("backfill")
    with pytest.raises(AssertionError, match="the store was opened"):
        getattr(tasks, body)("scheduled")
