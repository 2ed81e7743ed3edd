"""The paper's own words and figures (Flink-ER, seed 002), and where the specification departs from them."""

from __future__ import annotations

import random

import pytest
from spillway.decide.capacity import detect
from spillway.decide.capacity.examples import fork, join
from spillway.decide.capacity.feedback import Regulation, carried_within, regulate, step
from spillway.decide.capacity.improving import Path, dispatched, improving, optimisation_path, promoted
from spillway.decide.capacity.initial import initial_capacity, left_for_data
from spillway.decide.capacity.useful import ONE_SAMPLE, of_instances, skew_of, useful_rate
from spillway.model.capacity import Bandwidth, Busy, Estimator, Fork
from spillway.policy import Policy

POLICY = Policy()
HUNDRED_MEGABIT = 12.5e6
"""Section 3.1: 100 Mb/s ≈ 12.5 MB/s; here in bytes."""


def bandwidth(**fields: float) -> Bandwidth:
    return Bandwidth(
        **{
            "link": HUNDRED_MEGABIT,
            "system": 0.0,
            "heartbeat": 0.0,
            "checkpoint": 0.0,
            "others": 0.0,
            "row_bytes": 125.0,
            **fields,
        }
    )


def test_9_what_the_network_leaves_for_data() -> None:
    assert left_for_data(bandwidth()) == 12.5e6
    assert left_for_data(bandwidth(system=1e6, heartbeat=0.5e6, checkpoint=2e6, others=1.5e6)) == 7.5e6
    assert left_for_data(bandwidth(checkpoint=20e6)) == 0.0


def test_10_is_in_bytes_throughout() -> None:
    """The paper subtracts MB/s and divides by bytes, which would be a million times too little."""
    assert initial_capacity(bandwidth(), inputs=1) == 100_000.0
    assert initial_capacity(bandwidth(), inputs=4) == 25_000.0
    assert initial_capacity(bandwidth(), inputs=4, instances=3) == 75_000.0


def test_12_to_14_the_step_is_the_gap_between_two_rates() -> None:
    latencies = [400.0, 500.0, 600.0]
    mean = sum(latencies) / len(latencies)
    assert step(mean, 250.0) == abs(1000.0 * len(latencies) / sum(latencies) - 1000.0 / 250.0) == 2.0
    assert step(250.0, 250.0) == 0.0


@pytest.mark.parametrize(
    ("flow", "latency", "capacity", "regulation"),
    [
        (0.0, 900.0, 300.0, Regulation.NO_LOAD),
        (290.0, 500.0, 298.0, Regulation.REDUCED),
        (310.0, 500.0, 300.0, Regulation.IN_BAND),
        (290.0, 100.0, 306.0, Regulation.ENLARGED),
        (271.0, 100.0, 306.0, Regulation.ENLARGED),
        (269.0, 100.0, 300.0, Regulation.IN_BAND),
        (290.0, 125.0, 300.0, Regulation.IN_BAND),
        (290.0, 250.0, 300.0, Regulation.IN_BAND),
        (350.0, 200.0, 350.0, Regulation.HELD_AT_CARRIED),
    ],
)
def test_algorithm_1(flow: float, latency: float, capacity: float, regulation: Regulation) -> None:
    """At a capacity of 300 rows/s and a constraint of 250 ms."""
    done = regulate(300.0, flow=flow, latency_ms=latency, constraint_ms=250.0, policy=POLICY)
    assert (done.capacity, done.regulation) == (capacity, regulation)


def test_a_threshold_of_its_own() -> None:
    strict = regulate(300.0, flow=290.0, latency_ms=240.0, constraint_ms=250.0, threshold_ms=200.0, policy=POLICY)
    assert (strict.regulation, strict.capacity) == (Regulation.REDUCED, pytest.approx(300.0 - 1 / 6))


def test_regulation_keeps_its_bounds_whatever_comes() -> None:
    for seed in range(2000):
        rng = random.Random(seed)
        capacity, carried = rng.uniform(0.0, 1000.0), rng.choice([None, rng.uniform(0.0, 1000.0)])
        flow, latency, constraint = (
            rng.choice([0.0, rng.uniform(0.0, 1200.0)]),
            rng.uniform(0.1, 5000.0),
            rng.uniform(0.1, 5000.0),
        )
        done = regulate(capacity, flow=flow, latency_ms=latency, constraint_ms=constraint, carried=carried, policy=POLICY)
        if flow == 0.0:
            assert done.capacity == capacity
            continue
        assert done.capacity >= 0.0
        assert done.capacity >= (carried_within(flow, latency, constraint, carried) or 0.0)
        assert abs(done.capacity - capacity) <= step(latency, constraint) + 1e-9 or done.regulation is Regulation.HELD_AT_CARRIED


def test_regulation_comes_to_what_a_vertex_can_do_and_swings_about_it() -> None:
    """A server of 40 rows/s, asked for as much as it is believed to do: its latency passes the constraint above 40 rows/s.

    The step is as large as the gap between two rates, so it overshoots: one more reason to begin with the useful rate."""
    for first in (5.0, 40.0, 90.0):
        capacity, carried, seen = first, None, []
        for _ in range(200):
            flow = min(capacity, 60.0)
            latency = 20.0 if flow <= 40.0 else 50.0 + 10.0 * (flow - 40.0)
            done = regulate(capacity, flow=flow, latency_ms=latency, constraint_ms=50.0, carried=carried, policy=POLICY)
            carried = carried_within(flow, latency, 50.0, carried)
            capacity = done.capacity
            seen.append(capacity)
        assert 35.0 <= min(seen[-10:]) <= 40.0 <= max(seen[-10:]) <= 72.0


def test_2_and_3_the_improving_network_and_its_path() -> None:
    """Of two ways to the sink one is full: the path takes the other, and goes backward over what can be less."""
    capacity = {
        ("s", "a"): 10.0,
        ("s", "b"): 10.0,
        ("a", "c"): 4.0,
        ("b", "c"): 4.0,
        ("a", "d"): 8.0,
        ("c", "t"): 4.0,
        ("d", "t"): 8.0,
    }
    flow = {("s", "a"): 4.0, ("a", "c"): 4.0, ("c", "t"): 4.0}
    space = improving(capacity, flow)
    assert space["s", "a"] == 6.0 and space["a", "s"] == 4.0 and ("a", "c") not in space and space["c", "a"] == 4.0
    path = optimisation_path(space, "s", ["t"])
    assert path == Path(vertices=("s", "a", "d", "t"), value=6.0)
    after = promoted(capacity, flow, path)
    assert after["s", "a"] == 10.0 and after["d", "t"] == 6.0
    back = optimisation_path(improving(capacity, after), "s", ["t"])
    assert back == Path(vertices=("s", "b", "c", "a", "d", "t"), value=2.0)
    last = promoted(capacity, after, back)
    assert last["a", "c"] == 2.0 and last["b", "c"] == 2.0
    assert optimisation_path(improving(capacity, last), "s", ["t"]) is None
    largest, reached = dispatched(capacity, "s", ["t"])
    assert sum(v for (tail, _), v in largest.items() if tail == "s") == 12.0
    assert "t" not in reached


@pytest.mark.parametrize(
    ("flow", "close"), [(0.0, ()), (424.0, ()), (425.0, ("slow",)), (500.0, ("slow",)), (680.0, ("slow", "fast"))]
)
def test_11_a_partition_filled_to_85_percent_is_a_potential_bottleneck(flow: float, close: tuple[str, ...]) -> None:
    assert detect(fork(flow=flow), POLICY).potential == close


def test_11_lambda_is_policy() -> None:
    assert detect(fork(flow=450.0), Policy(capacity_lambda=0.95)).potential == ()
    assert detect(fork(flow=475.0), Policy(capacity_lambda=0.95)).potential == ("slow",)


def test_4_a_copy_limits_the_source_to_the_smaller_branch_where_a_plain_cut_adds_them_up() -> None:
    copied = detect(fork(), POLICY)
    assert (copied.max_flow, copied.cut, copied.limits["parse"].fork) == (500.0, (("parse", "slow"),), Fork.COPY)
    capacity = {
        ("ads", "parse"): 2000.0,
        ("parse", "slow"): 500.0,
        ("parse", "fast"): 800.0,
        ("slow", "t"): 9e9,
        ("fast", "t"): 9e9,
    }
    flow, _ = dispatched(capacity, "ads", ["t"])
    assert flow["ads", "parse"] == 1300.0


def test_a_split_is_limited_by_its_shares() -> None:
    split = detect(fork(left=0.8, right=0.2), POLICY)
    assert (split.max_flow, split.limits["parse"].fork) == (625.0, Fork.SPLIT)
    assert detect(fork(left=0.2, right=0.8), POLICY).max_flow == 1000.0
    assert detect(fork(left=0.1, right=0.1), POLICY).limits["parse"].fork is Fork.FILTER


def test_a_filter_in_front_does_not_make_an_operator_look_fast() -> None:
    """slow takes 500 rows/s, but only a tenth of what parse reads comes to it: in rows at the source that is 5000."""
    assert detect(fork(left=0.1), POLICY).limits["slow"].limit == 5000.0


def test_the_other_sources_are_held_at_their_rate() -> None:
    finding = detect(join(), POLICY)
    assert (finding.source, finding.max_flow) == ("clicks", 700.0)
    assert finding.cut == (("clicks", "match"), ("views", "match"))


def test_the_useful_rate_says_how_sure_it_is() -> None:
    exact = useful_rate([Busy(rows=100.0, busy_s=0.5)] * 5)
    assert (exact.capacity, exact.estimator, exact.confidence) == (200.0, Estimator.USEFUL_RATE, 1.0)
    assert useful_rate([Busy(rows=100.0, busy_s=0.5)]).confidence == ONE_SAMPLE
    few, many = ([Busy(rows=100.0, busy_s=0.5 + 0.05 * (-1) ** k) for k in range(n)] for n in (4, 40))
    assert useful_rate(few).confidence < useful_rate(many).confidence < 1.0
    assert useful_rate([]).capacity is useful_rate([Busy(rows=0.0, busy_s=4.0)]).capacity is None


def test_the_bar_of_the_useful_rate_holds_the_truth() -> None:
    held = 0
    for seed in range(500):
        rng = random.Random(seed)
        found = useful_rate(
            [Busy(rows=r, busy_s=r / 300.0 * rng.gauss(1.0, 0.05)) for r in (rng.uniform(50, 500) for _ in range(12))]
        )
        assert found.capacity is not None
        held += abs(found.capacity - 300.0) <= (1.0 - found.confidence) * found.capacity
    assert held >= 0.97 * 500


def test_a_keyed_operator_is_as_fast_as_its_fullest_bucket_allows() -> None:
    """Four instances of 100 rows/s, one of which gets half of all rows: at 200 rows/s it is busy all the time."""
    skew = skew_of([50.0, 20.0, 20.0, 10.0])
    assert skew == 2.0
    assert of_instances([Busy(rows=100.0, busy_s=1.0)] * 4, skew).capacity == 200.0
