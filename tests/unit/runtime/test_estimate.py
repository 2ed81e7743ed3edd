"""The formulas of the error bars against simulated shedding: right on average, and the bar holds the truth as often as stated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_jobs.estimate import deviations, mean_variance, ratio_part, variance_part

ROWS, TRIALS = 2_000, 3_000
Z = deviations(0.95)
Array = np.ndarray


def shed_rows(rng: np.random.Generator, keeps: Array) -> Array:
    """Trials × rows: whether a row is kept."""
    return rng.random((TRIALS, len(keeps))) < keeps


def shed_keys(rng: np.random.Generator, keys: Array, keeps: Array) -> Array:
    """The same with one number per key, as the shedder's hash gives."""
    return rng.random((TRIALS, int(keys.max()) + 1))[:, keys] < keeps


def totals(kept: Array, x: Array, w: Array, keys: Array | None = None) -> tuple[Array, Array, Array, Array]:
    """(weighted total, plain total, weighted count, count) of every draw in every trial: of each row, or of each key."""
    parts = (kept * w * x, kept * x, kept * w, kept * 1.0)
    if keys is None:
        return parts
    member = np.eye(int(keys.max()) + 1)[keys]
    return tuple(p @ member for p in parts)  # type: ignore[return-value]


def held(estimate: Array, variance: Array, truth: float) -> float:
    return float(np.mean(np.abs(estimate - truth) <= Z * np.sqrt(variance)))


def check(draws: tuple[Array, Array, Array, Array], x: Array) -> tuple[float, float, float]:
    """Estimates are right on average and so are their variances; returns how often the bars of sum, count and mean held."""
    y, t, m, n = (d for d in draws)
    total, rows = y.sum(axis=1), m.sum(axis=1)
    of_total, of_rows = variance_part(y, t).sum(axis=1), variance_part(m, n).sum(axis=1)
    of_mean = mean_variance(total, rows, of_total, ratio_part(y, t, m, n).sum(axis=1), of_rows)
    for estimate, variance, truth in ((total, of_total, x.sum()), (rows, of_rows, len(x)), (total / rows, of_mean, x.mean())):
        assert abs(estimate.mean() - truth) <= 4.5 * estimate.std() / np.sqrt(TRIALS)
        assert variance.mean() == pytest.approx(estimate.var(), rel=0.12)
    return held(total, of_total, x.sum()), held(rows, of_rows, float(len(x))), held(total / rows, of_mean, x.mean())


VALUES: dict[str, Callable[[np.random.Generator], Array]] = {
    "even": lambda rng: rng.uniform(1.0, 2.0, ROWS),
    "lognormal": lambda rng: rng.lognormal(0.0, 1.0, ROWS),
    "zipf": lambda rng: np.minimum(rng.zipf(2.5, ROWS), 20).astype(float),
    "of both signs": lambda rng: rng.normal(3.0, 5.0, ROWS),
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_rows_kept_by_chance(values: str, keep: float) -> None:
    rng = np.random.default_rng(7)
    x = VALUES[values](rng)
    shares = check(totals(shed_rows(rng, np.full(ROWS, keep)), x, np.full(ROWS, 1 / keep)), x)
    assert all(0.92 <= share <= 0.97 for share in shares), shares


def test_keeps_that_change_and_multiply() -> None:
    """Two edges, each with a keep that changes on the way: what counts is the product at the row."""
    rng = np.random.default_rng(8)
    x = VALUES["lognormal"](rng)
    first, second = np.where(np.arange(ROWS) < 700, 1.0, 0.5), np.where(np.arange(ROWS) % 3 == 0, 0.4, 0.8)
    kept = shed_rows(rng, first) & shed_rows(rng, second)
    assert all(0.93 <= share <= 0.97 for share in check(totals(kept, x, 1 / (first * second)), x))


def test_whole_keys() -> None:
    """The bar over keys is right; the one over rows, which are no draws of their own, is far too short."""
    rng = np.random.default_rng(9)
    keys = rng.integers(0, 400, ROWS)
    x = VALUES["lognormal"](rng)
    kept, w = shed_keys(rng, keys, np.full(ROWS, 0.4)), np.full(ROWS, 2.5)
    assert all(0.92 <= share <= 0.97 for share in check(totals(kept, x, w, keys), x))
    y, t, *_ = totals(kept, x, w)
    assert held(y.sum(axis=1), variance_part(y, t).sum(axis=1), x.sum()) < 0.9


def test_whole_keys_whose_keep_changes_have_no_bar_too_short() -> None:
    rng = np.random.default_rng(10)
    keys = rng.integers(0, 400, ROWS)
    x = VALUES["lognormal"](rng)
    keeps = np.select([np.arange(ROWS) < 600, np.arange(ROWS) < 1200], [0.3, 0.8], 0.5)
    y, t, *_ = totals(shed_keys(rng, keys, keeps), x, 1 / keeps, keys)
    estimate, variance = y.sum(axis=1), variance_part(y, t).sum(axis=1)
    assert abs(estimate.mean() - x.sum()) <= 4.5 * estimate.std() / np.sqrt(TRIALS)
    assert estimate.var() * 0.95 <= variance.mean() <= estimate.var() * 1.5
    assert held(estimate, variance, x.sum()) >= 0.94


def test_rows_shed_by_chance_and_then_by_key_have_no_bar_too_short() -> None:
    rng = np.random.default_rng(11)
    keys = rng.integers(0, 400, ROWS)
    x = VALUES["lognormal"](rng)
    kept = shed_rows(rng, np.full(ROWS, 0.6)) & shed_keys(rng, keys, np.full(ROWS, 0.5))
    y, t, *_ = totals(kept, x, np.full(ROWS, 1 / 0.3), keys)
    estimate, variance = y.sum(axis=1), variance_part(y, t).sum(axis=1)
    assert estimate.var() * 0.95 <= variance.mean() <= estimate.var() * 1.6
    assert held(estimate, variance, x.sum()) >= 0.94


def test_nothing_shed_nothing_unsure() -> None:
    x = VALUES["lognormal"](np.random.default_rng(12))
    assert variance_part(x, x).sum() == 0.0
    assert mean_variance(x.sum(), float(ROWS), 0.0, 0.0, 0.0) == 0.0


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        deviations(level)
