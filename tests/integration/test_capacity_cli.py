"""`spillway bottleneck`: what was found and proposed, in words; and the way between the two kinds of decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from spillway.cli.app import app
from typer.testing import CliRunner

from tests.support.cycles import LIVE as QOD
from tests.support.evaluations import CALM, RUSH, Evaluations

pytestmark = pytest.mark.integration
Begin = Callable[..., Evaluations]


@pytest.fixture
def spillway(database: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name, value in database.environ().items():
        monkeypatch.setenv(name, value)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_a_bottleneck_in_words(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    at = evaluate()
    for number in (RUSH, RUSH + 1, RUSH + 2):
        at.run(number)
    done = spillway("bottleneck", "rec")
    assert done.exit_code == 0, done.output
    decision, _, reason, output = at.decision(RUSH + 2)
    lines = done.output.splitlines()
    assert lines[0].startswith(f"evaluation {decision} of rec by what was measured from ")
    assert lines[0].endswith(": decided (mode apply)")
    assert lines[1] == f"  {reason}"
    assert "  rec.in: 1,600 rows/s are written to it, 1,600 rows/s are taken, " in done.output
    [heavy] = [line for line in lines if line.startswith("  front:heavy")]
    assert "(by the time of its batches, " in heavy
    assert heavy.endswith(f"{output['edges'][2]['backlog']:,.0f} rows wait")
    assert any(line.startswith("  cut: front → heavy, which lets 7") for line in lines)
    assert "  bottleneck: heavy" in lines
    [(proposal,)] = at.sql("select id from spillway.decision where kind = 'rescale' and status = 'published'")
    assert f"proposal {proposal}: published" in lines
    assert any(line.startswith("  behind: heavy from 1 to ") for line in lines)
    assert any(line.startswith("    target: 1 → ") for line in lines)
    assert any(line.startswith("    expected: ") for line in lines)


def test_an_earlier_one_and_one_for_programs(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    at = evaluate()
    at.run(CALM)
    at.run(RUSH)
    calm = at.decision(CALM)[0]
    assert "  bottleneck: none" in spillway("bottleneck", "rec", "--decision", str(calm)).output.splitlines()
    proposal = at.decision(CALM, "rescale")[0]
    assert spillway("bottleneck", "rec", "--decision", str(proposal)).output.startswith(f"evaluation {calm} "), "its evaluation"
    found = json.loads(spillway("bottleneck", "rec", "--json").output)
    assert found["evaluation"]["output"]["bottlenecks"] == ["heavy"]
    assert found["proposal"]["output"]["plans"]


def test_what_a_gate_refused_is_shown(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    at = evaluate()
    at.sql("update spillway.edge_metric set rows_kept = -rows_kept")
    at.run(RUSH)
    done = spillway("bottleneck", "rec")
    assert ": refused (mode apply)" in done.output
    assert "  observation gate, flow_not_to_be_negative: " in done.output
    decision = at.decision(RUSH)[0]
    refused = spillway("decisions", "--observation", str(decision))
    assert refused.exit_code == 2
    assert f"`spillway bottleneck rec --decision {decision}` tells why" in refused.output
    assert "which `spillway decide capacity` does not read" in refused.output


def test_what_was_seen_feeds_the_pure_commands(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    at = evaluate()
    at.run(RUSH)
    for kind, field in (("capacity", "max_flow"), ("rescale", "plans")):
        decision, _, _, output = at.decision(RUSH, kind)
        body = spillway("decisions", "--observation", str(decision)).output
        again = json.loads(CliRunner().invoke(app, ["decide", kind, "-"], input=body).output)
        assert again[field] == output[field]


def test_each_kind_points_to_the_other(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    from spillway.act.cycle import decide_all, observe

    at = evaluate()
    at.run(RUSH)
    found = spillway("why", "rec", "--decision", str(at.decision(RUSH)[0]))
    assert found.exit_code == 2
    assert "see `spillway bottleneck rec --decision " in found.output
    observe(at.conn, at.window(RUSH), QOD)
    decide_all(at.conn, at.window(RUSH), QOD)
    [(keep,)] = at.sql("select id from spillway.decision where kind = 'qod'")
    found = spillway("bottleneck", "rec", "--decision", str(keep))
    assert found.exit_code == 2
    assert f"see `spillway why rec --decision {keep}`" in found.output
    assert spillway("why", "rec").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bottleneck", "nobody"), "nobody"),
        (("bottleneck", "rec"), "there is no evaluation of rec"),
        (("bottleneck", "rec", "--decision", "99"), "there is no such evaluation of rec"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    evaluate: Begin, spillway: Callable[..., Any], words: tuple[str, ...], said: str
) -> None:
    evaluate()
    done = spillway(*words)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert said in done.output


def test_who_is_off_is_told_so(evaluate: Begin, spillway: Callable[..., Any]) -> None:
    evaluate("off")
    assert "its mode is off, see `spillway mode rec advise`" in spillway("bottleneck", "rec").output
