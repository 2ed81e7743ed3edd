"""The bench of the rush: what it counts as played, as behind and as less shed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.benches import BENCH, last_line

WITH = {
    "lag_controlled_s": 0.4, "lagging_cycles": 3, "floors_kept": True, "in_order": True, "recovered_cycles": 5, "windows": 9,
    "decided": 9, "refused": 0,
}  # fmt: skip
WITHOUT = {"lag_uncontrolled_s": 40.0, "lag_grows": True, "waiting_uncontrolled_s": 44.0, "waiting_grows": True}


@pytest.mark.parametrize(
    ("with_it", "without", "held", "missed"),
    [
        ({}, {}, True, None),
        ({}, {}, False, "the_rush_was_played"),
        ({}, {"waiting_grows": False}, True, "without_control_the_lag_grows_all_along"),
        ({"lagging_cycles": 4}, {}, True, "lag_under_2_s_within_3_cycles"),
        ({"lagging_cycles": None}, {}, True, "lag_under_2_s_within_3_cycles"),
        ({"floors_kept": False}, {}, True, "every_query_at_least_its_floor"),
        ({"in_order": False}, {}, True, "the_lower_priority_gives_way_first"),
        ({"recovered_cycles": 6}, {}, True, "whole_again_within_5_cycles"),
        ({"recovered_cycles": None}, {}, True, "whole_again_within_5_cycles"),
        ({"refused": 1}, {}, True, "no_decision_refused"),
        ({"decided": 8}, {}, True, "a_decision_on_every_window"),
        ({"windows": 0, "decided": 0}, {}, True, "a_decision_on_every_window"),
    ],
)
def test_rush_hour(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    with_it: dict[str, Any],
    without: dict[str, Any],
    held: bool,
    missed: str | None,
) -> None:
    code = bench("rush_hour").conclude(
        capacity=800.0, overload=2.0, cycle_s=15.0, with_it={**WITH, **with_it}, without={**WITHOUT, **without}, held=held
    )
    assert code == (0 if missed is None else 1)
    last = last_line(capsys)
    assert [name for name, met in last["goals"].items() if not met] == ([missed] if missed else [])
    assert {"lag_controlled_s", "lag_uncontrolled_s", "floors_kept", "recovered_cycles", "waiting_uncontrolled_s"} <= last.keys()


@pytest.mark.parametrize(
    ("problems", "given_up", "held"), [([], 0, True), (["the rate could not be held"], 0, False), ([], 1, False)]
)
def test_a_rush_that_was_not_played_shows(bench: Any, problems: list[str], given_up: int, held: bool) -> None:
    report = SimpleNamespace(problems=problems, topics=[SimpleNamespace(given_up=0), SimpleNamespace(given_up=given_up)])
    assert bench("rush_hour").held(report) is held


@pytest.mark.parametrize(("until_s", "played_s"), [(162.0, 162.0), (90.0, 90.0)])
def test_a_rush_is_played_to_its_end_and_not_stopped(bench: Any, until_s: float, played_s: float) -> None:
    """A player that was told to stop keeps quiet about the events it gave up."""
    from spillway.demo.line import Playing
    from spillway.inject.scenario import load

    asked: list[Playing] = []

    def play(scenario: Any) -> Playing:
        asked.append(Playing(scenario=scenario, began=0.0))
        asked[0].report = report
        asked[0].thread.start()
        return asked[0]

    report: Any = SimpleNamespace(problems=(), topics=[])
    line = SimpleNamespace(
        mode=lambda _: None, now=lambda: at(until_s + 20.0), play=play, look=lambda: "", course=lambda *_: [],
        settings=lambda *_: [], rows=lambda *_, **__: [], hand_over=lambda *_: None,
    )  # fmt: skip
    scenario = load(BENCH.parent / "scenarios" / "rush_hour.yaml")
    played = bench("rush_hour").play(line, scenario, until_s, cycle_s=15.0)
    assert asked[0].scenario.duration_s == played_s and not asked[0].stop.is_set()
    assert played.held and played.scenario is scenario
    assert played.windows == [15.0 * n for n in range(1, int(until_s / 15.0) + 1)]


def test_every_window_of_the_rush_is_to_be_decided_on(bench: Any) -> None:
    """What was decided before it, and while it drains, makes up for nothing."""
    from spillway.demo.line import Playing
    from spillway.inject.scenario import load

    scenario = load(BENCH.parent / "scenarios" / "rush_hour.yaml")
    played = Playing(scenario=scenario, began=1007.0)
    assert played.windows(15.0, at(1300.0)) == [1020.0 + 15.0 * n for n in range(1, 10)]
    assert played.windows(15.0, at(1166.0)) == [1020.0 + 15.0 * n for n in range(1, 9)], "the last one is still decided on"

    def decided(*ends: float) -> Any:
        return bench("rush_hour").Played(
            scenario=scenario, batches=[], settings=[], windows=[1035.0, 1050.0, 1065.0], held=True, seen=[],
            decisions=[{"interval_end": at(end), "status": "published"} for end in ends],
        ).decided  # fmt: skip

    assert decided(1020.0, 1035.0, 1050.0, 1065.0, 1080.0) == 3
    assert decided(1020.0, 1035.0, 1065.0, 1080.0, 1095.0) == 2


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def test_without_control_both_measures_of_what_is_behind_are_judged_alike(bench: Any) -> None:
    from spillway.demo import course
    from spillway.inject.scenario import load
    from spillway.topology import check_files

    rush_hour = bench("rush_hour")
    (taxi,) = check_files([BENCH.parent / "pipelines" / "taxi.yaml"]).pipelines
    scenario = load(BENCH.parent / "scenarios" / "rush_hour.yaml")
    within = course.rush(scenario)

    def run(lags: list[int]) -> dict[str, Any]:
        batches = [
            course.Batch(edge="union:heavy", consumer="heavy", began_s=25.0 + 4.0 * n, ended_s=29.0 + 4.0 * n, read=1200,
                         kept=1200, keep=1.0, decision=None, lag=lag)
            for n, lag in enumerate(lags)
        ]  # fmt: skip
        played = rush_hour.Played(scenario=scenario, batches=batches, settings=[], decisions=[], windows=[], held=True, seen=[])
        found: dict[str, Any] = rush_hour.uncontrolled(played, taxi, within, 15.0)
        return found

    assert run([1200 * n for n in range(15)]) == {
        "lag_uncontrolled_s": 28.0, "lag_grows": True, "waiting_uncontrolled_s": 30.0, "waiting_grows": True,
    }  # fmt: skip
    assert run([1200] * 15) == {
        "lag_uncontrolled_s": 2.0, "lag_grows": False, "waiting_uncontrolled_s": 4.0, "waiting_grows": False,
    }  # fmt: skip
    assert not run([])["lag_grows"]


@pytest.mark.parametrize(
    ("proportional", "affine", "less"),
    [
        ((2, 900), (3, 800), "affine"),
        ((2, 700), (3, 800), "proportional"),
        ((2, 900), (4, 800), "proportional"),
        ((None, 900), (None, 800), None),
    ],
)
def test_the_model_that_holds_the_lag_with_less_shed(
    bench: Any, proportional: tuple[int | None, int], affine: tuple[int | None, int], less: str | None
) -> None:
    models = {"proportional": proportional, "affine": affine}
    found = {name: {"lagging_cycles": lagging, "shed_rows": shed} for name, (lagging, shed) in models.items()}
    assert bench("rush_hour").less_shed(found) == less


def test_a_bench_changes_the_policy_of_all_its_processes(bench: Any) -> None:
    from spillway.policy import Policy

    line = bench("_line")
    with line.changeable_policy({"qod_cycle_s": 20}) as policy:
        assert (policy.cpu_model, policy.qod_cycle_s, policy.qod_raise_limit) == ("affine", 20, 0.25)
        for model in ("proportional", "affine", "proportional"):
            changed = line.change_policy(cpu_model=model)
            assert changed == Policy.load()
            assert (changed.cpu_model, changed.qod_cycle_s, changed.qod_raise_limit) == (model, 20, 0.25)
        assert line.change_policy(qod_raise_limit=0.5).qod_raise_limit == 0.5


def test_a_missing_folder_is_found_before_the_rush(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("rush_hour").main(["--record", str(tmp_path / "nowhere" / "x.json")]) != 0
    assert "make the folder" in "".join(capsys.readouterr())
