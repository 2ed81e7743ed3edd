"""The running histogram of utilities: shares are right, it forgets, it stays small."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from spillway.model.topology import Edge, Shed

from spark_jobs.runtime.utility import LEVELS, Distribution, UtilityFollower, observed_name


def quantiles(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[max(0, -(-n * len(ordered) // LEVELS) - 1)] for n in range(1, LEVELS + 1)]


def decoded(spread: Distribution) -> tuple[list[float], list[float]]:
    bounds, shares = ([float(x) for x in part.split(",")] for part in spread.encode().split(";"))
    return bounds, shares


def share_up_to(spread: Distribution, value: float) -> float:
    bounds, shares = decoded(spread)
    return max((s for b, s in zip(bounds, shares, strict=True) if b <= value), default=0.0)


def test_shares_rise_and_end_in_one() -> None:
    spread = Distribution(10.0)
    rng = random.Random(1)
    for batch in range(30):
        spread.add(quantiles([rng.lognormvariate(0, 2) for _ in range(500)]), 500, float(batch))
        bounds, shares = decoded(spread)
        assert bounds == sorted(set(bounds)) and len(bounds) <= 400
        assert all(a < b for a, b in pairwise(shares)) and shares[-1] == 1.0


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.8, 0.99])
def test_many_batches_together_have_the_right_shares(share: float) -> None:
    rng = random.Random(2)
    spread, all_values = Distribution(1e6), list[float]()
    for batch in range(40):
        values = [rng.lognormvariate(0, 2) for _ in range(400)]
        all_values += values
        spread.add(quantiles(values), len(values), float(batch))
    cut = sorted(all_values)[int(share * len(all_values))]
    assert abs(share_up_to(spread, cut) - share) <= 0.01


def test_a_value_that_many_rows_share_keeps_its_weight() -> None:
    spread = Distribution(1e6)
    rng = random.Random(3)
    for batch in range(50):
        spread.add(quantiles([0.0] * 700 + [rng.random() for _ in range(300)]), 1000, float(batch))
    assert abs(share_up_to(spread, 0.0) - 0.7) <= 0.01


def test_the_old_fades() -> None:
    spread = Distribution(10.0)
    spread.add([1.0] * LEVELS, 1000, 100.0)
    spread.add([2.0] * LEVELS, 1000, 110.0)
    assert share_up_to(spread, 1.0) == pytest.approx(1 / 3)
    spread.add([2.0] * LEVELS, 1, 210.0)
    assert share_up_to(spread, 1.0) < 0.34, "a small batch does not outweigh what is known"
    spread.add([3.0] * LEVELS, 1000, 400.0)
    assert share_up_to(spread, 2.0) < 0.001


def test_a_clock_that_goes_back_is_no_reason_to_forget() -> None:
    spread = Distribution(10.0)
    spread.add([1.0], 100, 100.0)
    spread.add([2.0], 100, 50.0)
    assert share_up_to(spread, 1.0) == 0.5


def test_only_edges_that_shed_by_utility_are_followed() -> None:
    edges = tuple(
        Edge(name=f"{n}:op", topic=n, producer=None, consumer="op", partitions=1, shed=by, utility="1" if n == "b" else None)
        for n, by in (("a", Shed.RANDOM), ("b", Shed.BY_UTILITY))
    )
    published: list[tuple[str, str]] = []
    follower = UtilityFollower(edges, 60.0, lambda edge, text: published.append((edge, text)))
    observed = {observed_name(e.name): {"quantiles": [1.0, 2.0], "rows": 8} for e in edges}
    follower.batch({"timestamp": "2026-01-01T00:00:00.000Z", "observedMetrics": observed})
    for nothing in ({}, {observed_name("b:op"): {"quantiles": None, "rows": 0}}):
        follower.batch({"timestamp": "2026-01-01T00:00:01.000Z", "observedMetrics": nothing})
    assert published == [("b:op", "1.0,2.0;0.5,1.0")]
