"""The player where no broker is needed: refusals at the start, and the report's arithmetic."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from spillway.inject.player import PlayOptions, main_play
from spillway.inject.report import Report, Second, TopicReport, second_table

FILE = "name: x\nduration: 1s\ntopics: {t: {events: points, rate: 10}}\n"


def test_an_absent_broker_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FILE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nothing can answer there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        err = io.StringIO()
        assert main_play(tmp_path / "x.yaml", bootstrap=address, options=PlayOptions(connect_timeout_s=1), err=err) == 1
    assert err.getvalue() == f"No Kafka broker answers at {address}: start it (`make up`) or check SPILLWAY_KAFKA.\n"


def test_a_bad_file_is_explained_and_fails(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FILE.replace("rate: 10", "rate: -1"))
    err = io.StringIO()
    assert main_play(tmp_path / "x.yaml", bootstrap="127.0.0.1:1", err=err) == 1
    assert err.getvalue().startswith(f"{tmp_path / 'x.yaml'}:3: topics.t.rate: -1 is outside")


def test_without_an_address_it_says_which_variable_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text(FILE)
    monkeypatch.setenv("SPILLWAY_HOME", str(tmp_path))
    monkeypatch.delenv("SPILLWAY_KAFKA", raising=False)
    err = io.StringIO()
    assert main_play(tmp_path / "x.yaml", err=err) == 1
    assert err.getvalue().startswith("SPILLWAY_KAFKA is not set")
    assert err.getvalue().count("\n") == 1


def test_pipelines_need_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.inject.broker import PlayError
    from spillway.inject.pipelines import PipelineSwitch
    from spillway.inject.scenario import parse

    monkeypatch.setenv("SPILLWAY_HOME", str(tmp_path))
    monkeypatch.delenv("SPILLWAY_DSN_CONTROL", raising=False)
    assert PipelineSwitch(parse(FILE)).finish() == []
    with pytest.raises(PlayError, match=r"^The scenario's pipelines cannot be started: SPILLWAY_DSN_CONTROL is not set"):
        PipelineSwitch(parse(FILE + "pipelines: [{name: p}]\n"))


def report(**changes: object) -> Report:
    topic = {
        "topic": "t",
        "asked": 1000,
        "sent": 1000,
        "garbage": 1,
        "given_up": 0,
        "failed": 0,
        "delivered": 1000,
        "at_broker": 1000,
    }
    rows = tuple(
        Second(second=n, topic="t", asked=500, sent=sent, at_broker=None, late_ticks=1, worst_late_ms=21.0, waiting=3)
        for n, sent in enumerate((500, 475, 25))
    )
    base = {
        "scenario": "s",
        "asked_s": 2.0,
        "ran_s": 2.01,
        "flushed_s": 2.02,
        "stopped_early": False,
        "topics": (TopicReport(**{**topic, **changes}),),  # type: ignore[arg-type]
        "seconds": rows,
        "ticks": 100,
        "late_ticks": 3,
        "late_ms_p50": 0.1,
        "late_ms_p99": 2.0,
        "late_ms_max": 21.0,
        "cpu_s": 0.5,
        "problems": (),
    }
    return Report(**base)  # type: ignore[arg-type]


def test_a_report_is_good_only_when_all_that_was_asked_arrived() -> None:
    assert report().ok
    assert not report(sent=999, given_up=1, delivered=999).ok
    assert not report(delivered=999, failed=1).ok
    assert report(delivered=990).topics[0].error_pct == pytest.approx(-1.0)


def test_the_error_per_second_leaves_out_the_unfinished_one() -> None:
    assert report().second_error_pct() == (2.5, 5.0)
    assert json.loads(report().to_json())["second_error_pct_max"] == 5.0


def test_tables_show_every_figure() -> None:
    head, row, summary = report(at_broker=None).table().splitlines()
    assert head.split() == [
        "topic",
        "asked",
        "sent",
        "delivered",
        "at",
        "broker",
        "failed",
        "given",
        "up",
        "garbage",
        "error",
        "%",
    ]
    assert row.split() == ["t", "1000", "1000", "1000", "–", "0", "0", "1", "+0.000"]
    assert "3 of 100 ticks late" in summary
    assert second_table(report().seconds).splitlines()[2].split() == ["1", "t", "500", "475", "–", "-5.00", "1", "21.0", "3"]
