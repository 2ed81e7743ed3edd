"""The twin's batches follow the rules of the drivers' own code."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from spillway.policy import Policy
from spillway.simulate.batches import BAND, SHRINK, admitted, kept_bounds, next_bounds
from spillway.simulate.engine import Twin
from spillway.simulate.world import Physics
from twin_worlds import single

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
    bound, at, keep = random.integers(10, 100_000, 2_000), random.random(2_000), random.random(2_000)
    at[:50], keep[25:75] = 0.0, 0.0
    found = kept_bounds(bound, at, keep, least=50)
    for b, k0, k1, new in zip(bound.tolist(), at.tolist(), keep.tolist(), found.tolist(), strict=True):
        follower = BoundFollower(b, BoundPolicy(target_s=4.0, floor=50, shrink=SHRINK), cold_batches=0)
        follower.kept(k0)
        follower.batch(b, 4.0, cut=True)
        assert follower.kept(k1) == new


@pytest.mark.parametrize("wait_s", [0.1, 4.6, 9.0])
def test_a_bound_is_followed_over_batches_and_keeps_as_in_the_driver(wait_s: float) -> None:
    physics = Physics(delay_s=0.0, cold_s=0.0)
    world = single(2_000, per_kept_s=2.1e-3, wait_s=wait_s, physics=physics)
    twin = Twin(world, Policy(batch_rows_first=1_000, batch_rows_min=50), seed=3)
    policy = BoundPolicy(target_s=4.0, floor=50, ceiling=Policy().batch_rows_max, band=BAND, shrink=SHRINK)
    follower, ended, keeps, bounds = BoundFollower(1_000, policy), twin.log(), cycle((1.0, 0.3, 0.9, 0.1, 0.2, 0.6)), set()
    for count in range(120):
        if count % 4 == 0:
            keep = next(keeps)
            twin.publish({0: keep})
        while not ended:
            twin.advance(twin.now + physics.step_s)
        batch = ended.pop()
        follower.kept(keep)
        follower.batch(int(batch.read[0]), float(batch.ended[0] - batch.began[0]), cut=bool(twin.lag[0] > 0))
        assert twin.bound[0] == follower.bound
        bounds.add(follower.bound)
    assert len(bounds) > 4, "there is something to follow"


def test_edges_share_the_bound_as_in_the_driver() -> None:
    random = np.random.default_rng(8)
    for _ in range(500):
        waiting = random.integers(0, 5_000, random.integers(1, 5))
        bound, total = int(random.integers(10, 6_000)), int(waiting.sum())
        found = admitted(waiting, *(np.full(len(waiting), float(x)) for x in (bound, total, len(waiting))))
        expected = split(bound, {str(n): int(lag) for n, lag in enumerate(waiting)})
        assert found.tolist() == [min(int(lag), expected[str(n)]) for n, lag in enumerate(waiting)]
