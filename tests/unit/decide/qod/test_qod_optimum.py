"""A second model, a linear program, finds the same distribution where there is one best, and bounds how far off it is else."""

from __future__ import annotations

import pytest
from spillway.decide.qod import decide
from spillway.policy import Policy

from tests.support.qod_lp import best_by_priority
from tests.support.qod_oracle import Oracle
from tests.support.qod_worlds import world


@pytest.mark.parametrize("cpu_model", ["proportional", "affine"])
def test_distribution_against_the_linear_program(cpu_model: str) -> None:
    """With one query per priority it is the optimum. Queries that share a priority share CPU evenly instead of by what is
    cheapest, and lose little of the largest possible sum."""
    policy = Policy(qod_headroom=0.0, qod_tolerance=0.0, cpu_model=cpu_model)
    distinct = shared = 0
    gaps = []
    for seed in range(250):
        seen = world(seed, calm=True, cost=cpu_model == "affine")
        decision = decide(seen, policy)
        if not decision.feasible or decision.moves or all(s.desired == 1.0 for s in decision.queries.values()):
            continue
        oracle = Oracle(seen, affine=cpu_model == "affine")
        best = best_by_priority(oracle)
        got = {name: state.desired for name, state in decision.queries.items()}
        levels = [oracle.priority(q) for q in got]
        if len(set(levels)) == len(levels):
            distinct += 1
            assert got == pytest.approx(best, abs=2e-4), seed
        first = [q for q in got if oracle.priority(q) == max(levels)]
        if len(first) > 1:
            shared += 1
            gaps.append(sum(best[q] - got[q] for q in first) / len(first))
            assert gaps[-1] > -1e-4, seed
    assert distinct > 20 and shared > 20
    assert sum(gaps) / len(gaps) < 0.02
