"""Sums, counts and means over a stream that was shed, with their error bars, for functions of operators that ask for weights.

    windows.agg(weighted_sum("fare").alias("income"), sum_error("fare").alias("income_error"))

Horvitz and Thompson (1952): where a row x is kept with probability 1/w, Σ w·x over the rows kept is right on average. Rows
are kept independently, so its variance is estimated without bias by Σ w(w − 1)x². A mean is a ratio of two such sums, whose
variance follows by linearisation. The bar is the half-width of the normal approximation: the estimate ± the error holds the
truth in `level` of all cases.

Rows that stand or fall together (those of a key below an edge that sheds `by_key`, those made from one event) are one draw:
with y = Σ w·x and t = Σ x over a key, its part of the variance is y(y − t), which for one row is w(w − 1)x². Where a key met
several keeps this is an upper bound for values of one sign, because a key that stayed at a low keep stays at a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

N = TypeVar("N", Column, float)
"""The arithmetic is the same for columns and for plain numbers."""


def variance_part(weighted: N, plain: N) -> N:
    """What one independent draw adds to the variance of a sum: y(y − t).

    A row of 10 that was kept with probability 1/4:

    >>> variance_part(4 * 10.0, 10.0)
    1200.0
    """
    return weighted * (weighted - plain)


def ratio_part(weighted: N, plain: N, weighted_rows: N, rows: N) -> N:
    """What one independent draw adds to the (doubled) covariance of a sum with its count.

    >>> ratio_part(4 * 10.0, 10.0, 4.0, 1.0)
    240.0
    """
    return weighted_rows * (weighted - plain) + weighted * (weighted_rows - rows)


def mean_variance(total: N, rows: N, of_total: N, of_both: N, of_rows: N) -> N:
    """Variance of `total / rows` from those of the two and their (doubled) covariance.

    Four rows out of many, kept with probability 1/2, of the values 1, 1, 3, 3: each is one away from the mean.

    >>> mean_variance(16.0, 8.0, 2 * 20.0, 2 * 2 * 8.0, 2 * 4.0)
    0.125
    """
    mean = total / rows
    return (of_total - mean * of_both + mean * mean * of_rows) / (rows * rows)


def deviations(level: float) -> float:
    """Standard deviations on either side of the truth that hold `level` of all estimates.

    >>> round(deviations(0.95), 2)
    1.96
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}, it is the share of cases in which the bar holds the truth: between 0 and 1")
    return NormalDist().inv_cdf((1.0 + level) / 2.0)


def weighted_count(weight: str = "weight") -> Column:
    """How many events there were."""
    return F.sum(weight)


def count_error(weight: str = "weight", level: float = 0.95) -> Column:
    return _half_width(F.sum(variance_part(F.col(weight), F.lit(1.0))), level)


def weighted_sum(value: str | Column, weight: str = "weight") -> Column:
    """The sum over all events. As in SQL, a row without a value does not count."""
    return F.sum(F.col(weight) * _number(value))


def sum_error(value: str | Column, weight: str = "weight", level: float = 0.95) -> Column:
    x = _number(value)
    return _half_width(F.sum(variance_part(F.col(weight) * x, x)), level)


def weighted_mean(value: str | Column, weight: str = "weight") -> Column:
    """The mean over all events that have a value. Better than the sums it is made of: where more rows than usual were kept, both
    are too large."""
    x = _number(value)
    return F.sum(F.col(weight) * x) / F.sum(_where(x, F.col(weight)))


def mean_error(value: str | Column, weight: str = "weight", level: float = 0.95) -> Column:
    x = _number(value)
    w, one = _where(x, F.col(weight)), _where(x, F.lit(1.0))
    variance = mean_variance(
        F.sum(w * x),
        F.sum(w),
        F.sum(variance_part(w * x, x)),
        F.sum(ratio_part(w * x, x, w, one)),
        F.sum(variance_part(w, one)),
    )
    return _half_width(variance, level)


def estimate_by_key(
    df: DataFrame, value: str | Column, *, key: str, group: Sequence[str | Column], weight: str = "weight", level: float = 0.95
) -> DataFrame:
    """`sum`, `count` and `mean` per group with `sum_error`, `count_error` and `mean_error`, where all rows of a key are one draw.

    On a stream it keeps a row of state per group and key, and needs a window in `group`, a watermark, and output mode `append`.
    """
    x = _number(value)
    w, one = _where(x, F.col(weight)), _where(x, F.lit(1.0))
    totals = (F.sum(w * x).alias("__y"), F.sum(x).alias("__t"), F.sum(w).alias("__m"), F.sum(one).alias("__n"))
    keys = df.groupBy(*group, key).agg(*totals)
    y, t, m, n = (F.col(c) for c in ("__y", "__t", "__m", "__n"))
    of_total, of_rows = F.sum(variance_part(y, t)), F.sum(variance_part(m, n))
    of_mean = mean_variance(F.sum(y), F.sum(m), of_total, F.sum(ratio_part(y, t, m, n)), of_rows)
    return keys.groupBy(*keys.columns[: len(group)]).agg(
        F.sum(y).alias("sum"),
        _half_width(of_total, level).alias("sum_error"),
        F.sum(m).alias("count"),
        _half_width(of_rows, level).alias("count_error"),
        (F.sum(y) / F.sum(m)).alias("mean"),
        _half_width(of_mean, level).alias("mean_error"),
    )


def _number(value: str | Column) -> Column:
    return (F.col(value) if isinstance(value, str) else value).cast("double")


def _where(value: Column, number: Column) -> Column:
    return F.when(value.isNotNull(), number)


def _half_width(variance: Column, level: float) -> Column:
    return F.sqrt(F.greatest(variance, F.lit(0.0))) * F.lit(deviations(level))
