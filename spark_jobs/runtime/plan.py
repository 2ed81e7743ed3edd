"""An operator's query: read its edges, shed, parse, call the user's function, and turn the result into rows for the sink."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType
from spillway.model.topology import Edge, Kind, Operator, Pipeline, Shed

from spark_jobs.runtime.shed import shed, valued
from spark_jobs.runtime.writers import unsteady
from spark_jobs.sinks.kafka import SOURCE_SHIFT

CORRUPT = "__corrupt"
WEIGHT = "_weight"
"""Column and JSON field in which a row's weight travels to the next operator; absent means 1."""
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
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
        found = importlib.import_module(module)
    except ImportError as error:
        raise RuntimeError(
            f"operator function {reference} cannot be imported on the driver ({error}); put its module on PYTHONPATH"
        ) from error
    function: Callable[..., DataFrame] | None = getattr(found, name, None)
    if function is None:
        near = get_close_matches(name, [n for n in vars(found) if callable(getattr(found, n))], 1)
        raise RuntimeError(
            f"operator function {reference} is not there: {module} has no {name}"
            + (f"; did you mean {near[0]}?" if near else ", and nothing that is called like it")
        )
    return function


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


def parse_schema(operator: Operator, lineage_in_value: bool, weight_in_value: bool = False) -> StructType:
    schema = StructType.fromDDL(operator.schema or "")
    assert isinstance(schema, StructType)
    if lineage_in_value and "lineage" not in schema.fieldNames():
        schema = schema.add("lineage", StringType())
    if weight_in_value:
        schema = schema.add(WEIGHT, DoubleType())
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def parse(value: Column, operator: Operator, lineage_in_value: bool, weight_in_value: bool = False) -> tuple[Column, Column]:
    """The parsed value, to be named `__p`, and which rows are garbage: not JSON, a declared field missing or of another type."""
    schema = parse_schema(operator, lineage_in_value, weight_in_value)
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
    by_utility = edge.shed is Shed.BY_UTILITY
    frame = shed(spark, with_utility(raw, pipeline, operator, edge) if by_utility else raw, pipeline.name, edge)
    source = (F.col("partition") + F.lit(ordinal << SOURCE_SHIFT)).alias("_src")
    origin = [F.concat_ws("-", "topic", "partition", "offset").alias("__origin")] if pipeline.lineage else []
    if not operator.schema:
        columns = [F.col(c) for c in KAFKA_COLUMNS]
        seen = _observed(frame.select(*columns, source, *origin, "__v"), edge, F.lit(False))
        said = F.get_json_object(F.col("value").cast("string"), f"$.{WEIGHT}").try_cast("double")
        seen = seen.select("*", *weights(pipeline, operator, said if inner else None))
        return seen.drop("__v").withColumnRenamed("__origin", "lineage")
    value, bad = parse_edge(pipeline, operator, edge)
    parsed = F.col("__p") if by_utility else value.alias("__p")
    seen = _observed(frame.select(parsed, "key", "timestamp", source, *origin, "__v"), edge, bad)
    lineage = (
        [(F.coalesce("__p.lineage", "__origin") if inner else F.col("__origin")).alias("lineage")] if pipeline.lineage else []
    )
    return seen.where(~bad).select(
        *[F.col(f"__p.`{n}`").alias(n) for n in column_names(operator)],
        F.col("key").alias("kafka_key"),
        F.col("timestamp").alias("kafka_timestamp"),
        "_src",
        *lineage,
        *weights(pipeline, operator, F.col(f"__p.{WEIGHT}") if inner else None),
    )


def parse_edge(pipeline: Pipeline, operator: Operator, edge: Edge) -> tuple[Column, Column]:
    """`parse`, with the fields that an operator in front adds to its values."""
    if edge.producer is None:
        return parse(F.col("value"), operator, False)
    weighs = operator.weight or pipeline.carries_weight(operator.name)
    return parse(F.col("value"), operator, pipeline.lineage, weighs)


def column_names(operator: Operator) -> list[str]:
    """Columns of the declared schema."""
    return [n for n in parse_schema(operator, False).fieldNames() if n not in (CORRUPT, "lineage")]


def weights(pipeline: Pipeline, operator: Operator, before: Column | None) -> list[Column]:
    """One over the product of the keeps that a row has passed, this edge's included; `before` is what the row says of the others.

    `weight` is for the operator that asks. `_weight` travels; it is null while it is 1, and what is null is not written.
    """
    weight = F.lit(1.0) / F.least(F.col("__v.keep"), F.lit(1.0))
    if before is not None:
        weight = weight * F.coalesce(before, F.lit(1.0))
    asked = [weight.alias("weight")] if operator.weight else []
    return asked + ([F.nullif(weight, F.lit(1.0)).alias(WEIGHT)] if pipeline.carries_weight(operator.name) else [])


def with_utility(frame: DataFrame, pipeline: Pipeline, operator: Operator, edge: Edge) -> DataFrame:
    """Adds `__u`, the utility of each row, and, where the operator has a schema, `__p`, over whose columns it may be."""
    names: list[str] = []
    if operator.schema:
        frame, names = frame.withColumn("__p", parse_edge(pipeline, operator, edge)[0]), column_names(operator)
    hidden = {n.lower() for n in names}
    visible = [F.col(f"__p.`{n}`").alias(n) for n in names] + [F.col(c) for c in KAFKA_COLUMNS if c not in hidden]
    beside = frame.select(F.struct("*").alias("__row"), *visible)
    try:
        chosen = beside.select("__row.*", F.expr(edge.utility or "").alias("__u"))
    except (AnalysisException, ParseException) as error:
        raise RuntimeError(f"the utility of edge {edge.name} cannot be evaluated: {str(error).splitlines()[0]}") from error
    if expression := unsteady(chosen):
        raise RuntimeError(f"the utility of edge {edge.name} may give a row another value when a batch is replayed: {expression}")
    return chosen.withColumn("__u", valued(F.col("__u")))


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
    if pipeline.carries_weight(operator.name) and operator.kind is Kind.STATELESS:
        _refuse_lost_weights(operator, result)
    return result


def _refuse_lost_weights(operator: Operator, result: DataFrame) -> None:
    """A stateful operator makes rows of its own, which weigh 1; those a stateless one hands on must say what they stand for."""
    if "value" in result.columns:
        raise RuntimeError(
            f"an operator below {operator.name} asks for weights, but {operator.function} makes `value` itself, in which no "
            "weight travels: return the columns instead"
        )
    if WEIGHT not in result.columns:
        raise RuntimeError(
            f"an operator below {operator.name} asks for weights, but {operator.function} drops the column {WEIGHT}: select it, "
            "for example with spark_jobs.operators.carry"
        )


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
