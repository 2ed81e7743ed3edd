"""Another placement of the floors: it holds them, and moves nothing that could have stayed."""

from __future__ import annotations

import random

import numpy as np
from spillway.decide.qod.repack import improve, repack


def test_no_move_is_needless() -> None:
    packed = 0
    for seed in range(150):
        rng = random.Random(seed)
        size = np.array([float(rng.choice([10, 20, 30, 45, 60, 100])) for _ in range(10)])
        home = np.array([rng.randrange(4) for _ in size])
        capacity = np.array([100.0, 150.0, 120.0, float(size.sum()) - 300.0])
        new, short = repack(size, home, capacity, seed=seed)
        load = np.bincount(new, size, 4)
        assert np.all(load <= capacity + short + 1e-6), seed
        if short.any():
            continue
        packed += 1
        room = capacity - load
        for item in np.flatnonzero(new != home).tolist():
            assert room[home[item]] < size[item], seed
            swaps = (new == home[item]) & (home != home[item]) & (size == size[item])
            assert not swaps.any(), seed
    assert packed > 50


def test_starts_from_scratch_find_what_steps_do_not() -> None:
    found = 0
    for seed in range(300):
        rng = random.Random(seed)
        size = np.array([float(rng.choice([35, 57, 79, 100])) for _ in range(8)])
        home = np.array([rng.randrange(3) for _ in size])
        capacity = np.bincount([rng.randrange(3) for _ in size], size, 3)  # so that some placement fits exactly
        stuck = improve(size, home, capacity)[1].sum()
        short = repack(size, home, capacity, seed=seed)[1].sum()
        assert short <= stuck + 1e-9, seed
        found += stuck > 0.0 == short
    assert found > 5


def test_what_is_not_to_be_touched_stays() -> None:
    size, home = np.array([60.0, 60.0, 10.0]), np.array([0, 0, 1])
    new, short = repack(size, home, np.array([100.0, -np.inf]))
    assert new.tolist() == [0, 0, 1]
    assert short.tolist() == [20.0, 0.0]
