"""The load shedder of an edge: a filter directly after the read whose threshold changes without touching the query.

The keep value sits in the plan as a scalar subquery over one literal row that reads a JVM system property. Spark optimises the
plan anew for every micro-batch and folds that subquery **on the driver**, so each batch sees one value, in all tasks and
retries, and no task does any I/O. `tests/spark/test_shed.py` asserts the shape of the plan: an optimizer that moved the call to
the executors would freeze it.
"""

from __future__ import annotations

import sys
import zlib

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import SOURCES, Effective
from spillway.model.topology import Edge, Shed

from spark_jobs.runtime import utility

LOWEST = -sys.float_info.max
"""The utility of a row that has none."""


def property_name(pipeline: str, edge: str) -> str:
    return f"spillway.keep.{pipeline}.{edge}"


def encode(effective: Effective) -> str:
    """One property, so that keep, decision and source change together.

    >>> encode(Effective(keep=0.5, decision_id=7, source="setting"))
    '0.5|7|1'
    """
    return f"{effective.keep!r}|{effective.decision_id or 0}|{SOURCES.index(effective.source)}"


def keep_frame(spark: SparkSession, prop: str) -> DataFrame:
    """One row, one struct column (keep, decision, source). `VALUES (1)` is needed: without it the call could be inlined into
    the filter."""
    text = f"java_method('java.lang.System', 'getProperty', '{prop}', '{encode(Effective())}')"
    return spark.sql(
        "select named_struct('keep', cast(split(s, '[|]')[0] as double), 'decision', cast(split(s, '[|]')[1] as bigint), "
        f"'source', cast(split(s, '[|]')[2] as int)) as v from (select {text} as s from values (1))"
    )


def cut_frame(spark: SparkSession, prop: str, utilities: str) -> DataFrame:
    """As `keep_frame`, and with the bin of utilities that holds the cut: what is above `high` stays, of (`low`, `high`] the share
    `part`, what is below goes. While nothing is known of the utilities there is one bin, of which the share `keep` stays."""
    text = f"java_method('java.lang.System', 'getProperty', '{utilities}', '')"
    numbers = "if(u = '', null, cast(split(split_part(u, ';', {}), ',') as array<double>))"
    return (
        keep_frame(spark, prop)
        .selectExpr("v", f"{text} as u")
        .selectExpr("v", f"{numbers.format(1)} as bounds", f"{numbers.format(2)} as shares")
        .selectExpr("*", "array_position(transform(shares, s -> s >= 1 - v.keep), true) as i")
        .selectExpr("*", "if(i > 1, bounds[i - 2], null) as low", "if(i > 1, shares[i - 2], 0) as below")
        .selectExpr(
            "named_struct('keep', v.keep, 'decision', v.decision, 'source', v.source, 'low', low, 'high', bounds[i - 1], "
            "'part', coalesce((shares[i - 1] - 1 + v.keep) / (shares[i - 1] - below), v.keep)) as v"
        )
    )


def fraction(*columns: str | Column) -> Column:
    """A uniform number in [0, 1), the same every time for the same row: a replayed batch sheds the same rows."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 11).cast("double") * F.lit(2.0**-53)


def rank(pipeline: str, edge: Edge, setting: Column) -> Column:
    """The number compared with keep: rows with the smallest stay longest. `setting` is the struct that held for the batch.

    What one edge drops must say nothing about what the next one drops, or keeps along a path would not multiply: topics differ,
    and keys are hashed together with the consumer. Edges into one consumer agree on keys, as a join needs.
    """
    single = fraction("topic", "partition", "offset")
    if edge.shed is Shed.BY_KEY:
        whole = fraction(F.lit(zlib.crc32(f"{pipeline}:{edge.consumer}".encode())), "key")
        return F.when(F.col("key").isNotNull(), whole).otherwise(single)
    if edge.shed is Shed.BY_UTILITY:
        in_bin = F.when(setting["part"] > 0, single * setting["keep"] / setting["part"]).otherwise(1.0)
        return F.when(F.col("__u") > setting["high"], 0.0).when(F.col("__u") <= setting["low"], 1.0).otherwise(in_bin)
    return single


def valued(number: Column) -> Column:
    """A utility that can be ordered: no number counts as the lowest."""
    plain = number.try_cast("double")
    return F.coalesce(F.when(~F.isnan(plain), F.greatest(plain, F.lit(LOWEST))), F.lit(LOWEST))


def shed(spark: SparkSession, frame: DataFrame, pipeline: str, edge: Edge) -> DataFrame:
    """`frame` has Kafka's raw columns and, by utility, `__u`. Adds `__v`, the setting that held for the batch; keeps a row if
    keep ≥ 1 or rank < keep.

    There is one subquery, and what is reported comes from its column: each subquery is folded by itself, so that a second one
    could see a setting that came in between.

    While nothing is shed nothing is hashed: the comparison with 1 comes first. The other is written as `exists` over one
    element, because a higher-order function keeps the filter out of whole-stage code generation, which would copy every
    row once more; like this the filter hands the reader's own rows on.
    """
    prop = property_name(pipeline, edge.name)
    if edge.shed is Shed.BY_UTILITY:
        frame = _observe_utilities(frame, edge)
        setting = cut_frame(spark, prop, utility.property_name(pipeline, edge.name)).scalar()
    else:
        setting = keep_frame(spark, prop).scalar()
    with_setting = frame.withColumn("__v", setting)
    keep = F.col("__v.keep")
    return with_setting.where((keep >= F.lit(1.0)) | F.exists(F.array(rank(pipeline, edge, F.col("__v"))), lambda x: x < keep))


def _observe_utilities(frame: DataFrame, edge: Edge) -> DataFrame:
    sampled = F.pmod(F.xxhash64("partition", "offset"), F.lit(utility.SAMPLE)) == 0
    levels = [n / utility.LEVELS for n in range(1, utility.LEVELS + 1)]
    return frame.observe(
        utility.observed_name(edge.name),
        F.percentile_approx(F.when(sampled, F.col("__u")), levels, 2000).alias("quantiles"),
        F.count(F.when(sampled, F.lit(1))).alias("rows"),
    )
