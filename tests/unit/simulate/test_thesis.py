"""The scenarios of the thesis "Stream Economics", sections 5.5 to 5.7, on the twin.

Where a scenario is about what moves, the papers' literal cycle plays it: the rule is the papers'. What Spillway makes of the same
scenario is held to its promises.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from spillway.observe.rates import arrival
from spillway.simulate.run import Run
from spillway.simulate.verdict import verdict
from twin_worlds import SCENARIOS, shipped

UNION, LIGHT, HEAVY, KNN = range(4)


def between(run: Run, start_s: float, end_s: float) -> np.ndarray:
    """Accuracies of the operators in the cycles within."""
    return np.array([c.window.accuracy for c in run.cycles if start_s < c.window.end_s <= end_s])


def moves(run: Run) -> list[tuple[str, int, str, str]]:
    return [(m.operator, m.instance, m.source, m.target) for _, m in run.moves]


@pytest.mark.parametrize("name", [file.stem for file in sorted(SCENARIOS.glob("*.yaml"))])
def test_every_shipped_scenario_ends_in_a_good_verdict(name: str) -> None:
    found = verdict(shipped(name))
    assert found.kept, found.sentence


@pytest.mark.parametrize("how", ["controlled", "paper"])
def test_1_queries_of_one_priority_are_shed_together_and_neither_reaches_its_floor(how: str) -> None:
    """(A), from 210 s to 360 s: 170 events a second on a core that carries about 135."""
    run = shipped("thesis_1", how)
    shed = between(run, 300.0, 360.0)
    assert shed[:, LIGHT].mean() < 0.95 and shed[:, HEAVY].mean() < 0.95
    assert shed[:, LIGHT].min() > 0.45 and shed[:, HEAVY].min() > 0.65
    assert [t for t, _ in run.moves if t < 420.0] == [], "shedding is enough"


@pytest.mark.parametrize("how", ["controlled", "paper"])
def test_1_nothing_is_shed_any_more_when_the_load_is_gone(how: str) -> None:
    """(B), from 420 s to 510 s, and at the end."""
    run = shipped("thesis_1", how)
    assert between(run, 495.0, 510.0).min() == between(run, 1545.0, 1560.0).min() == 1.0


def test_1_the_instances_that_move_are_those_of_the_light_query_one_after_the_other() -> None:
    """(C) and (D). At 290 events a second the floors need, in percent of a core: union 21 (0.6 · 290 · 1.2 ms), a light instance
    17 (0.4 · 145 · 3 ms), heavy 42 (0.6 · 290 · 2.4 ms), and batches some more than the 3 that are left. A light instance is the
    smallest that releases enough; at 350 a second it is so again."""
    run = shipped("thesis_1", "paper")
    assert moves(run) == [("light", 1, "n1", "n2"), ("light", 0, "n1", "n2")]
    first, second = (t for t, _ in run.moves)
    assert 510.0 < first < 1020.0 < second < 1350.0


def test_1_which_instance_moves_first_does_not_depend_on_chance() -> None:
    """Which one is next may: where the first move is followed by a window in which little is processed, floors seem to need more,
    and the papers' cycle moves the union as well."""
    found = [moves(shipped("thesis_1", "paper", seed=seed)) for seed in range(1, 9)]
    assert {first for first, *_ in found} == {("light", 1, "n1", "n2")}
    assert sum(rest == [("light", 0, "n1", "n2")] for _, *rest in found) >= 6, found


def test_1_after_both_moves_more_gets_through_than_before_the_first() -> None:
    run = shipped("thesis_1", "paper")
    first, second = (t for t, _ in run.moves)

    def carried(after_s: float, until_s: float) -> float:
        rates = [c.window.processed[[LIGHT, HEAVY]].sum() for c in run.cycles if after_s < c.window.end_s <= until_s]
        return float(np.mean(rates))

    assert carried(second + 75, second + 165) > 1.2 * carried(first - 60, first)


def test_1_a_move_warms_up_within_a_minute() -> None:
    run = shipped("thesis_1", "paper")
    floors = np.array([0.6, 0.4, 0.6])
    for t_s, _ in run.moves:
        window = next(c.window for c in run.cycles if c.window.end_s >= t_s + 60.0)
        assert (window.current >= floors - 0.05).all()


def test_1_under_spillway_the_heavy_query_stays_and_the_light_one_leaves() -> None:
    """One of its instances goes first; whether the other or the union follows depends on the windows."""
    found = [moves(shipped("thesis_1", seed=seed)) for seed in range(1, 5)]
    assert {first for first, *_ in found} == {("light", 1, "n1", "n2")}
    assert {move for _, *rest in found for move in rest} <= {("light", 0, "n1", "n2"), ("union", 0, "n1", "n2")}


@pytest.mark.parametrize("seed", range(1, 9))
def test_1_no_floor_is_given_up_for_what_waits_while_an_instance_moves(seed: int) -> None:
    """Around a move a few seconds of traffic pile up on the node that is full of floors."""
    found = verdict(shipped("thesis_1", seed=seed))
    assert found.kept and [q.below_cycles for q in found.queries] == [0, 0], found.sentence


@pytest.mark.parametrize("how", ["controlled", "paper"])
def test_2_more_points_cost_only_the_points(how: str) -> None:
    """(B), from 240 s on: their query has the lowest priority."""
    shed = between(shipped("thesis_2", how), 345.0, 450.0)
    assert shed[:, KNN].max() < 0.9
    assert shed[:, [LIGHT, HEAVY]].min() == 1.0


@pytest.mark.parametrize("how", ["controlled", "paper"])
def test_2_more_drives_cost_the_light_query_before_the_heavy_one(how: str) -> None:
    """Between 690 s and 810 s 260 drives a second are more than n1 carries, but the heavy query still fits."""
    shed = between(shipped("thesis_2", how), 720.0, 810.0)
    assert shed[:, LIGHT].mean() < 0.75
    assert shed[:, HEAVY].mean() > 0.93
    before = between(shipped("thesis_2", how), 345.0, 450.0)
    assert shed[:, KNN].mean() < before[:, KNN].mean() + 0.05, "on n2 the points give way to the light query"


def test_2_the_instance_that_moves_is_the_light_one_beside_the_heavy_query() -> None:
    """(C). The lowest priority on n1 is that of the light query, and its one instance there releases enough."""
    run = shipped("thesis_2", "paper")
    assert moves(run) == [("taxi/light", 0, "n1", "n2")]
    (t_s, _), *_ = run.moves
    assert 810.0 < t_s < 1290.0
    assert moves(shipped("thesis_2"))[0] == ("taxi/light", 0, "n1", "n2")


def test_2_after_the_move_both_queries_get_more() -> None:
    run = shipped("thesis_2", "paper")
    (t_s, _), *_ = run.moves
    assert between(run, t_s + 75, t_s + 165)[:, LIGHT].mean() > between(run, t_s - 60, t_s)[:, LIGHT].mean()


def test_3_the_accuracy_follows_the_rate_of_the_topic() -> None:
    """The thesis: a correlation of 0.95 while events are shed."""
    run = shipped("thesis_3")
    pairs = [(float(c.window.offered[0]), float(c.window.accuracy[0])) for c in run.cycles]
    shed = np.array([(rate, accuracy) for rate, accuracy in pairs if accuracy < 0.99])
    assert len(shed) > 15
    assert np.corrcoef(shed.T)[0, 1] < -0.85
    assert shed[:, 1].min() > 0.4


def test_3_the_arrival_rate_is_known_although_events_are_shed() -> None:
    """The thesis: a mean error of 0.4 %, 2.8 % in the 90th percentile. Offsets are read by an agent about every second, a little
    before or after, some not at all, and every window is estimated from them as on the live line."""
    run = shipped("thesis_3")
    profile, chance = run.world.loads[0].rate, random.Random(6)
    at = [n + chance.uniform(-0.3, 0.3) for n in range(int(run.cycles[-1].window.end_s)) if chance.random() < 0.95]
    readings = {k: [(t, int(profile.events(max(t, 0.0)) * share)) for t in at] for k, share in enumerate((0.1, 0.2, 0.3, 0.4))}
    errors = []
    for window in (c.window for c in run.cycles):
        start, end = window.end_s - window.length_s, window.end_s
        seen = {k: [p for p in points if p[0] <= end] for k, points in readings.items()}
        found = arrival(seen, start, end)
        assert found is not None
        errors.append(abs(found.rate / ((profile.events(end) - profile.events(start)) / (end - start)) - 1.0))
    assert np.mean(errors) <= 0.004 and np.percentile(errors, 90) <= 0.028, (np.mean(errors), np.percentile(errors, 90))
    assert max(errors) > 0.0005, "no value is held against itself"


def test_3_the_backlog_is_what_the_papers_leave_waiting() -> None:
    """Their own remark: the current accuracy looks at rates, not at what is in the queue."""
    ours, theirs = (max(float(c.window.lag_s[0]) for c in shipped("thesis_3", how).cycles) for how in ("controlled", "paper"))
    assert ours < 6.0 < 12.0 < theirs
