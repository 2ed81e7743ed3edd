"""The load shedder of an edge: a filter directly after the read whose threshold changes without touching the query.

The keep value sits in the plan as a scalar subquery over one literal row that reads a JVM system property. Spark optimises the
plan anew for every micro-batch and folds that subquery **on the driver**, so each batch sees one value, in all tasks and
retries, and no task does any I/O. `tests/spark/test_shed.py` asserts the shape of the plan: an optimizer that moved the call to
the executors would freeze it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import SOURCES, Effective
from spillway.model.topology import Edge, Shed


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


def fraction(*columns: str | Column) -> Column:
    """A uniform number in [0, 1), the same every time for the same row: a replayed batch sheds the same rows."""
    return F.shiftrightunsigned(F.xxhash64(*columns), 11).cast("double") * F.lit(2.0**-53)


def rank(edge: Edge) -> Column:
    """The number compared with keep: rows with the smallest stay longest."""
    if edge.shed is Shed.BY_KEY:
        return fraction("key")
    if edge.shed is Shed.BY_UTILITY:
        # Utility 1 → 0 (stays), 0 → 1 (goes first); no utility counts as the lowest.
        return F.lit(1.0) - F.coalesce(
            F.least(F.greatest(F.expr(edge.utility or "0").cast("double"), F.lit(0.0)), F.lit(1.0)), F.lit(0.0)
        )
    return fraction("topic", "partition", "offset")


def shed(spark: SparkSession, frame: DataFrame, pipeline: str, edge: Edge) -> DataFrame:
    """`frame` has Kafka's raw columns. Adds `__v`, the setting that held for the batch; keeps a row if keep ≥ 1 or rank < keep.

    There is one subquery, and what is reported comes from its column: each subquery is folded by itself, so that a second one
    could see a setting that came in between.

    While nothing is shed nothing is hashed: the comparison with 1 comes first. The other is written as `exists` over one
    element, because a higher-order function keeps the filter out of whole-stage code generation, which would copy every
    row once more; like this the filter hands the reader's own rows on.
    """
    with_setting = frame.withColumn("__v", keep_frame(spark, property_name(pipeline, edge.name)).scalar())
    keep = F.col("__v.keep")
    return with_setting.where((keep >= F.lit(1.0)) | F.exists(F.array(rank(edge)), lambda x: x < keep))
