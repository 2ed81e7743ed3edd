"""A replay decides the past once more: the same twice, beside what was, and nothing that runs hears of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from spillway.act.cycle import decide_all, observe
from spillway.act.live import NothingObserved, step
from spillway.act.publish import publish
from spillway.act.replay import intervals, replay
from spillway.model.window import Interval
from spillway.policy import Policy
from spillway.store.decisions import Run
from typer.testing import CliRunner

from tests.support.database import Database
from tests.support.recorded import Recording, noon, store

pytestmark = pytest.mark.integration
SECONDS = 300.0
RUN = Run(origin="replay", replay="again", policy=Policy())
KEEPS = """
select pipeline, interval_end, mode, version, status, reason, output, expected from spillway.decision
where origin = %s order by interval_end"""


@pytest.fixture
def recorded(database: Database) -> Iterator[Any]:
    recording = Recording(start=noon(), seconds=SECONDS, rush=(100.0, 220.0))
    store(database, recording)
    conn = database.connect("control")
    yield recording, conn
    conn.close()


def live(conn: Any, recording: Recording) -> None:
    """The cycles as they ran then, with the policy of today; what they publish stays unheard by the recording."""
    run = Run(policy=Policy())
    for window in intervals(recording.start, recording.at(SECONDS), 15.0):
        observe(conn, window, run)
        decide_all(conn, window, run)
        publish(conn, window, run, now=window.end + timedelta(seconds=3))


def test_a_second_replay_decides_the_same_and_nothing_live_changes(database: Database, recorded: Any) -> None:
    recording, conn = recorded
    live(conn, recording)
    watched = ("edge_setting", "setting_history", "event", "reschedule", "application", "pipeline")
    before = [database.sql("owner", f"select * from spillway.{t} order by 1, 2, 3") for t in watched]
    historic = database.sql("owner", KEEPS, "live")
    assert before[0], "something is in force"
    assert replay(conn, recording.start, recording.at(SECONDS), RUN) == 20
    first = database.sql("owner", KEEPS, "replay")
    assert replay(conn, recording.start, recording.at(SECONDS), RUN) == 20
    assert database.sql("owner", KEEPS, "replay") == first
    assert len(first) == 20
    assert [database.sql("owner", f"select * from spillway.{t} order by 1, 2, 3") for t in watched] == before
    assert database.sql("owner", KEEPS, "live") == historic


def test_the_same_policy_decides_what_was_decided(database: Database, recorded: Any) -> None:
    recording, conn = recorded
    live(conn, recording)
    replay(conn, recording.start, recording.at(SECONDS), RUN)
    outputs = "select interval_end, output from spillway.decision where origin = %s order by 1"
    assert database.sql("owner", outputs, "replay") == database.sql("owner", outputs, "live")


def test_a_backfill_takes_all_steps_and_changes_nothing_that_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    bench = importlib.import_module("replay")
    assert bench.measure(bench.Store(database.environ()), 5.0, 2) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["windows"] == 20 and all(last["goals"].values())
    assert len(database.sql("read", "select id from spillway.decision where replay = 'bench'")) == 40


def test_a_window_that_was_not_observed_is_not_decided(database: Database, recorded: Any) -> None:
    recording, conn = recorded
    _, window, following, *_ = intervals(recording.start, recording.at(SECONDS), 15.0)
    with pytest.raises(NothingObserved, match="rec was not observed in the window that ended at"):
        step(conn, "decide", window, RUN)
    assert database.sql("owner", KEEPS, "replay") == []
    step(conn, "observe", window, RUN)
    step(conn, "decide", window, RUN)
    assert [row[1] for row in database.sql("owner", KEEPS, "replay")] == [window.end]
    with pytest.raises(NothingObserved):
        step(conn, "decide", following, RUN)
    undeclared = Interval(start=window.start - timedelta(hours=1), end=window.end - timedelta(hours=1))
    assert step(conn, "decide", undeclared, RUN) == []


BOLDER = Run(origin="replay", replay="bolder", policy=Policy(qod_raise_limit=1.0, qod_raise_cycles=1, qod_drain_horizon_s=3600.0))


def test_what_was_replayed_before_changes_no_replay(database: Database, recorded: Any) -> None:
    """The windows from the middle on, then those just before them, then the first ones again: a replay begins where the live
    cycles were, not where another one of its name ended."""
    recording, conn = recorded
    live(conn, recording)
    middle, last = recording.at(150.0), recording.at(SECONDS)
    replay(conn, middle, last, BOLDER)
    first = database.sql("owner", KEEPS, "replay")
    assert len(first) == 10
    replay(conn, recording.start, middle, BOLDER)
    replay(conn, middle, last, BOLDER)
    assert database.sql("owner", KEEPS, "replay")[10:] == first


def test_a_replay_whose_first_window_is_refused_remembers_nothing_of_another(database: Database, recorded: Any) -> None:
    recording, conn = recorded
    live(conn, recording)
    middle, last = recording.at(150.0), recording.at(SECONDS)
    damage = "update spillway.edge_metric set keep = 2 where ended_at > %s and ended_at <= %s"
    database.sql("owner", damage, middle, middle + timedelta(seconds=15))
    replay(conn, middle, last, BOLDER)
    first = database.sql("owner", KEEPS, "replay")
    assert [row[4] for row in first[:2]] == ["refused", "decided"]
    replay(conn, recording.start, middle, BOLDER)
    replay(conn, middle, last, BOLDER)
    assert database.sql("owner", KEEPS, "replay")[-10:] == first


def test_another_policy_answers_what_would_have_been(
    database: Database, recorded: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from spillway.cli.app import app

    recording, conn = recorded
    live(conn, recording)
    for name, value in database.environ().items():
        monkeypatch.setenv(name, value)
    policy = tmp_path / "bolder.yaml"
    policy.write_text("qod_raise_limit: 1.0\nqod_raise_cycles: 1\nqod_drain_horizon_s: 3600\n")
    span = ["--from", recording.start.isoformat(), "--to", recording.at(SECONDS).isoformat()]
    same = CliRunner().invoke(app, ["replay", *span])
    assert same.exit_code == 0, same.output
    assert "20 windows in" in same.output
    assert ": 0 keeps differ; 0 decisions only then, 0 only now" in same.output
    figure = tmp_path / "replay.png"
    other = CliRunner().invoke(
        app, ["replay", *span, "--policy", str(policy), "--pipeline", "rec", "--plot", str(figure), "--json"]
    )
    assert other.exit_code == 0, other.output
    found = json.loads(other.stdout)
    assert found["windows"] == 20
    assert found["differences"]
    assert {d["edge"] for d in found["differences"]} == {"front:heavy"}
    assert all(d["would_be"] > d["was"] for d in found["differences"]), "it drains slowly, so it sheds less"
    assert found["accuracy"]["rec/heavy"]["would_be"] > found["accuracy"]["rec/heavy"]["was"]
    assert figure.stat().st_size > 10_000
    table = CliRunner().invoke(app, ["replay", *span, "--policy", str(policy)])
    assert "would be" in table.output
    assert "front:heavy" in table.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "yesterday"], "--from yesterday is no moment: give 2026-05-01T12:00 (UTC), or how long ago, such as 60m."),
        (["--from", "99999999999h"], "--from 99999999999h is no moment: give 2026-05-01T12:00 (UTC), or how long ago,"),
        (["--from", "0001-01-01T00:00+14:00"], "--from 0001-01-01T00:00+14:00 is no moment: give 2026-05-01T12:00 (UTC)"),
        (["--from", "1h", "--to", "9999-12-31T23:59-14:00"], "--to 9999-12-31T23:59-14:00 is no moment: give 2026-05-01T12:00"),
        (["--from", "9999-12-31T23:59:59"], "there is no whole window of 15 s between 9999-12-31 23:59:59Z and 20"),
        (["--from", "5s"], "there is no whole window of 15 s between 20"),
        (
            ["--from", "2020-01-01", "--to", "2020-01-02"],
            "there is nothing to replay between 2020-01-01 00:00:00Z and 2020-01-02 ",
        ),
        (["--from", "1h", "--plot", "a.doc"], "error: a.doc cannot be written: a figure ends in .png, .svg or .pdf."),
        (["--from", "1h", "--plot", "no/such/a.png"], "error: no/such/a.png cannot be written: No such file or directory."),
        (["--from", "5m", "--pipeline", "rex"], "there is no pipeline rex: did you mean rec?"),
        (["--from", "5m", "--policy", "/nowhere.yaml"], "the policy file /nowhere.yaml cannot be read: No such file"),
    ],
)
def test_what_cannot_be_replayed_is_explained(
    database: Database, recorded: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    from spillway.cli.app import app

    for name, value in database.environ().items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["replay", *arguments])
    assert done.exit_code == 2
    assert message in done.output
    assert done.output.count("\n") == 1
    assert database.sql("read", "select count(*) from spillway.decision") == [(0,)], "nothing was done"


def test_a_replay_begins_with_what_is_stored(database: Database, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.cli.app import app

    recording, _ = recorded
    for name, value in database.environ().items():
        monkeypatch.setenv(name, value)
    to = recording.at(60.0).isoformat()
    done = CliRunner().invoke(app, ["replay", "--from", "2001-01-01", "--to", to, "--json"])
    assert done.exit_code == 0, done.output
    assert done.stderr == f"nothing is stored from before {recording.start:%Y-%m-%d %H:%M:%S}Z: the replay begins there\n"
    found = json.loads(done.stdout)
    assert (found["windows"], found["from"]) == (4, recording.start.isoformat())


def test_mode_decisions_and_why(database: Database, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.cli.app import app

    def say(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == code, done.output
        return str(done.output)

    recording, conn = recorded
    for name, value in database.environ().items():
        monkeypatch.setenv(name, value)
    assert say("why", "rec", code=2) == "error: there is no decision on rec.\n"
    assert say("decisions", "rex", code=2) == "error: there is no pipeline rex: did you mean rec?\n"
    assert say("decisions") == "nothing was decided yet: see `spillway mode`, and the DAG spillway_qod in Airflow\n"
    live(conn, recording)
    assert say("mode") == "rec  apply\n"
    assert say("mode", "rec", "apply") == "the mode of rec was already apply\n"
    told = say("mode", "rec", "off")
    assert told.startswith("the mode of rec is off\nstill in force: keep 0.")
    assert "`spillway keep rec --clear` keeps everything again" in told
    assert say("mode", "rec", "auto", code=2) == "error: auto is not a mode: give off, advise or apply.\n"
    assert say("mode", "rex", "off", code=2) == "error: there is no pipeline rex: did you mean rec?\n"
    lines = say("decisions", "rec", "-n", "3").splitlines()
    assert len(lines) == 3
    assert "published" in lines[-1]
    number = lines[-1].split()[0]
    why = say("why", "rec")
    assert why.startswith(f"decision {number} on rec by what was measured from ")
    assert "  query heavy gets accuracy " in why
    assert say("why", "rec", "front:heavy").splitlines()[1].startswith("  front:heavy  0.")
    assert say("why", "rec", "front:none", code=2).startswith("error: pipeline rec has no edge front:none: its edges are ")
    assert json.loads(say("why", "rec", "--json"))["id"] == int(number)
    seen = json.loads(say("decisions", "--observation", number))
    assert [n["name"] for n in seen["nodes"]] == ["n1", "n2"]
    assert "there is no observation of decision 999999" in say("decisions", "--observation", "999999", code=2)
    say("mode", "rec", "apply")
    database.sql("owner", "delete from spillway.topic_metric")
    window = Interval(start=recording.at(SECONDS - 15.0) + timedelta(seconds=15), end=recording.at(SECONDS + 15.0))
    observe(conn, window, Run(policy=Policy()))
    [(refused,)] = database.sql("read", "select id from spillway.decision where status = 'refused'")
    assert say("decisions", "--observation", str(refused), code=2) == (
        f"error: decision {refused} was refused for what was observed, which `spillway decide qod` does not read: "
        f"`spillway why rec --decision {refused}` tells why.\n"
    )
