"""The affine cost of an operator: learned from its batches, used where a proportional one misjudges what shedding releases."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import nnls
from spillway.decide.qod import decide, learn
from spillway.decide.qod.examples import chain_observation
from spillway.model.qod import Cost, CostSample, Edge, Instance, Node, Observation, Operator
from spillway.policy import Policy

from tests.support.qod_oracle import Oracle
from tests.support.qod_queries import WHOLE

AFFINE = replace(WHOLE, cpu_model="affine")


def batches(
    cost: Cost, seed: int, *, count: int = 30, noise: float = 0.0, keeps: tuple[float, float] = (0.3, 1.0)
) -> list[CostSample]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        arrived = rng.uniform(100.0, 1000.0)
        kept = arrived * rng.uniform(*keeps)
        cpu = cost.fixed + cost.per_arrived * arrived + cost.per_kept * kept
        found.append(CostSample(arrived=arrived, kept=kept, cpu=max(0.0, cpu * (1.0 + rng.gauss(0.0, noise)))))
    return found


@pytest.mark.parametrize(
    "cost",
    [
        Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05),
        Cost(fixed=0.0, per_arrived=0.0, per_kept=0.08),
        Cost(fixed=20.0, per_arrived=0.04, per_kept=0.0),
        Cost(fixed=0.0, per_arrived=0.05, per_kept=0.01),
    ],
)
def test_a_cost_is_found_again(cost: Cost) -> None:
    found = learn(batches(cost, 1), Policy())
    assert found is not None
    assert (found.fixed, found.per_arrived, found.per_kept) == pytest.approx(
        (cost.fixed, cost.per_arrived, cost.per_kept), abs=1e-9
    )


def test_noise_is_borne() -> None:
    cost = Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05)
    for seed in range(20):
        found = learn(batches(cost, seed, count=60, noise=0.05), Policy())
        assert found is not None
        at_half = found.fixed + found.per_arrived * 500.0 + found.per_kept * 250.0
        assert at_half == pytest.approx(12.0 + 10.0 + 12.5, rel=0.06), seed


def test_the_fit_is_the_non_negative_one() -> None:
    """The same as scipy's, whatever the data."""
    rng = np.random.default_rng(3)
    easy = Policy(learn_error_most=1.0, learn_spread_min=0.01)
    told = 0
    for _ in range(200):
        samples = [CostSample(arrived=a, kept=a * k, cpu=c) for a, k, c in rng.uniform((1, 0, 0), (900, 1, 90), (12, 3))]
        found = learn(samples, easy)
        expected, _ = nnls(np.array([(1.0, s.arrived, s.kept) for s in samples]), np.array([s.cpu for s in samples]))
        if found is not None:
            told += 1
            assert (found.fixed, found.per_arrived, found.per_kept) == pytest.approx(tuple(expected), abs=1e-9)
    assert told > 150


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="no batches"),
        pytest.param(batches(Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05), 1, count=7), id="too few"),
        pytest.param(batches(Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05), 1, keeps=(1.0, 1.0)), id="always the same keep"),
        pytest.param([CostSample(arrived=500.0, kept=250.0, cpu=35.0)] * 20, id="always the same rate"),
        pytest.param(batches(Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05), 1, noise=1.5), id="no line fits"),
        pytest.param([CostSample(arrived=10.0 * k, kept=5.0 * k**0.5, cpu=0.0) for k in range(1, 20)], id="no CPU"),
        pytest.param([CostSample(arrived=float("nan"), kept=1.0, cpu=1.0)] * 20, id="not numbers"),
    ],
)
def test_it_says_when_it_cannot_be_told(samples: list[CostSample]) -> None:
    assert learn(samples, Policy()) is None


def test_broken_batches_are_left_out() -> None:
    good = batches(Cost(fixed=12.0, per_arrived=0.02, per_kept=0.05), 1)
    bad = [CostSample(arrived=-1.0, kept=1.0, cpu=1.0), CostSample(arrived=1.0, kept=1.0, cpu=float("inf"))]
    assert learn([*bad, *good], Policy()) == learn(good, Policy())


def light(cost: Cost | None) -> Observation:
    """A query of 60 percent beside one that wants 50: 30 of them fixed, 10 to read 100 rows per second, 20 to work on them."""
    return Observation(
        nodes=(Node(name="n1", cores=1.0, cpu=100.0),),
        operators=(
            Operator(name="query", instances=(Instance(node="n1", in_rate=100.0, cpu=60.0),), priority=1, cost=cost),
            Operator(name="other", instances=(Instance(node="n1", in_rate=100.0, cpu=40.0),), priority=2),
        ),
        edges=(
            Edge(producer=None, topic="t", consumer="query", out_rate=100.0, lag=0.0),
            Edge(producer=None, topic="u", consumer="other", out_rate=125.0, lag=0.0),
        ),
    )


def test_affine_sheds_what_has_to_be_shed() -> None:
    """`other` takes 50, so 50 are left of 60. Proportional: keep 50/60. But shedding touches only 20 of the 60: keep 0.5."""
    cost = Cost(fixed=30.0, per_arrived=0.1, per_kept=0.2)
    assert decide(light(cost), WHOLE).queries["query"].desired == pytest.approx(50.0 / 60.0)
    decision = decide(light(cost), AFFINE)
    assert decision.queries["query"].desired == pytest.approx(0.5)
    assert decision.expected.cpu["n1"] == pytest.approx(100.0)


def test_affine_without_a_learned_cost_is_proportional() -> None:
    assert decide(light(None), AFFINE).to_json() == decide(light(None), WHOLE).to_json()


def test_reading_is_saved_by_shedding_earlier() -> None:
    """What the union drops the bill need not read: at accuracy a the two cost 48a + 10 + 0.2·120a + 0.5·120a, of 95."""
    seen = chain_observation()
    union, bill = seen.operators
    seen = replace(seen, operators=(union, replace(bill, cost=Cost(fixed=10.0, per_arrived=0.2, per_kept=0.5))))
    assert decide(seen, AFFINE).queries["bill"].desired == pytest.approx(85.0 / (48.0 + 24.0 + 60.0))


def test_a_fixed_cost_alone_can_break_a_floor() -> None:
    decision = decide(light(Cost(fixed=70.0, per_arrived=0.0, per_kept=0.1)), AFFINE)
    assert decision.queries["query"].desired == 0.0
    promised = light(Cost(fixed=70.0, per_arrived=0.0, per_kept=0.1))
    query, other = promised.operators
    promised = replace(promised, operators=(replace(query, min_accuracy=0.5), replace(other, min_accuracy=1.0)))
    decision = decide(promised, AFFINE)
    infeasible = decision.infeasible
    assert infeasible is not None and infeasible.queries == ("other", "query")
    assert decision.queries["other"].desired == pytest.approx(30.0 / 50.0)  # the 70 cannot be shed away
    assert infeasible.cores_needed == pytest.approx((70.0 + 5.0 + 50.0 - 100.0) / 100.0)


def test_an_operator_behind_one_that_stands_still_stays_proportional() -> None:
    seen = chain_observation()
    union, bill = seen.operators
    stands = replace(union, instances=(replace(union.instances[0], in_rate=0.0),))
    seen = replace(seen, operators=(stands, replace(bill, cost=Cost(fixed=10.0, per_arrived=0.2, per_kept=0.5))))
    decision = decide(seen, AFFINE)
    assert 0.0 <= decision.queries["bill"].desired <= 1.0
    assert Oracle(seen, affine=True).share("bill") == 0.0
