"""The CPU of a node: never more than there is, nothing idle while someone wants it, nobody ahead of an equal."""

from __future__ import annotations

import numpy as np
import pytest
from spillway.simulate.sharing import share


@pytest.mark.parametrize("seed", range(200))
def test_max_min_fairness(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes, count = int(random.integers(1, 5)), int(random.integers(1, 30))
    wanted, node = random.uniform(0, 1, count) * random.integers(0, 2, count), random.integers(0, nodes, count)
    capacity = random.uniform(0, 4, nodes)
    got, level = share(wanted, node, capacity)
    assert np.all(got <= wanted + 1e-12) and np.all(got >= 0)
    used, asked = np.bincount(node, got, nodes), np.bincount(node, wanted, nodes)
    assert np.allclose(used, np.minimum(asked, capacity))
    short = got < wanted - 1e-9
    assert np.allclose(got[short], level[node[short]])
    assert np.all(got <= level[node] + 1e-9)


def test_a_full_node_does_not_slow_another() -> None:
    got, _ = share(np.array([1.0, 1.0, 0.7]), np.array([0, 0, 1]), np.array([1.0, 1.0]))
    assert got.tolist() == [0.5, 0.5, 0.7]
