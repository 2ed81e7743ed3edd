"""What counts as a promise that was kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from spillway.model.qod import Move
from spillway.model.samples import Measure
from spillway.simulate.table import marks, samples
from spillway.simulate.verdict import longest, noise, recovery, relapses, verdict
from twin_worlds import shipped


@pytest.mark.parametrize(
    ("offered", "accuracy", "lag", "after"),
    [
        ([1, 9, 9, 1, 1], [1, 0.5, 0.5, 1, 1], [0, 9, 0, 0, 0], 1),
        ([1, 9, 9, 1, 1], [1, 0.5, 0.5, 0.9, 1], [0, 9, 0, 0, 0], 2),
        ([1, 9, 9, 1, 1], [1, 0.5, 0.5, 1, 1], [0, 9, 0, 3, 0], 2),
        ([1, 9, 9, 1, 1], [1, 0.5, 1, 1, 1], [0, 9, 0, 0, 0], 0),
        ([1, 9, 9, 1, 1], [1, 0.5, 0.5, 0.6, 0.7], [0] * 5, None),
        ([1, 9, 9, 1, 1], [1, 1, 1, 1, 1], [0, 9, 9, 9, 9], None),
        ([9, 9, 9, 9, 9], [0.5, 0.5, 1, 1, 1], [0] * 5, 3),
    ],
)
def test_recovery(offered: list[float], accuracy: list[float], lag: list[float], after: int | None) -> None:
    assert recovery(offered, accuracy, lag) == after


@pytest.mark.parametrize(
    ("offered", "lag", "anew", "late"),
    [
        ([1, 9, 9, 9, 9, 9, 9, 1], [0, 6, 8, 3, 0, 0, 0, 0], (), []),
        ([1, 9, 9, 9, 9, 9, 9, 1], [0, 6, 8, 3, 2.1, 0, 0, 0], (), [4]),
        ([1, 9, 9, 9, 9, 9, 9, 1], [0, 6, 0, 0, 0, 0, 3, 3], (), [6, 7]),
        ([1, 9, 9, 9, 9, 9, 9, 1], [0, 0, 0, 0, 0, 3, 3, 3], (), []),
        ([1, 9, 9, 1, 1, 1, 9, 9], [0, 6, 0, 0, 0, 0, 3, 3], (), []),
        ([1, 9, 9, 1, 1, 1, 9, 9], [0, 6, 0, 0, 3, 0, 3, 3], (), [4]),
        ([1, 9, 9, 9, 9, 9, 9, 1], [0, 6, 0, 0, 0, 0, 3, 3], (6,), []),
        ([5, 5, 5, 5, 5, 5, 5, 5], [6, 0, 0, 0, 0, 3, 0, 0], (), [5]),
    ],
)
def test_what_was_late_is_not_late_again_in_the_same_rush(
    offered: list[float], lag: list[float], anew: tuple[int, ...], late: list[int]
) -> None:
    assert relapses(offered, lag, anew) == late


def test_a_relapse_breaks_the_promise() -> None:
    """The rush hour with a fourth late cycle ten after the first: never late for long, and yet not kept."""
    run = shipped("rush_hour")
    assert verdict(run).kept
    lag = [float(c.window.lag_s[2]) for c in run.cycles]
    again = next(n for n, seconds in enumerate(lag) if seconds > 2.0) + 10
    late = replace(run.cycles[again].window, lag_s=np.array([0.0, 0.0, 2.5]))
    cycles = (*run.cycles[:again], replace(run.cycles[again], window=late), *run.cycles[again + 1 :])
    found = verdict(replace(run, cycles=cycles))
    assert not found.kept and found.queries[1].relapses == 1 and found.queries[1].late_cycles <= 3
    assert found.sentence == "heavy was behind again in 1 cycles after the first 3 of a rush, up to 2.5 s"


@pytest.mark.parametrize(
    ("operator", "source", "target", "kept"),
    [("heavy", "n2", "n3", True), ("union", "n1", "n3", True), ("light", "n1", "n2", True), ("light", "n1", "n3", False)],
    ids=["its own", "of what feeds it", "onto its node", "elsewhere"],
)
def test_a_move_excuses_only_what_feels_it(operator: str, source: str, target: str, kept: bool) -> None:
    """As above, and something moves just before; the heavy query is on n2 and lives on the union."""
    run = shipped("rush_hour")
    again = next(n for n, c in enumerate(run.cycles) if c.window.lag_s[2] > 2.0) + 10
    late = replace(run.cycles[again].window, lag_s=np.array([0.0, 0.0, 2.5]))
    move = Move(operator=operator, instance=0, source=source, target=target, reason="")
    cycles = list(run.cycles)
    cycles[again - 1], cycles[again] = replace(cycles[again - 1], moved=(move,)), replace(cycles[again], window=late)
    assert verdict(replace(run, cycles=tuple(cycles))).kept is kept


def test_longest() -> None:
    assert [longest(flags) for flags in ([], [False], [True, True, False, True])] == [0, 0, 2]


def test_few_events_may_miss_their_floor_by_chance() -> None:
    assert noise(0.5, 100) > 5 * noise(0.5, 10_000)
    assert noise(1.0, 100) == noise(0.0, 0) == 0.0


def test_what_is_broken_is_said_with_the_query() -> None:
    found = verdict(shipped("rush_hour", "nobody"))
    light, heavy = found.queries
    assert (light.query, heavy.query) == ("light", "heavy"), "the most important first"
    assert not light.broken and len(heavy.broken) == 2
    assert found.sentence.startswith("heavy was more than 2 s behind for ")
    assert heavy.accuracy_min == 1.0 and heavy.late_cycles > 15 and heavy.recovered is None


def test_the_table_has_all_that_a_figure_shows_at_every_cycle() -> None:
    run = shipped("thesis_2")
    found = samples(run, name="twin")
    assert {s.run for s in found} == {"twin"}
    names = {measure: {s.name for s in found if s.measure is measure} for measure in Measure}
    queries = {"taxi/light", "taxi/heavy", "knn/classify"}
    assert names[Measure.ACCURACY] == names[Measure.LAG] == names[Measure.FLOOR] == names[Measure.PROCESSED] == queries
    assert names[Measure.KEEP] == {e.name for e in run.world.edges}
    early = [s for s in found if s.t_s == 15.0 and s.name == "knn/classify" and s.measure is not Measure.FLOOR]
    assert early and all(s.value is None for s in early), "it has not started: nothing is known, and nothing is zero"
    last = {s.measure: s.value for s in found if s.t_s == run.cycles[-1].window.end_s and s.name == "taxi/heavy"}
    assert last[Measure.OFFERED] == pytest.approx(120.0) and last[Measure.ACCURACY] == pytest.approx(1.0)


def test_moves_are_marked_when_they_are_decided() -> None:
    run = shipped("thesis_1", "paper")
    assert [(m.t_s, m.text) for m in marks(run)] == [(t, f"light[{move.instance}] moves from n1 to n2") for t, move in run.moves]
