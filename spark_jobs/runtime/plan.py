"""An operator's query: read its edges, shed, parse, call the user's function, and turn the result into rows for the sink."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType
from spillway.model.topology import Edge, Operator, Pipeline

from spark_jobs.runtime.shed import shed
from spark_jobs.sinks.kafka import SOURCE_SHIFT

CORRUPT = "__corrupt"
READER = {"max.poll.records": "5000", "receive.buffer.bytes": "1048576", "fetch.max.wait.ms": "10"}
"""Kafka's consumer in a task: more rows a call than its 500, more of them on the way than its 64 KB. A range of offsets that
ends with a transaction's marker ends with a fetch that finds nothing, for which it would wait half a second. See ADR 19."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """How to read one edge; `options` are Spark's, over Spillway's own."""

    bootstrap: str
    max_rows: int
    options: tuple[tuple[str, str], ...] = ()


def resolve(reference: str) -> Callable[..., DataFrame]:
    """`package.module:function` → the function."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"operator function {reference} cannot be imported on the driver ({error}); put its module on PYTHONPATH"
        ) from error


def reader_options(edge: Edge, source: Input) -> dict[str, str]:
    return {
        **{f"kafka.{key}": value for key, value in READER.items()},
        "subscribe": edge.topic,
        "startingOffsets": edge.starting,
        "maxOffsetsPerTrigger": str(source.max_rows),
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **dict(source.options),
        "kafka.bootstrap.servers": source.bootstrap,
    }


def read_edge(spark: SparkSession, edge: Edge, source: Input) -> DataFrame:
    return spark.readStream.format("kafka").options(**reader_options(edge, source)).load()


def parse_schema(operator: Operator, lineage_in_value: bool) -> StructType:
    schema = StructType.fromDDL(operator.schema or "")
    assert isinstance(schema, StructType)
    if lineage_in_value and "lineage" not in schema.fieldNames():
        schema = schema.add("lineage", StringType())
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def parse(value: Column, operator: Operator, lineage_in_value: bool) -> tuple[Column, Column]:
    """The parsed value, to be named `__p`, and which rows are garbage: not JSON, a declared field missing or of another type."""
    schema = parse_schema(operator, lineage_in_value)
    # from_json makes every field nullable; what the declaration calls NOT NULL is checked here.
    readable = StructType([StructField(f.name, f.dataType) for f in schema.fields])
    bad = F.col("__p").isNull() | F.col(f"__p.{CORRUPT}").isNotNull()
    for field in schema.fields:
        if not field.nullable:
            bad = bad | F.col(f"__p.`{field.name}`").isNull()
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(value.cast("string"), readable, options), bad


def shed_and_parse(spark: SparkSession, pipeline: Pipeline, operator: Operator, edge: Edge, raw: DataFrame) -> DataFrame:
    """One edge's rows as the user's function sees them, with the counts of the batch observed under the edge's name.

    Parsing is outside code generation in any query, so the one copy of a row it makes is all there is in front of what is
    observed, and everything after it runs together with the user's own steps.
    """
    ordinal = pipeline.inputs(operator.name).index(edge)
    inner = edge.producer is not None
    frame = shed(spark, raw, pipeline.name, edge)
    source = (F.col("partition") + F.lit(ordinal << SOURCE_SHIFT)).alias("_src")
    origin = [F.concat_ws("-", "topic", "partition", "offset").alias("__origin")] if pipeline.lineage else []
    if not operator.schema:
        columns = [F.col(c) for c in ("key", "value", "topic", "partition", "offset", "timestamp")]
        seen = _observed(frame.select(*columns, source, *origin, "__v"), edge, F.lit(False))
        return seen.drop("__v").withColumnRenamed("__origin", "lineage")
    value, bad = parse(F.col("value"), operator, pipeline.lineage and inner)
    seen = _observed(frame.select(value.alias("__p"), "key", "timestamp", source, *origin, "__v"), edge, bad)
    names = [n for n in parse_schema(operator, pipeline.lineage and inner).fieldNames() if n not in (CORRUPT, "lineage")]
    lineage = (
        [(F.coalesce("__p.lineage", "__origin") if inner else F.col("__origin")).alias("lineage")] if pipeline.lineage else []
    )
    return seen.where(~bad).select(
        *[F.col(f"__p.`{n}`").alias(n) for n in names],
        F.col("key").alias("kafka_key"),
        F.col("timestamp").alias("kafka_timestamp"),
        "_src",
        *lineage,
    )


def _observed(frame: DataFrame, edge: Edge, bad: Column) -> DataFrame:
    """Counted with `when`: `count_if` puts its condition into a projection of its own, one more copy of every row."""
    return frame.observe(
        edge.name,
        F.count(F.lit(1)).alias("kept"),
        F.count(F.when(bad, F.lit(1))).alias("bad"),
        F.first("__v").alias("setting"),
        (F.sum(F.col("timestamp").cast("double")) * 1000).alias("total_ms"),
        F.unix_millis(F.min("timestamp")).alias("oldest_ms"),
    )


def build(spark: SparkSession, pipeline: Pipeline, operator: Operator, source: Input) -> DataFrame:
    """The operator's output, before it is turned into records."""
    frames = [
        shed_and_parse(spark, pipeline, operator, edge, read_edge(spark, edge, source)) for edge in pipeline.inputs(operator.name)
    ]
    joined = functools.reduce(lambda a, b: a.unionByName(b), frames)
    function: Callable[..., Any] = resolve(operator.function)
    result = function(joined, **operator.args)
    if not isinstance(result, DataFrame):
        raise RuntimeError(f"operator function {operator.function} returned {type(result).__name__}; it must return a DataFrame")
    return result


def to_records(frame: DataFrame, operator: Operator, *, nulls: bool = False) -> DataFrame:
    """(key, value[, _src]): `value` as it is when the function made one, else every column as one JSON object, with its nulls or
    without."""
    source = [F.col("_src")] if "_src" in frame.columns else []
    if "value" in frame.columns:
        key = F.col("key") if "key" in frame.columns else F.lit(None)
        return frame.select(key.cast("binary").alias("key"), F.col("value").cast("binary").alias("value"), *source)
    payload = [c for c in frame.columns if c != "_src"]
    if operator.key and operator.key not in payload:
        raise RuntimeError(
            f"operator {operator.name} declares key {operator.key}, but its function returns only {', '.join(payload)}"
        )
    key = F.col(f"`{operator.key}`").cast("string") if operator.key else F.lit(None).cast("string")
    return frame.select(
        key.cast("binary").alias("key"),
        F.to_json(F.struct(*[F.col(f"`{c}`") for c in payload]), {"ignoreNullFields": str(not nulls).lower()})
        .cast("binary")
        .alias("value"),
        *source,
    )
