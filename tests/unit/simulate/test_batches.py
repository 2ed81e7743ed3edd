"""The twin's batches follow the rules of the drivers' own code."""

from __future__ import annotations

import numpy as np
from spillway.simulate.batches import BAND, SHRINK, admitted, kept_bounds, next_bounds

from spark_jobs.runtime.bound import BoundFollower, BoundPolicy, next_bound, split


def test_the_bound_is_the_one_of_the_driver() -> None:
    random = np.random.default_rng(7)
    count = 5_000
    bound = random.integers(10, 100_000, count)
    rows = np.where(random.random(count) < 0.5, bound, random.integers(0, 100_000, count))
    busy, fixed, target = random.uniform(0, 20, count), random.uniform(0, 3, count), random.choice([1.0, 4.0, 10.0], count)
    cut = random.random(count) < 0.5
    found = next_bounds(bound, rows, busy, fixed, target, cut, least=50, most=60_000)
    expected = [
        next_bound(
            int(b), int(r), float(s), float(f), cut=bool(c),
            policy=BoundPolicy(target_s=float(t), floor=50, ceiling=60_000, band=BAND, shrink=SHRINK),
        )
        for b, r, s, f, t, c in zip(bound, rows, busy, fixed, target, cut, strict=True)
    ]  # fmt: skip
    assert found.tolist() == expected
    assert len(set(expected) - set(bound.tolist())) > 500, "most of these cases teach something"


def test_a_bound_meets_a_higher_keep_as_in_the_driver() -> None:
    random = np.random.default_rng(9)
    bound, before, keep = random.integers(10, 100_000, 2_000), random.random(2_000), random.random(2_000)
    before[:50], keep[50:100] = 0.0, 0.0
    found = kept_bounds(bound, before, keep, least=50)
    for b, k0, k1, new in zip(bound.tolist(), before.tolist(), keep.tolist(), found.tolist(), strict=True):
        follower = BoundFollower(b, BoundPolicy(target_s=4.0, floor=50, shrink=SHRINK))
        follower.kept(k0)
        assert follower.kept(k1) == new


def test_edges_share_the_bound_as_in_the_driver() -> None:
    random = np.random.default_rng(8)
    for _ in range(500):
        waiting = random.integers(0, 5_000, random.integers(1, 5))
        bound, total = int(random.integers(10, 6_000)), int(waiting.sum())
        found = admitted(waiting, *(np.full(len(waiting), float(x)) for x in (bound, total, len(waiting))))
        expected = split(bound, {str(n): int(lag) for n, lag in enumerate(waiting)})
        assert found.tolist() == [min(int(lag), expected[str(n)]) for n, lag in enumerate(waiting)]
