"""Planted bottlenecks: the right operator is named, in every one of a thousand worlds whose truth is known by construction."""

from __future__ import annotations

import random

import pytest
from spillway.decide.capacity import detect
from spillway.model.capacity import CapacityWorld, Verdict
from spillway.policy import Policy
from spillway.simulate.planted import Law, planted

POLICY = Policy()
SEEDS = 1000


def test_the_right_operator_is_named_in_every_world() -> None:
    for seed in range(SEEDS):
        world = planted(seed, law=Law.SUBLINEAR if seed % 2 else Law.LINEAR)
        finding = detect(world.observe(world.parallelism, world.rate), POLICY)
        truth = world.truth(world.parallelism, world.rate)
        assert frozenset(finding.bottlenecks) == truth, seed
        assert finding.max_flow == pytest.approx(world.sustained, rel=1e-9), seed
        assert set(world.planted) <= set(finding.potential), "also the one that is nearly as narrow"


def test_it_is_named_at_any_parallelism_and_rate() -> None:
    named = 0
    for seed in range(300):
        world, rng = planted(seed, law=Law.SUBLINEAR), random.Random(seed)
        parallelism = {name: max(1, p + rng.randint(-1, 6)) for name, p in world.parallelism.items()}
        rate = world.rate * rng.uniform(0.3, 2.0)
        finding = detect(world.observe(parallelism, rate), POLICY)
        truth, limits = world.truth(parallelism, rate), world.limits(parallelism)
        least = min(limits.values())
        assert finding.max_flow == pytest.approx(least, rel=1e-9), seed
        if truth:
            named += 1
            assert truth <= set(finding.bottlenecks) <= {n for n, limit in limits.items() if limit <= 1.0101 * least}, seed
        elif rate < 0.985 * least:
            assert (finding.verdict, finding.bottlenecks) == (Verdict.KEEPS_UP, ()), seed
    assert named > 150


def test_enough_of_everything_leaves_no_bottleneck() -> None:
    for seed in range(200):
        world = planted(seed)
        enough = {name: p + 1 for name, p in world.needed(world.rate).items()}
        finding = detect(world.observe(enough, world.rate), POLICY)
        assert finding.bottlenecks == () or min(world.limits(enough).values()) < 1.01 * world.rate, seed


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_with_noise_the_right_one_is_among_those_that_are_close(noise: float) -> None:
    named, worlds = 0, 200
    for seed in range(worlds):
        world = planted(seed, noise=noise)
        finding = detect(world.observe(world.parallelism, world.rate, seed=seed), POLICY)
        truth = world.truth(world.parallelism, world.rate)
        assert finding.verdict in (Verdict.BOTTLENECK, Verdict.DISPATCH), seed
        assert truth <= set(finding.potential), seed
        assert set(finding.bottlenecks) <= set(world.planted), "never one that is not planted"
        named += bool(truth & set(finding.bottlenecks))
    assert named >= 0.95 * worlds


def test_what_is_observed_survives_the_interchange() -> None:
    for seed in range(50):
        seen = planted(seed, noise=0.05).observe(planted(seed).parallelism, planted(seed).rate)
        seen.check()
        assert CapacityWorld.from_json(seen.to_json()) == seen
        assert detect(CapacityWorld.from_json(seen.to_json()), POLICY) == detect(seen, POLICY)
