"""The twin's batches follow the rules of the drivers' own code."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from spillway.policy import Policy
from spillway.simulate import batches
from spillway.simulate.batches import BAND, SHRINK, Spared, admitted, kept_bounds, next_bounds
from spillway.simulate.engine import Twin
from spillway.simulate.world import Physics
from twin_worlds import single

from spark_jobs.runtime import bound as bound_module
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
    policy = BoundPolicy(target_s=4.0, floor=50, ceiling=Policy().batch_rows_max, start=1_000, band=BAND, shrink=SHRINK)
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
    assert len(bounds) > 3, "there is something to follow"


def test_what_is_made_smaller_in_vain_is_given_back_as_in_the_driver() -> None:
    """By chance: batches that are late for their rows, for nothing, or not at all, and keeps that change in between."""
    random, spared_batches = np.random.default_rng(11), 0
    for _ in range(60):
        first, least = int(random.choice([50, 60, 400, 20_000])), 50
        policy = BoundPolicy(target_s=4.0, floor=least, ceiling=100_000, start=1_000, band=BAND, shrink=SHRINK)
        follower = BoundFollower(first, policy, cold_batches=0)
        spared, bound, recent, keep = Spared(1, least=least, start=1_000), np.array([first]), [], 1.0
        fixed_s, per_row_s = float(random.choice([0.3, 5.0, 9.0, 30.0])), float(random.choice([1e-5, 1e-3]))
        for number in range(150):
            if number % 40 == 39:
                fixed_s, per_row_s = float(random.choice([0.3, 5.0, 9.0, 30.0])), float(random.choice([1e-5, 1e-3]))
            if number % 60 == 59:
                keep = 1.5 - keep
                follower.kept(keep)
                spared.forget(np.array([True]))
                bound = np.array([follower.bound])
            rows, cut = np.array([int(random.choice([1.0, 1.0, 0.5]) * bound[0])]), np.array([random.random() < 0.9])
            busy_s = np.array([(fixed_s + per_row_s * rows[0]) * random.uniform(0.8, 1.3)])
            recent = [*recent, float(busy_s[0])][-50:]
            target = np.array([4.0])
            wanted = next_bounds(bound, rows, busy_s, np.array([min(recent)]), target, cut, least=least, most=100_000)
            bound = spared.bounds(np.array([0]), bound, wanted, rows, busy_s, target, cut)
            assert bound[0] == follower.batch(int(rows[0]), float(busy_s[0]), cut=bool(cut[0]))
            spared_batches += follower._spared > 0
    assert spared_batches > 500


def test_they_are_the_same_numbers() -> None:
    for name in ("CLEARLY_FEWER", "HARDLY_SHORTER", "IN_VAIN", "SPARED", "HARDLY_LONGER", "MUCH_LONGER", "DOUBLED"):
        assert getattr(batches, name) == getattr(bound_module, name)


def test_edges_share_the_bound_as_in_the_driver() -> None:
    random = np.random.default_rng(8)
    for _ in range(500):
        waiting = random.integers(0, 5_000, random.integers(1, 5))
        bound, total = int(random.integers(10, 6_000)), int(waiting.sum())
        found = admitted(waiting, *(np.full(len(waiting), float(x)) for x in (bound, total, len(waiting))))
        expected = split(bound, {str(n): int(lag) for n, lag in enumerate(waiting)})
        assert found.tolist() == [min(int(lag), expected[str(n)]) for n, lag in enumerate(waiting)]
