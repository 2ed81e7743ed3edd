"""The formulas of the error bars against simulated shedding: right on average, and the bar holds the truth as often as stated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_jobs.estimate import Moments, deviations, squares, unbiased, variance_part

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


def of_mean(draws: tuple[Array, Array, Array, Array]) -> Array:
    """Variance of the mean in every trial, without the factor for small windows."""
    y, t, m, n = draws
    count = np.maximum((n > 0).sum(axis=1, keepdims=True), 1)
    x = np.divide(y, m, out=np.zeros_like(y), where=n > 0)
    a, h = variance_part(m, n), m * (y - t)

    def mean(values: Array) -> Array:
        found: Array = np.where(n > 0, values, 0.0).sum(axis=1, keepdims=True) / count
        return found

    def with_x(values: Array) -> Array:
        found: Array = np.where(n > 0, (values - mean(values)) * (x - mean(x)), 0.0).sum(axis=1)
        return found

    moments = Moments(mean=mean(x)[:, 0], a=a.sum(axis=1), h=h.sum(axis=1), ax=with_x(a), hx=with_x(h))
    rows = m.sum(axis=1)
    found: Array = squares(moments, y.sum(axis=1) / rows) / rows**2
    return found


def held(estimate: Array, variance: Array, truth: float) -> float:
    return float(np.mean(np.abs(estimate - truth) <= Z * np.sqrt(variance)))


def check(draws: tuple[Array, Array, Array, Array], x: Array) -> tuple[float, float, float]:
    """Estimates are right on average and so are their variances; returns how often the bars of sum, count and mean held."""
    y, t, m, n = (d for d in draws)
    total, rows = y.sum(axis=1), m.sum(axis=1)
    of_total, of_rows, of_ratio = variance_part(y, t).sum(axis=1), variance_part(m, n).sum(axis=1), of_mean(draws)
    for estimate, variance, truth in ((total, of_total, x.sum()), (rows, of_rows, len(x)), (total / rows, of_ratio, x.mean())):
        assert abs(estimate.mean() - truth) <= 4.5 * estimate.std() / np.sqrt(TRIALS)
        assert variance.mean() == pytest.approx(estimate.var(), rel=0.12)
    return held(total, of_total, x.sum()), held(rows, of_rows, float(len(x))), held(total / rows, of_ratio, x.mean())


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
    assert of_mean((x[None], x[None], np.ones((1, ROWS)), np.ones((1, ROWS)))) == 0.0


@pytest.mark.parametrize(
    ("values", "events", "keep", "least_mean", "least_sum"),
    [("even", 150, 0.2, 0.93, 0.93), ("even", 60, 0.5, 0.93, 0.93), ("lognormal", 1_500, 0.2, 0.92, 0.925)],
)
def test_the_bars_hold_from_the_least_rows_on(values: str, events: int, keep: float, least_mean: float, least_sum: float) -> None:
    """Thirty rows kept, three hundred where values are skewed; new values in every window."""
    rng = np.random.default_rng(13)
    x = VALUES[values](rng)[rng.integers(0, ROWS, (TRIALS, events))]
    kept = rng.random(x.shape) < keep
    draws = totals(kept, x, np.full(events, 1 / keep))
    rows = kept.sum(axis=1)
    variance = unbiased(of_mean(draws), rows)
    in_mean = np.abs(draws[0].sum(axis=1) / draws[2].sum(axis=1) - x.mean(axis=1)) <= Z * np.sqrt(variance)
    in_sum = np.abs(draws[0].sum(axis=1) - x.sum(axis=1)) <= Z * np.sqrt(variance_part(*draws[:2]).sum(axis=1))
    assert in_mean.mean() >= least_mean and in_sum.mean() >= least_sum, (in_mean.mean(), in_sum.mean())


@pytest.mark.parametrize(("events", "keep"), [(10, 0.2), (20, 0.2), (10, 0.5), (40, 0.2)])
def test_the_variance_of_a_small_window_is_not_too_small(events: int, keep: float) -> None:
    """Windows of a few rows: on average as wide as the mean really strays, given how many rows were kept."""
    rng = np.random.default_rng(14)
    x = rng.uniform(1.0, 2.0, (20 * TRIALS, events))
    kept = rng.random(x.shape) < keep
    several = kept.sum(axis=1) >= 2
    x, kept = x[several], kept[several]
    draws = totals(kept, x, np.full(events, 1 / keep))
    strayed = np.mean((draws[0].sum(axis=1) / draws[2].sum(axis=1) - x.mean(axis=1)) ** 2)
    found = np.mean(unbiased(of_mean(draws), kept.sum(axis=1)))
    assert 0.9 * strayed <= found <= 1.5 * strayed, found / strayed
    assert np.mean(of_mean(draws)) < 0.9 * strayed, "which is what the factor is for"


def test_a_spread_that_is_small_beside_its_values_is_not_lost() -> None:
    """Seconds since 1970 within half a minute: the same bar as for the same times since noon."""
    rng = np.random.default_rng(15)
    since_noon = rng.normal(0.0, 10.0, (1, 1_000))
    w = np.where(np.arange(1_000) % 3 == 0, 5.0, 2.0)
    kept = np.ones(since_noon.shape)
    near, far = (of_mean(totals(kept, since_noon + offset, w))[0] for offset in (0.0, 1.7e9))
    assert near > 0.05 and far == pytest.approx(near, rel=1e-4)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        deviations(level)
