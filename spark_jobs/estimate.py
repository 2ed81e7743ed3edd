"""Sums, counts and means over a stream that was shed, with their error bars, for functions of operators that ask for weights.

    windows.agg(weighted_sum("fare").alias("income"), sum_error("fare").alias("income_error"))

Horvitz and Thompson (1952): where a row x is kept with probability 1/w, Σ w·x over the rows kept is right on average. Rows
are kept independently, so its variance is estimated without bias by Σ w(w − 1)x². A mean is a ratio of two such sums, whose
variance follows by linearisation. The bar is the half-width of the normal approximation: the estimate ± the error holds the
truth in `level` of all cases.

Rows that stand or fall together (those of a key below an edge that sheds `by_key`, those made from one event) are one draw:
with y = Σ w·x and t = Σ x over a key, its part of the variance is y(y − t), which for one row is w(w − 1)x². Where a key met
several keeps this is an upper bound for values of one sign, because a key that stayed at a low keep stays at a higher one.

The bars are meant for 30 kept draws and more, 300 where a few values make up much of the sum (lognormal, sigma 1): with fewer
they hold the truth less often than `level`. `kept_rows` beside the bar tells a reader which.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar

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


class Moments(NamedTuple, Generic[N]):
    """What the mean's bar needs to know of draws with weight m, weighted mean x, a = m(m − n) and h = m(y − t), where n rows make
    up a draw. For one row that is m = w, a = w(w − 1) and h = a·x.

    The co-moments Σ (· − mean)(x − mean) are gathered around the means as they go (Welford 1962, Chan, Golub and LeVeque 1979):
    sums of squares would lose the spread of values that are large beside it, such as times.
    """

    mean: N
    """Plain mean of x over the draws."""
    a: N
    h: N
    ax: N
    """Co-moment of a and x."""
    hx: N
    """Co-moment of h and x."""


def squares(draws: Moments[N], mean: N) -> N:
    """Σ e(e − f) over draws, where e = y − mean·m and f = t − mean·n; over rows, Σ w(w − 1)(x − mean)².

    Four rows that were kept with probability 1/2, of the values 1, 1, 3, 3: each is one away from the mean.

    >>> squares(Moments(mean=2.0, a=8.0, h=16.0, ax=0.0, hx=8.0), 2.0)
    8.0
    """
    d = mean - draws.mean
    return draws.hx - draws.mean * draws.ax - d * (draws.ax + draws.h - draws.mean * draws.a) + d * d * draws.a


def unbiased(variance: N, draws: N) -> N:
    """Around their own mean, n draws seem closer together than they are, by (n − 1)/n.

    >>> unbiased(3.0, 4.0)
    4.0
    """
    return variance * draws / (draws - 1.0)


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
    """Null where a single row stands for those that were shed: how far they lie apart cannot be told from one."""
    x = _number(value)
    w = _where(x, F.col(weight))
    a = w * (w - F.lit(1.0))
    rows = F.sum(w)
    variance = squares(_moments(x, a, a * x), F.sum(w * x) / rows) / (rows * rows)
    return _half_width_of_mean(variance, F.count_if(w > 1.0), level)


def kept_rows(value: str | Column) -> Column:
    """How many rows with a value were kept: by this a reader judges whether the bars can be trusted."""
    return F.count(_number(value))


def estimate_by_key(
    df: DataFrame, value: str | Column, *, key: str, group: Sequence[str | Column], weight: str = "weight", level: float = 0.95
) -> DataFrame:
    """`sum`, `count` and `mean` per group with `sum_error`, `count_error` and `mean_error`, where all rows of a key are one draw.

    Rows without a key are shed one by one and so are draws of their own. `rows` is how many were kept, `draws` how many keys
    and rows without one that is; rows without a value are in none of these numbers.

    On a stream it keeps a row of state per group and key, and needs a window in `group`, a watermark, and output mode `append`.
    """
    x, alone = _number(value), F.col(key).isNull()
    w, one = _where(x, F.col(weight)), _where(x, F.lit(1.0))
    single, a = F.when(alone, x), F.when(alone, w * (w - F.lit(1.0)))
    totals = {"y": F.sum(w * x), "t": F.sum(x), "m": F.sum(w), "n": F.sum(one), "shed": F.count_if(alone & (w > 1.0))}
    totals |= {"squared": F.sum(a * x * x)} | _moments(single, a, a * x)._asdict()
    keys = df.groupBy(*group, key).agg(*(column.alias(f"__{name}") for name, column in totals.items()))
    y, t, m, n = (F.col(f"__{name}") for name in "ytmn")

    def both(of_key: Column, of_single: str) -> Column:
        return F.sum(F.when(alone, F.col(f"__{of_single}")).otherwise(of_key))

    of_total, of_rows, mean = both(variance_part(y, t), "squared"), both(variance_part(m, n), "a"), F.sum(y) / F.sum(m)
    whole = F.when(~alone, y / m)
    kept = _moments(whole, F.when(~alone, variance_part(m, n)), F.when(~alone, m * (y - t)))
    of_singles = Moments(*(F.max(F.when(alone, F.col(f"__{name}"))) for name in Moments._fields))
    of_mean = F.coalesce(squares(kept, mean), F.lit(0.0)) + F.coalesce(squares(of_singles, mean), F.lit(0.0))
    return keys.groupBy(*keys.columns[: len(group)]).agg(
        F.sum(y).alias("sum"),
        _half_width(of_total, level).alias("sum_error"),
        F.sum(m).alias("count"),
        _half_width(of_rows, level).alias("count_error"),
        mean.alias("mean"),
        _half_width_of_mean(of_mean / (F.sum(m) * F.sum(m)), both((m > n).cast("int"), "shed"), level).alias("mean_error"),
        F.coalesce(F.sum(n), F.lit(0.0)).cast("long").alias("rows"),
        F.coalesce(both((n > 0).cast("double"), "n"), F.lit(0.0)).cast("long").alias("draws"),
    )


def _moments(x: Column, a: Column, h: Column) -> Moments[Column]:
    rows = F.count(x)
    return Moments(mean=F.avg(x), a=F.sum(a), h=F.sum(h), ax=rows * F.covar_pop(a, x), hx=rows * F.covar_pop(h, x))


def _number(value: str | Column) -> Column:
    return (F.col(value) if isinstance(value, str) else value).cast("double")


def _where(value: Column, number: Column) -> Column:
    return F.when(value.isNotNull(), number)


def _half_width(variance: Column, level: float) -> Column:
    return F.sqrt(F.when(variance < 0.0, 0.0).otherwise(variance)) * F.lit(deviations(level))


def _half_width_of_mean(variance: Column, shed: Column, level: float) -> Column:
    """`shed`: draws that stand for others as well. Without any, nothing is unsure; one alone tells nothing of a spread."""
    several = _half_width(unbiased(variance, F.when(shed > 1, shed)), level)
    return F.when((shed == 0) & variance.isNotNull(), F.lit(0.0)).when(shed > 1, several)
