"""The curve: it goes through what is measured, its inverse is exact, and its one parameter is found again."""

from __future__ import annotations

import random

import pytest
from spillway.decide.rescale.curve import NEVER, SERIAL_MOST, Curve, fit
from spillway.model.rescale import Sample


def samples(truth: Curve, *at: int, noise: float = 0.0, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    return [Sample(parallelism=p, capacity=truth.at(p) * rng.gauss(1.0, noise)) for p in at]


def test_enough_is_the_smallest_that_is_enough() -> None:
    rng = random.Random(1)
    for _ in range(500):
        curve = Curve(
            parallelism=rng.randint(1, 40), capacity=rng.uniform(1.0, 1e5), serial=rng.choice([0.0, rng.uniform(0.0, 0.3)])
        )
        rate = curve.capacity * rng.uniform(0.01, 20.0)
        found = curve.enough(rate)
        if found == NEVER:
            assert curve.at(10**8) < rate * (1.0 + 1e-6)
            continue
        assert curve.at(found) >= rate * (1.0 - 1e-6)
        assert found == 1 or curve.at(found - 1) < rate * (1.0 + 1e-9)


@pytest.mark.parametrize("serial", [0.0, 0.01, 0.0341, 0.1, 0.3])
def test_the_serial_share_is_found_again(serial: float) -> None:
    truth = Curve(parallelism=1, capacity=250.0, serial=serial)
    found = fit(12, truth.at(12), samples(truth, 1, 2, 4), 0.02)
    assert found.at(12) == pytest.approx(truth.at(12))
    assert found.serial == pytest.approx(serial, abs=0.01) and found.learned


def test_with_noise_it_stays_near() -> None:
    truth = Curve(parallelism=1, capacity=250.0, serial=0.0341)
    for seed in range(50):
        (now,) = samples(truth, 8, noise=0.05, seed=seed)
        found = fit(8, now.capacity, samples(truth, 1, 2, 4, noise=0.05, seed=1000 + seed), 0.02)
        assert found.at(26) == pytest.approx(truth.at(26), rel=0.5)


def test_faster_than_linear_is_noise_and_standing_still_is_not_believed_whole() -> None:
    assert fit(4, 500.0, [Sample(parallelism=2, capacity=100.0)], 0.02).serial == pytest.approx(0.0, abs=1e-6)
    stuck = fit(4, 100.0, [Sample(parallelism=2, capacity=100.0)], 0.02)
    assert 0.3 < stuck.serial <= SERIAL_MOST


@pytest.mark.parametrize("useless", [[], [Sample(parallelism=4, capacity=9.0)], [Sample(parallelism=2, capacity=0.0)]])
def test_without_anything_to_learn_from_the_prior_holds(useless: list[Sample]) -> None:
    found = fit(4, 400.0, useless, 0.02)
    assert (found.serial, found.learned) == (0.02, False)


def test_a_nearly_linear_operator_is_always_worth_more() -> None:
    assert Curve(parallelism=1, capacity=1.0, serial=1e-12).worth(0.25) == NEVER
    assert Curve(parallelism=1, capacity=1.0, serial=0.5).worth(0.25) == 1
