"""A bench that misses a goal it states says so in its last line and in its exit code."""

from __future__ import annotations

import doctest
import statistics
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spillway.model.capacity import CapacityWorld
from spillway.model.qod import Observation

from tests.support.benches import BENCH, last_line


@pytest.mark.parametrize(
    ("goals", "code"),
    [
        ({}, 0),
        ({"a": True, "b": {"x": True}}, 0),
        ({"a": False, "b": True}, 1),
        ({"a": True, "b": {"x": True, "y": False}}, 1),
    ],
)
def test_one_missed_goal_is_enough(bench: Any, goals: dict[str, Any], code: int) -> None:
    assert bench("_common").exit_code(goals) == code


@pytest.mark.parametrize(
    ("services", "both", "missed"),
    [
        ((30.0, 4.0), (80.0, 5.0), None),
        ((36.0, 4.0), (80.0, 5.0), "services_at_most_35_pct"),
        ((30.0, 4.0), (86.0, 5.0), "idle_pipeline_at_most_55_pct"),
        ((30.0, 4.0), (80.0, 8.1), "memory_at_most_8_gb"),
    ],
)
def test_idle(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    services: tuple[float, float],
    both: tuple[float, float],
    missed: str | None,
) -> None:
    measured = [{"cpu_pct": cpu, "memory_gb": memory} for cpu, memory in (services, both)]
    assert bench("idle").conclude(*measured) == (0 if missed is None else 1)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == ([missed] if missed else [])


@pytest.mark.parametrize(
    ("help_s", "decide_s", "missed"),
    [
        ([0.2] * 10, [0.4, 0.49, 2.0], None),
        ([0.2] * 10, [0.4, 0.51, 0.6], "decide_qod_within_0.5_s"),
        ([0.6] * 10, [0.4] * 10, "help_within_0.5_s"),
    ],
)
def test_start(
    bench: Any, capsys: pytest.CaptureFixture[str], help_s: list[float], decide_s: list[float], missed: str | None
) -> None:
    assert bench("start").conclude({"help": help_s, "decide_qod": decide_s}) == (0 if missed is None else 1)
    last = last_line(capsys)
    assert [name for name, met in last["goals"].items() if not met] == ([missed] if missed else [])
    assert last["seconds"]["decide_qod"]["median"] == statistics.median(decide_s)


def test_start_runs_the_installed_command_often_enough(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = bench("start")
    assert start.main(["--rounds", "9"]) == 1
    assert capsys.readouterr().err == "--rounds is 9, too few for a median: give at least 10.\n"
    command = tmp_path / "spillway"
    monkeypatch.setattr(start.sys, "executable", str(tmp_path / "python"))
    assert start.main([]) == 1
    assert "run `make setup` first" in capsys.readouterr().err
    command.write_text('#!/bin/sh\n[ "$1" = decide ] && cat > "$0.$2.given"\necho "$*" >> "$0.ran"\n')
    command.chmod(0o755)
    start.main(["--rounds", "10"])
    assert last_line(capsys)["runs"] == 10
    assert (tmp_path / "spillway.ran").read_text().splitlines().count("decide qod -") == 11, "ten, and one to warm up"
    assert Observation.from_json((tmp_path / "spillway.qod.given").read_text()).operators
    assert CapacityWorld.from_json((tmp_path / "spillway.capacity.given").read_text()).operators
    command.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    capsys.readouterr()
    assert start.main([]) == 1
    assert capsys.readouterr().err.endswith(f"`{command} decide qod -` ended with code 3: broken.\n")


@pytest.mark.parametrize(
    ("held", "largest", "missed"),
    [(True, 300_000, None), (False, 300_000, "every_rate_held"), (True, 199_000, "largest_rate_at_least_200000")],
)
def test_injector(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    held: bool,
    largest: int,
    missed: str | None,
) -> None:
    injector = bench("injector")
    topic = SimpleNamespace(asked=1000, at_broker=1000, error_pct=0.0)
    report = SimpleNamespace(
        topics=[topic], ran_s=1.0, cpu_s=0.1, late_ms_p50=1.0, late_ms_p99=1.0, late_ms_max=1.0, ok=held,
        problems=[] if held else ["it fell behind"], second_error_pct=lambda: (0.0, 0.0),
    )  # fmt: skip
    monkeypatch.setattr(injector, "run", lambda *_: report)
    monkeypatch.setattr(injector, "largest_rate", lambda *_, **__: (float(largest), 1.0))
    assert injector.measure("nowhere", 1.0) == (0 if missed is None else 1)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == ([missed] if missed else [])


@pytest.mark.parametrize(
    ("found", "runs_s", "on", "decisions", "missed"),
    [
        ([12.0, 25.0, 18.0], [3.0, 3.5], 28.0, {"published": 9}, []),
        ([12.0, None], [3.0], 28.0, {"published": 9}, ["every_step_is_answered"]),
        ([12.0, 34.0], [3.0], 28.0, {"published": 9}, ["p95_at_most_2_cycles"]),
        ([12.0], [4.5], 28.0, {"published": 9}, []),
        ([12.0], [3.0], 31.0, {"published": 9}, ["at_most_20_pct_of_a_core"]),
        ([12.0], [3.0], 28.0, {"published": 8, "refused": 1}, ["all_published"]),
        ([12.0], [3.0], 28.0, {"published": 8, "missing": 1}, ["all_published"]),
        ([], [], 28.0, {}, ["every_step_is_answered", "p95_at_most_2_cycles", "all_published"]),
    ],
)
def test_reaction(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    found: list[float | None],
    runs_s: list[float],
    on: float,
    decisions: dict[str, int],
    missed: list[str],
) -> None:
    code = bench("reaction").conclude(
        found=found, cycle_s=15.0, runs_s=runs_s, after_window_s=runs_s, decisions=decisions, on_pct=on, off_pct=10.0
    )  # fmt: skip
    assert code == (1 if missed else 0)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == missed


@pytest.mark.parametrize(
    ("lengths", "on", "decisions", "missed"),
    [
        ([3.0, 3.5, 4.5], 28.0, {"published": 30}, []),
        ([3.0], 28.0, {"published": 10}, []),
        ([3.0, 4.1, 4.5], 28.0, {"published": 30}, ["cycle_at_most_4_s"]),
        ([3.0, 3.5, 4.5], 31.0, {"published": 30}, ["cycle_at_most_20_pct"]),
        ([3.0, 3.5, 4.5], 28.0, {"published": 29, "refused": 1}, ["all_published"]),
        ([], 28.0, {}, ["cycle_at_most_4_s", "all_published"]),
    ],
)
def test_cycle(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    lengths: list[float],
    on: float,
    decisions: dict[str, int],
    missed: list[str],
) -> None:
    cycle = bench("cycle")
    good = cycle.Measured(lengths=[3.0], ends=[3.0], decisions={"published": 10}, cpu_pct=28.0)
    measured = cycle.Measured(lengths=lengths, ends=lengths, decisions=decisions, cpu_pct=on)
    for model, under in (
        ("proportional", {"proportional": measured, "affine": good}),
        ("affine", {"proportional": good, "affine": measured}),
    ):
        assert cycle.conclude(pipelines=10, under=under, off_pct=10.0) == (1 if missed else 0)
        last = last_line(capsys)
        assert [(m, name) for m, goals in last["goals"].items() for name, met in goals.items() if not met] == [
            (model, name) for name in missed
        ]
        assert set(last["models"]) == set(cycle.MODELS)


def test_decisions_are_counted_on_the_windows_of_the_runs(bench: Any) -> None:
    common, noon = bench("_common"), datetime(2026, 5, 1, 12, tzinfo=UTC)
    windows = {noon + timedelta(seconds=15 * n) for n in range(3)}
    decided = [(end, "published") for end in windows for _ in range(2)]
    assert common.statuses(decided, windows, 2) == {"published": 6}
    assert common.statuses([*decided[1:], (noon - timedelta(seconds=15), "refused")], windows, 2) == {
        "published": 5,
        "missing": 1,
    }
    assert common.statuses([*decided[1:], (decided[0][0], "refused")], windows, 2) == {"published": 5, "refused": 1}


def test_a_reaction_is_a_lower_keep_from_a_window_that_saw_the_step(bench: Any) -> None:
    reaction = bench("reaction")
    from spillway.demo.course import Batch, Set

    def batch(t: float, decision: int | None) -> Batch:
        return Batch(edge="a:b", consumer="b", began_s=t, ended_s=t + 1, read=1, kept=1, keep=1.0, decision=decision, lag=0)

    sets = [(11.0, 0.8, 1), (21.0, 0.8, 2), (31.0, 0.5, 3), (61.0, 0.9, 4)]
    settings = [Set(edge="a:b", keep=keep, decision=number, at_s=t) for t, keep, number in sets]
    windows = {1: 9.0, 2: 19.0, 3: 29.0, 4: 59.0}
    batches = [batch(12.0, 1), batch(22.0, 2), batch(32.5, 3), batch(62.0, 4)]
    assert reaction.reactions([10.0, 50.0], 30.0, settings, windows, batches) == [22.5, None]


def test_a_staircase_asks_multiples_of_what_is_carried(bench: Any) -> None:
    from spillway.demo.course import offered
    from spillway.inject.scenario import load

    reaction = bench("reaction")
    steps, begins = reaction.staircase(load(BENCH.parent / "scenarios" / "rush_hour.yaml"), 500.0, 15.0)
    assert [round(offered(steps, t + 1.0) / 500.0, 6) for t in begins] == [*reaction.STEPS] * reaction.ROUNDS
    assert offered(steps, 1.0) == offered(steps, begins[3] - 1.0) == pytest.approx(reaction.CALM * 500.0)
    assert steps.duration_s < 330


SAME = {"together": True, "moved": ["d/first.0"], "picked_by_the_paper": ["d/first.0"]}


@pytest.mark.parametrize(
    ("same", "ordered", "errors", "missed"),
    [
        ({}, True, [-2.0, 2.0, 0.5, -0.5], []),
        ({"together": False}, True, [0.0], ["one_priority_is_shed_together"]),
        ({"picked_by_the_paper": ["d/second.0"]}, True, [0.0], ["the_paper_s_rule_picks_what_moves"]),
        ({"moved": [], "picked_by_the_paper": []}, True, [0.0], ["the_paper_s_rule_picks_what_moves"]),
        ({}, False, [0.0], ["different_priorities_are_shed_in_order"]),
        ({}, True, [0.5, 0.5], ["mean_error_at_most_0.4_pct"]),
        ({}, True, [-3.0, 3.0], ["p90_error_at_most_2.8_pct"]),
        ({}, True, [], ["mean_error_at_most_0.4_pct", "p90_error_at_most_2.8_pct"]),
    ],
)
def test_thesis(
    bench: Any, capsys: pytest.CaptureFixture[str], same: dict[str, Any], ordered: bool, errors: list[float], missed: list[str]
) -> None:
    code = bench("thesis").conclude(same={**SAME, **same}, different={"in_order": ordered}, errors=errors)
    assert code == (1 if missed else 0)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == missed


@pytest.mark.parametrize(
    ("more_points", "unmoved", "more_drives", "still", "ordered"),
    [
        ([0.5, 0.6], [1.0, 1.0, 1.0], [0.5, 0.3, 0.3], [0.99, 1.0, 1.0], True),
        ([0.5, 0.6], [1.0, 0.9, 1.0], [0.5, 0.3, 0.3], [1.0, 1.0, 1.0], False),
        ([0.5, 0.6], [1.0, 1.0, 1.0], [0.5, 0.3, 0.3], [1.0, 0.9, 1.0], False),
        ([0.5, 0.5], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0], False),
        ([0.5, 1.0], [1.0, 1.0, 1.0], [0.5, 0.3, 0.3], [1.0, 1.0, 1.0], False),
        ([0.5], [1.0, 1.0, 1.0], [0.5, 0.3, 0.3], [1.0, 1.0, 1.0], False),
    ],
    ids=["in order", "the other one too", "the other one later", "gave way no further", "did not give way", "too few"],
)
def test_thesis_order(
    bench: Any, more_points: list[float], unmoved: list[float], more_drives: list[float], still: list[float], ordered: bool
) -> None:
    assert bench("thesis").in_order(more_points, unmoved, more_drives, still) is ordered


def test_the_pipelines_of_the_thesis_are_valid(bench: Any) -> None:
    from spillway.topology import check_text

    thesis = bench("thesis")
    for text in (thesis.DRIVES, thesis.POINTS):
        pipeline, problems = check_text(text)
        assert pipeline is not None, problems


def test_what_moves_in_the_thesis_has_to_be_a_query(bench: Any) -> None:
    from spillway.demo.line import LineFailed
    from spillway.topology import check_text

    thesis = bench("thesis")
    pipeline, _ = check_text(thesis.DRIVES)
    assert thesis.query_of(pipeline, "first") == "first"
    with pytest.raises(LineFailed, match="Application union was re-scheduled and runs 0 queries"):
        thesis.query_of(pipeline, "union")


SHEDS = [("rec0", 1, "decided", "", {"edges": [{"keep": 0.5}]}, {})]
KEEPS_ALL = [("rec0", 1, "decided", "", {"edges": [{"keep": 1.0}]}, {})]
IN_FORCE = {"edge_setting": [("rec0", "front:heavy", 0.5)], "event": []}


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, []),
        ({"decided": [SHEDS, KEEPS_ALL]}, ["identical"]),
        ({"windows": 2}, ["identical"]),
        ({"decided": [KEEPS_ALL, KEEPS_ALL]}, ["something_was_decided"]),
        ({"in_force": ({**IN_FORCE, "edge_setting": []},) * 2}, ["something_was_in_force"]),
        ({"in_force": (IN_FORCE, {**IN_FORCE, "event": [("keep",)]})}, ["nothing_live_changed"]),
        ({"in_force": (IN_FORCE, {**IN_FORCE, "edge_setting": [("rec0", "front:heavy", 0.4)]})}, ["nothing_live_changed"]),
        ({"historic": (SHEDS, KEEPS_ALL)}, ["nothing_live_changed"]),
    ],
)
def test_replay(bench: Any, capsys: pytest.CaptureFixture[str], change: dict[str, Any], missed: list[str]) -> None:
    values = {
        "minutes": 60.0, "pipelines": 1, "windows": 1, "decided": [SHEDS, SHEDS], "historic": (SHEDS, SHEDS),
        "in_force": (IN_FORCE, IN_FORCE), "took": [1.0, 1.0], "cpu": [1.0, 1.0],
    }  # fmt: skip
    assert bench("replay").conclude(**{**values, **change}) == (1 if missed else 0)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == missed


def test_injected_events_are_counted_as_they_were_sent(bench: Any) -> None:
    from types import SimpleNamespace

    thesis = bench("thesis")

    class OfTest:
        def play(self, scenario: Any, options: Any) -> Any:
            assert [t.rate.rate(0.0) for t in scenario.topics] == [60.0, 40.0, 0.0]
            seconds = [SimpleNamespace(topic="t", sent=many) for many in [10] * 8 + [4, 16] + [100] * 20]  # late, and caught up
            return SimpleNamespace(began=1000.0, elapsed_s=9.9, report=SimpleNamespace(seconds=seconds))

    load = thesis.Load(OfTest(), 100.0)
    load.set(1000.0)
    assert load.changed == [0.0, pytest.approx(10.0)]
    assert load.injected("t", 1005.0, 1012.0) == 30 + 4 + 16 + 200
    assert load.injected("t", 1008.5, 1009.25) == pytest.approx(2 + 16 / 4)
    assert thesis.errors_pct(load, [(1005.0, 1015.0, "t", 60.0), (0.0, 10.0, "t", 1.0)]) == [pytest.approx(100 * 5 / 55)]


@pytest.mark.parametrize(
    ("small", "large", "missed"),
    [
        (9.0, 990.0, None),
        (11.0, 990.0, "2000_instances_within_10_ms"),
        (9.0, 1010.0, "200000_instances_within_1000_ms"),
    ],
)
def test_qod_scale(bench: Any, capsys: pytest.CaptureFixture[str], small: float, large: float, missed: str | None) -> None:
    times = {size: {"decide": [ms, ms], "columns_given": [ms / 2]} for size, ms in ((2_000, small), (200_000, large))}
    good = {2_000: {"decide": [1.0], "columns_given": [1.0]}}
    for given, name in (((times, good, good), missed), ((good, times, good), missed and missed.replace("_within", IN_SHARED))):
        assert bench("qod_scale").conclude(*given) == (0 if missed is None else 1)
        assert [goal for goal, met in last_line(capsys)["goals"].items() if not met] == ([name] if name else [])


IN_SHARED = "_in_shared_executors_within"


def test_qod_scale_has_worlds_in_which_executors_are_shared(bench: Any) -> None:
    from spillway.decide.qod.world import columns

    scale = bench("qod_scale")
    seen = scale.with_executors(scale.observation(400))
    world = columns(seen.nodes, seen.operators, seen.edges)
    assert len({i.executor for o in seen.operators for i in o.instances}) < 400
    assert max(len(set(world.member_operator[world.member_executor == x])) for x in range(len(world.executor_cores))) > 1


def test_qod_scale_measures_a_decision_that_sheds(bench: Any) -> None:
    from spillway.decide.qod import decide
    from spillway.policy import Policy

    decision = decide(bench("qod_scale").observation(400), Policy())
    assert decision.feasible and not decision.moves
    assert sum(edge.keep < 1.0 for edge in decision.edges) > 20


@pytest.mark.parametrize(
    ("wall_s", "exact", "affine", "missed"),
    [
        (59.9, True, 0.7, None),
        (60.1, True, 0.7, "in_a_minute"),
        (30.0, False, 0.7, "no_row_lost_or_doubled"),
        (30.0, True, 0.71, "affine_sheds_no_more"),
    ],
)
def test_twin(
    bench: Any, capsys: pytest.CaptureFixture[str], wall_s: float, exact: bool, affine: float, missed: str | None
) -> None:
    shed = {("light", 1): {"proportional": 0.8, "affine": 0.7}, ("heavy", 2): {"proportional": 0.7, "affine": affine}}
    models = [
        {"mix": mix, "nodes": nodes, "model": model, "shed": share}
        for (mix, nodes), of in shed.items()
        for model, share in of.items()
    ]
    code = bench("twin").conclude(
        instances=10_000, cycles=1_000, wall_s=wall_s, cpu_s=wall_s, engine_s=10.0, decide_s=20.0, rows=1, shedding=1, moves=0,
        exact=exact, models=models,
    )  # fmt: skip
    assert code == (0 if missed is None else 1)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == ([missed] if missed else [])


def test_twin_measures_what_it_concludes_on(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench("twin").measure(60, 3, 1.0, 1, models=[])
    found = last_line(capsys)
    assert found["instances"] == 60 and found["cycles"] == 3 and found["rows"] > 0
    assert found["goals"]["no_row_lost_or_doubled"]


@pytest.mark.parametrize("text", [None, "{", "[" * 100_000])
def test_twin_says_in_one_sentence_that_there_is_no_recording(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    """Before it begins to measure, which takes minutes."""
    twin, file = bench("twin"), tmp_path / "rush_hour.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(twin, "RECORDED", file)
    monkeypatch.setattr(twin, "rushes", None)
    assert twin.main([]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{file} ") and "make bench NAME=rush_hour" in err and len(err.splitlines()) == 1


def test_no_bench_takes_the_name_of_a_module_that_pandas_looks_for() -> None:
    """A bench runs with its folder on the path, where pandas found `bottleneck` once and took it for the package of that name."""
    done = subprocess.run([sys.executable, "-c", "import pandas"], cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["thesis", "reaction", "_level"])
def test_examples_hold(bench: Any, name: str) -> None:
    result = doctest.testmod(bench(name))
    assert result.attempted > 0 and result.failed == 0
