"""How a run is judged: what counts as lagging, who gave way, when all was whole again."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
from spillway.demo import course
from spillway.demo.control import CYCLES_TO_RECOVER, controlled
from spillway.demo.course import Batch, Rush, Set
from spillway.demo.figure import samples
from spillway.demo.run import POLICY as DEMO
from spillway.inject.scenario import load, parse
from spillway.model.samples import Measure
from spillway.policy import Policy
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
(TAXI,) = check_files([ROOT / "pipelines" / "taxi.yaml"]).pipelines
SCENARIO = parse(
    """
name: short
duration: 100s
topics:
  taxi.yellow:
    events: yellow
    rate: [{for: 20s, constant: 100}, {for: 40s, constant: 1000}, {constant: 100}]
"""
)
RUSH = Rush(begins_s=20.0, ends_s=60.0, peak=1000.0)
TWO = parse(
    """
name: two
duration: 60s
topics:
  taxi.yellow: {events: yellow, rate: 750}
  taxi.green: {events: green, rate: 250}
"""
)


def batch(t: float, edge: str = "union:heavy", **fields: Any) -> Batch:
    values = {"read": 1000, "kept": 1000, "keep": 1.0, "decision": None, "lag": 0, "ended_s": t + 2.0}
    return Batch(edge=edge, consumer=edge.split(":")[1], began_s=t, **{**values, **fields})


def test_the_rush_is_found_in_the_scenario() -> None:
    assert course.rush(SCENARIO) == RUSH
    found = course.rush(load(ROOT / "scenarios" / "rush_hour.yaml"))
    assert 16 < found.begins_s < 17 and 85 < found.ends_s < 86.5 and found.peak == 600


def test_the_height_of_a_rush_ends_where_less_is_sent_again() -> None:
    scenario = load(ROOT / "scenarios" / "long_rush.yaml")
    whole, high = course.rush(scenario), course.height(scenario)
    assert (high.begins_s, high.peak) == (whole.begins_s, whole.peak)
    assert 25.0 <= high.ends_s - high.begins_s <= 32.0 and high.ends_s < whole.ends_s == scenario.duration_s
    assert 0.53 * whole.peak < course.offered(scenario, whole.ends_s - 1.0) < 0.6 * whole.peak


def test_a_scenario_without_a_rush_is_refused() -> None:
    with pytest.raises(ValueError, match="no rush"):
        course.rush(course.scaled(parse("name: flat\nduration: 9s\ntopics: {t: {events: points, rate: 5}}"), 3.0))


def test_rates_that_are_changed_while_they_are_played_leave_what_was_sent_as_it_was() -> None:
    factor = course.Factor(2.0)
    steered = course.scaled(SCENARIO, factor)
    before = [steered.topics[0].rate.events(t) for t in (5.0, 30.0)]
    factor.set(30.0, 0.5)
    assert [steered.topics[0].rate.events(t) for t in (5.0, 30.0)] == before
    assert course.offered(steered, 29.0) == 2000 and course.offered(steered, 30.0) == 500
    later = SCENARIO.topics[0].rate.events(40.0) - SCENARIO.topics[0].rate.events(30.0)
    assert steered.topics[0].rate.events(40.0) - before[1] == pytest.approx(0.5 * later)


def test_a_scaled_scenario_sends_that_much_more() -> None:
    twice = course.scaled(SCENARIO, 2.0)
    assert course.offered(twice, 30.0) == 2000
    assert twice.topics[0].rate.events(30.0) == 2 * SCENARIO.topics[0].rate.events(30.0)


def calm(*edges: str) -> list[Batch]:
    """Batches of these edges all along, with nothing left behind."""
    return [batch(5.0 * n, edge) for n in range(20) for edge in edges]


def test_lag_is_in_seconds_of_what_is_sent_at_that_moment() -> None:
    found = course.lags(TAXI, [batch(30.0, lag=3000), batch(10.0, lag=300), batch(31.0, lag=None)], SCENARIO)
    assert found == {"taxi.yellow:union": [], "union:light": [], "union:heavy": [(10.0, 3.0), (30.0, 3.0)]}


def test_lag_is_in_seconds_of_what_arrives_at_that_edge() -> None:
    """A topic that brings a quarter of the events lags four times as long with as many rows."""
    edges = ("taxi.yellow:union", "taxi.green:union", "union:heavy")
    found = course.lags(TAXI, [batch(30.0, edge, lag=1500) for edge in edges], TWO)
    assert {edge: points[0][1] for edge, points in found.items() if points} == dict(zip(edges, (2.0, 6.0, 1.5), strict=True))


def test_what_is_shed_above_an_edge_does_not_arrive_there() -> None:
    above = [batch(20.0, f"taxi.{name}:union", keep=0.5) for name in ("yellow", "green")]
    found = course.lags(TAXI, [*above, batch(19.0, lag=1000), batch(30.0, lag=1000), batch(31.0, keep=0.1, lag=1000)], TWO)
    assert found["union:heavy"] == [(19.0, 1.0), (30.0, 2.0), (31.0, 2.0)]


def test_what_waits_is_what_a_batch_takes_and_what_it_leaves() -> None:
    found = course.waiting(TAXI, [batch(30.0, lag=3000, read=500), batch(31.0, lag=None)], SCENARIO)
    assert found["union:heavy"] == [(30.0, 3.5)]


@pytest.mark.parametrize(
    ("lags", "episodes"),
    [
        ([(25.0, 1.9), (40.0, 2.0), (55.0, 0.0)], []),
        ([(25.0, 2.1), (30.0, 5.0), (35.0, 1.0), (50.0, 0.0)], [(25.0, 35.0)]),
        ([(25.0, 2.1), (35.0, 1.0), (40.0, 3.0), (50.0, 0.0)], [(25.0, 35.0), (40.0, 50.0)]),
        ([(25.0, 2.1), (59.0, 2.5)], [(25.0, inf)]),
        ([(5.0, 9.0), (10.0, 0.0), (25.0, 0.0), (40.0, 0.0), (55.0, 0.0), (70.0, 9.0)], []),
        ([(5.0, 9.0), (30.0, 0.0), (45.0, 0.0), (60.0, 0.0)], [(20.0, 30.0)]),
        ([(5.0, 9.0)], [(20.0, inf)]),
        ([(15.0, 0.0), (36.0, 0.0), (50.0, 0.0)], [(20.0, 36.0)]),
        ([(18.0, 0.0), (34.0, 0.0), (50.0, 0.0), (70.0, 0.0)], [(34.0, 50.0)]),
        ([(25.0, 0.0), (40.0, 0.0)], [(40.0, inf)]),
        ([], [(20.0, inf)]),
    ],
    ids=[
        "never", "once", "came back", "to the end", "outside the rush", "since before the rush", "since before, for ever",
        "one long batch at the beginning", "one long batch", "no batch at the end", "no batch at all",
    ],
)  # fmt: skip
def test_episodes_of_lag(lags: list[tuple[float, float]], episodes: list[tuple[float, float]]) -> None:
    assert [(o.from_s, o.to_s) for o in course.over({"e": lags}, 2.0, RUSH, 15.0)] == episodes


@pytest.mark.parametrize(
    ("points", "grows"),
    [
        ([(25.0, 1.0), (35.0, 4.0), (45.0, 9.0), (55.0, 12.0)], True),
        ([(25.0, 1.0), (35.0, 4.0), (45.0, 9.0), (55.0, 8.0)], False),
        ([(25.0, 1.0), (35.0, 4.0), (45.0, 4.0), (55.0, 5.0)], False),
        ([(25.0, 0.0), (35.0, 0.0), (45.0, 0.0), (55.0, 0.0)], False),
        ([(65.0, 1.0), (75.0, 2.0)], False),
    ],
)
def test_a_lag_that_grows_for_the_whole_rush(points: list[tuple[float, float]], grows: bool) -> None:
    assert course.grows(points, RUSH, 10.0) is grows


def test_accuracy_is_the_product_of_the_keeps_in_force() -> None:
    steps = course.in_force(
        TAXI,
        [batch(1.0), batch(2.0, "taxi.yellow:union", keep=0.8), batch(3.0, "taxi.green:union", keep=0.8), batch(4.0, keep=0.5)],
    )
    assert [(t, round(s["light"], 3), round(s["heavy"], 3)) for t, s in steps] == [
        (1.0, 1.0, 1.0), (2.0, 0.8, 0.8), (3.0, 0.8, 0.8), (4.0, 0.8, 0.4),
    ]  # fmt: skip


def test_a_row_was_shed_by_the_keeps_that_held_when_it_passed() -> None:
    """The union keeps 80 % from its second batch on; the heavy query still reads what was written before."""
    union = [
        batch(1.0, "taxi.yellow:union", read=2000, kept=2000),
        batch(3.0, "taxi.yellow:union", keep=0.8, read=2500, kept=2000),
    ]
    heavy = [
        batch(4.0, keep=0.5, read=1500, kept=750),
        batch(8.0, keep=0.5, read=1000, kept=500),
        batch(12.0, read=1500, kept=1500),
    ]
    steps = course.delivered(TAXI, [*heavy, *union, batch(5.0, "union:light", read=4000, kept=4000)])
    assert [(t, round(s["light"], 3), round(s["heavy"], 3)) for t, s in steps] == [
        (4.0, 1.0, 0.5), (5.0, 0.9, 0.5), (8.0, 0.9, 0.45), (12.0, 0.9, 0.8),
    ]  # fmt: skip
    assert course.least(steps) == {"light": pytest.approx(0.9), "heavy": pytest.approx(0.45)}


BOTH = {"light": 5, "heavy": 1}


@pytest.mark.parametrize(
    ("steps", "ordered"),
    [
        ([(1.0, {"light": 1.0, "heavy": 1.0})], False),
        ([(1.0, {"light": 1.0, "heavy": 0.4}), (2.0, {"light": 0.9, "heavy": 0.3})], True),
        ([(1.0, {"light": 0.9, "heavy": 0.9})], True),
        ([(1.0, {"light": 0.9, "heavy": 1.0}), (2.0, {"light": 0.9, "heavy": 0.3})], False),
        ([(1.0, {"light": 1.0, "heavy": 0.9}), (2.0, {"light": 0.8, "heavy": 0.9})], False),
    ],
    ids=["nobody", "lower first", "together", "higher first", "higher more"],
)
def test_who_gives_way(steps: list[tuple[float, dict[str, float]]], ordered: bool) -> None:
    assert course.in_order(steps, BOTH) is ordered


@pytest.mark.parametrize(
    ("keeps", "again"),
    [
        ({30.0: 0.5, 70.0: 0.8, 80.0: 1.0}, 20.0),
        ({30.0: 0.5, 50.0: 1.0}, 0.0),
        ({30.0: 0.5, 70.0: 1.0, 80.0: 0.9, 95.0: 1.0}, 35.0),
        ({30.0: 0.5, 70.0: 0.9}, inf),
    ],
)
def test_when_all_is_whole_again(keeps: dict[float, float], again: float) -> None:
    steps = course.in_force(TAXI, [batch(t, keep=keep) for t, keep in keeps.items()])
    assert course.whole_again_s(steps, RUSH) == again


@pytest.mark.parametrize(
    ("settings", "batches", "expected"),
    [
        ([(10.0, 0.5, 7)], [(9.0, None), (11.0, None), (13.0, 7)], {7: 2}),
        ([(10.0, 0.5, 7)], [(11.0, None), (13.0, None)], {7: None}),
        ([(10.0, 0.5, 7)], [(11.0, None)], {}),
        ([(10.0, 0.5, 7), (14.0, 0.5, 8)], [(11.0, 7), (15.0, 7), (17.0, 7)], {7: 1}),
        ([(10.0, 0.5, 7), (12.0, 0.4, 8)], [(11.0, 7), (13.0, 8)], {7: 1, 8: 1}),
    ],
    ids=["second batch", "never", "too soon to say", "the same again", "two"],
)
def test_batches_until_a_keep_is_in_force(
    settings: list[tuple[float, float, int]], batches: list[tuple[float, int | None]], expected: dict[int, int | None]
) -> None:
    made = [Set(edge="union:heavy", keep=keep, decision=number, at_s=t) for t, keep, number in settings]
    assert course.batches_until(made, [batch(t, decision=number) for t, number in batches]) == expected


def test_a_whole_run_under_control() -> None:
    made = [
        batch(15.0),
        batch(26.0, lag=4000),
        batch(34.0, lag=6000, keep=0.4, decision=3, read=5000, kept=2010),
        batch(48.0, lag=500, keep=0.4, decision=3, read=5000, kept=1990),
        batch(64.0, lag=0, keep=0.4, decision=3),
        batch(88.0, decision=9),
        *calm("taxi.yellow:union", "union:light"),
    ]
    sets = [Set(edge="union:heavy", keep=k, decision=d, at_s=t) for t, k, d in ((33.0, 0.4, 3), (87.0, 1.0, 9))]
    found = controlled(TAXI, SCENARIO, RUSH, made, sets, 15.0)
    assert (found.lagging_s, found.lagging_cycles) == (22.0, 2)
    assert (found.lag_peak_s, found.lag_after_s, found.waiting_after_s) == (6.0, 0.5, 5.5)
    assert found.least == {"light": 1.0, "heavy": 0.4} and found.floors_kept and found.in_order
    assert found.first_shed_s == {"heavy": 14.0}
    assert (found.whole_again_s, found.recovered_cycles) == (28.0, 2)
    assert (found.shed_read, found.shed_kept, found.shed_expected) == (11000, 5000, 4400.0)
    assert found.batches_until == 1


def test_an_edge_that_lags_for_ever_is_not_excused_by_one_that_lagged_later() -> None:
    heavy = [batch(t, lag=4000) for t in (26.0, 34.0, 42.0, 50.0, 58.0)]
    light = [batch(t, "union:light", lag=lag) for t, lag in ((25.0, 0), (38.0, 4000), (46.0, 0), (55.0, 0))]
    found = controlled(TAXI, SCENARIO, RUSH, [*heavy, *light, *calm("taxi.yellow:union")], [], 15.0)
    assert found.lagging_s == inf
    assert found.lag_after_s == found.waiting_after_s == inf


def test_a_lag_that_ends_with_the_rush_leaves_nothing_to_say_of_after() -> None:
    heavy = [batch(26.0, lag=4000), batch(40.0, lag=4000), batch(55.0, lag=4000), batch(63.0)]
    found = controlled(TAXI, SCENARIO, RUSH, [*heavy, *calm("taxi.yellow:union", "union:light")], [], 15.0)
    assert (found.lagging_s, found.lag_after_s) == (37.0, inf)


def test_a_run_without_a_decision_recovers_nothing_and_was_never_in_force() -> None:
    found = controlled(TAXI, SCENARIO, RUSH, [batch(26.0, lag=4000), batch(50.0, lag=9000)], [], 15.0)
    assert found.lagging_s == inf and found.lagging_cycles == inf
    assert found.batches_until is None and not found.in_order


def test_a_run_becomes_the_samples_of_a_figure() -> None:
    made = [batch(21.0, lag=2000), batch(23.0, keep=0.5, read=2000, kept=1000), batch(25.0), batch(26.0, "taxi.yellow:union")]
    found = list(samples(TAXI, SCENARIO, made, run="a"))
    of = {m: [(s.t_s, s.name, s.value) for s in found if s.measure is m] for m in Measure}
    assert (20, "heavy", 1000.0) in of[Measure.OFFERED] and (19, "light", 100.0) in of[Measure.OFFERED]
    assert of[Measure.PROCESSED] == [(21.0, "heavy", 500.0), (23.0, "heavy", 500.0)]
    assert of[Measure.LAG] == [(21.0, "heavy", 2.0), (23.0, "heavy", 0.0), (25.0, "heavy", 0.0)]
    assert (23.0, "union:heavy", 0.5) in of[Measure.KEEP] and (26.0, "taxi.yellow:union", 1.0) in of[Measure.KEEP]
    assert (23.0, "heavy", 0.5) in of[Measure.ACCURACY] and (23.0, "light", 0.8) in of[Measure.FLOOR]
    assert {s.run for s in found} == {"a"}


@pytest.mark.parametrize("file", [ROOT / "policies" / "responsive.yaml", DEMO])
def test_policies_for_a_rush_are_valid_and_let_a_query_recover_in_time(file: Path) -> None:
    policy = Policy.load(file, environ={})
    waits, half = policy.qod_raise_cycles - 1, 0.5
    assert waits + half / policy.qod_raise_limit < CYCLES_TO_RECOVER
    assert policy.qod_drain_horizon_s <= policy.qod_cycle_s


def test_the_demo_rescales_within_its_rush() -> None:
    policy, scenario = Policy.load(DEMO, environ={}), load(ROOT / "scenarios" / "long_rush.yaml")
    named_s = policy.capacity_cycle_s * (policy.rescale_persist_evaluations + 1)
    assert named_s < 60 < scenario.duration_s - course.height(scenario).ends_s
    assert (policy.rescale_cooldown_up_s, policy.rescale_block_s, policy.rescale_retry_s) == (0, 0, 0), "also the second time"
