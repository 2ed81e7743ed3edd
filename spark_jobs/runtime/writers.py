"""Who writes a row, so that a replayed batch has the same writer for it: the source partition, or a shuffle's partition.

A plan of narrow steps that still carries `_src` is written by source partition. A plan that ends in a stateful operator (with
only narrow steps after it) is written by state partition, whose content is fixed by the key's hash. Everything else gets a
shuffle by key first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType
from spillway.model.topology import Output


class WrittenBy(StrEnum):
    SOURCE = "source partition"
    STATE = "state partition"
    SHUFFLE = "shuffle by key"


NARROW = frozenset(
    [
        "Project",
        "Filter",
        "SubqueryAlias",
        "Union",
        "Generate",
        "MapInArrow",
        "PythonMapInArrow",
        "MapInPandas",
        "CollectMetrics",
        "EventTimeWatermark",
        "View",
        "ResolvedHint",
        "ArrowEvalPython",
        "BatchEvalPython",
        "Expand",
    ]
)
STATEFUL = frozenset(
    [
        "Aggregate",
        "Distinct",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "TransformWithState",
        "TransformWithStateInPySpark",
        "TransformWithStateInPandas",
    ]
)
UNKNOWN = (STATEFUL - {"Aggregate", "Distinct", "Deduplicate"}) | {"GlobalLimit", "LocalLimit"}
"""What of a stream has state of which nobody knows what it depends on, or which depends on the row that came first."""
ORDERLESS = frozenset(["count", "count_if", "sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"])
"""Aggregates that come to the same in any order."""
CLOCKS = frozenset(["CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentBatchTimestamp"])
# A broadcast join keeps the streaming side where it is, for the join types in which that side is not the broadcast one.
_STREAM_SIDE = {"Inner": (0, 1), "LeftOuter": (0,), "LeftSemi": (0,), "LeftAnti": (0,), "RightOuter": (1,)}


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _narrow_input(node: Any) -> list[Any] | None:
    """The streaming inputs of a narrow node, or None when the node may move rows between partitions."""
    if not node.isStreaming() or node.nodeName().startswith("StreamingRelation"):
        return []
    children = _children(node)
    if node.nodeName() == "Join":
        streaming = [i for i, child in enumerate(children) if child.isStreaming()]
        side = _STREAM_SIDE.get(node.joinType().toString(), ())
        if len(streaming) == 1 and streaming[0] in side and _broadcast(children[1 - streaming[0]]):
            return [children[streaming[0]]]
        return None
    return children if node.nodeName() in NARROW else None


def _broadcast(node: Any) -> bool:
    if node.nodeName() == "ResolvedHint":
        return "broadcast" in node.hints().toString()
    return node.nodeName() in ("SubqueryAlias", "Project", "Filter") and _broadcast(_children(node)[0])


def written_by(frame: DataFrame, sources: int = 1) -> WrittenBy:
    """Looks at the analysed plan of an operator's output; `sources` is the number of its input edges.

    A plan that reads an edge twice (a union of the input with itself) has two tasks for one source partition: it is shuffled.
    """
    top = frame._jdf.queryExecution().analyzed()
    pending, leaves = [top], 0
    while pending:
        node = pending.pop()
        if node.nodeName() in STATEFUL and node.isStreaming():
            return WrittenBy.STATE if _one_chain(top, node) else WrittenBy.SHUFFLE
        inputs = _narrow_input(node)
        if inputs is None:
            return WrittenBy.SHUFFLE
        leaves += node.nodeName().startswith("StreamingRelation")
        pending.extend(inputs)
    return WrittenBy.SOURCE if "_src" in frame.columns and leaves <= sources else WrittenBy.SHUFFLE


def _one_chain(node: Any, target: Any) -> bool:
    """Whether `target` is below `node` with nothing beside it: under a union, partitions of several plans share task numbers."""
    while not node.equals(target):
        inputs = _narrow_input(node)
        if not inputs or len(inputs) != 1:
            return False
        node = inputs[0]
    return True


def _is_the_users(node: Any, edges: Collection[str]) -> bool:
    """Below the counts that an edge makes under its own name nothing is; the user may count too."""
    return node.nodeName() != "CollectMetrics" or str(node.name()) not in edges


def unsteady(frame: DataFrame, edges: Collection[str] = ()) -> str | None:
    """A nondeterministic expression of the user's part of the plan, above these edges, or None: its rows may get another key when
    replayed."""
    pending = [frame._jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        if not _is_the_users(node, edges):
            continue
        if node.nodeName() not in STATEFUL:
            expressions = node.expressions()
            for number in range(expressions.size()):
                if not expressions.apply(number).deterministic():
                    return str(expressions.apply(number).sql())
        pending.extend(_children(node))
    return None


def unrepeatable(frame: DataFrame, edges: Collection[str] = ()) -> str | None:
    """Why an operator's state may be another one when it reads the same rows in other batches; None: it is the same.

    A sum of fractions depends on their order; whoever puts out a fraction is taken for having summed some. Of what has state only
    that is known to be the same of which neither the order of rows nor the time of a batch makes a difference."""
    if expression := unsteady(frame, edges):
        return f"{expression} may be another value when a batch is repeated"
    fractions = [f.name for f in frame.schema.fields if _has_fraction(f.dataType)]
    if fractions:
        return f"{', '.join(fractions)} may depend on the order of rows"
    pending = [(frame._jdf.queryExecution().analyzed(), False)]
    while pending:
        node, below_state = pending.pop()
        if not _is_the_users(node, edges):
            continue
        if reason := _order_or_time(node) or (below_state and _keeps_the_first(node)):
            return reason
        below_state = below_state or (node.isStreaming() and node.nodeName() in STATEFUL)
        pending += [(child, below_state) for child in _children(node)]
    return None


def _keeps_the_first(node: Any) -> str | None:
    """Of the rows that are alike in some columns it hands on the one that came first, with the others as they are there."""
    if node.nodeName() != "Deduplicate" or node.keys().size() == _children(node)[0].output().size():
        return None
    return "Deduplicate hands on the row that comes first, and what has state behind it may depend on which that is"


def _order_or_time(node: Any) -> str | None:
    """What of one node of a plan may depend on the order of rows, or on when a batch runs."""
    if node.isStreaming():
        both = node.nodeName() == "Join" and all(child.isStreaming() for child in _children(node))
        if both or node.nodeName() in UNKNOWN:
            return f"{node.nodeName()} may depend on the order of rows or on when a batch runs"
    for expression in _expressions(node):
        name = str(expression.nodeName())
        if name in CLOCKS:
            return f"{expression.sql()} is the time of a batch"
        if name == "AggregateExpression":
            function = expression.aggregateFunction()
            summed = function.prettyName() == "sum" and _is_fraction(function)
            if function.prettyName() not in ORDERLESS or summed:
                return f"{function.sql()} may depend on the order of rows"
        elif name in ("PythonUDAF", "ScalaUDAF", "ScalaAggregator"):
            return f"{expression.sql()} may depend on the order of rows"
    return None


def _is_fraction(function: Any) -> bool:
    return str(function.dataType().catalogString()) in ("double", "float")


def _expressions(node: Any) -> Iterator[Any]:
    """All of a node, with all that they are made of."""
    own = node.expressions()
    pending = [own.apply(i) for i in range(own.size())]
    while pending:
        expression = pending.pop()
        yield expression
        pending.extend(_children(expression))


def _has_fraction(kind: DataType) -> bool:
    """
    >>> from pyspark.sql.types import _parse_datatype_json_string as parse
    >>> _has_fraction(parse('{"type":"array","elementType":"double","containsNull":true}')), _has_fraction(parse('"long"'))
    (True, False)
    """
    return any(f'"{name}"' in kind.json() for name in ("double", "float"))


def arrange(records: DataFrame, by: WrittenBy, partitions: int) -> DataFrame:
    """Records in the partitions their writers expect. A shuffle goes by source where the operator kept `_src`: then the writer of
    a row depends on where the row came from and on nothing the operator computed."""
    if by is WrittenBy.SOURCE:
        return records.select("key", "value", "_src")
    if by is WrittenBy.STATE:
        return records.select("key", "value")
    if "_src" in records.columns:
        return records.repartition(partitions, "_src").select("key", "value")
    # Rows without a key are spread by their value: a constant key would send them all to one task.
    return records.select("key", "value").repartition(partitions, F.coalesce("key", "value"))


def by_columns(frame: DataFrame, records: DataFrame, output: Output | None, partitions: int) -> DataFrame:
    """Records for a table, shuffled by the table's keys: one task has all rows of a key."""
    assert output is not None
    keys = [F.get_json_object(F.col("value").cast("string"), f"$.{k}") for k in output.keys if k in frame.columns]
    return records.repartition(partitions, *keys) if keys else records.repartition(1)
