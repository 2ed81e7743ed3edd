"""The document of a topology file to a `Pipeline`: reads every field, fills in the defaults, reports what does not fit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any

from spillway.model.topology import (
    Application,
    Delivery,
    Edge,
    Kind,
    Operator,
    Output,
    Parallelism,
    Pipeline,
    Query,
    Silent,
    SinkType,
)
from spillway.topology import ddl
from spillway.topology.conf import refusal
from spillway.topology.problem import Problems
from spillway.topology.section import A_NAME, A_TOPIC, NAME, TOPIC, Section, describe, one_of, suggest
from spillway.topology.shedding import read_shedding, whole_keys_below

PIPELINE = (
    "pipeline",
    "description",
    "trigger",
    "latency",
    "batch_target",
    "lineage",
    "when_silent",
    "operators",
    "edges",
    "applications",
)
OPERATOR = ("function", "kind", "schema", "key", "weight", "output_mode", "buckets", "parallelism", "query", "output", "args")
OUTPUT = ("type", "topic", "table", "keys", "delivery")
EDGE = ("topic", "from", "to", "partitions", "delivery", "shed", "utility", "when_silent", "starting", "shared")
OUTSIDE_ONLY, INSIDE_ONLY = ("starting", "shared"), ("delivery",)
APPLICATION = ("operators", "node", "executors", "slots", "driver_memory", "executor_memory", "conf")
OUTPUT_MODES = ("append", "update", "complete")
STARTING = ("earliest", "latest")
ADDED_COLUMNS = ("kafka_key", "kafka_timestamp", "_src", "_weight", "lineage")
MOST_BUCKETS, MOST_INSTANCES = 4096, 1024

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_COLUMN = re.compile(r"[A-Za-z_]\w*")
_TABLE = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
_OWN_SCHEMAS = ("spillway", "pg_catalog", "information_schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the file says, as far as it could be read; `checks` works on it even when some fields were wrong."""

    pipeline: Pipeline
    edge_paths: tuple[str, ...]
    """Path of each edge of the pipeline in the file."""
    excused: frozenset[str]
    """Operators that a misread edge may have fed: nothing is said about their inputs."""

    def ordered(self) -> Declared:
        """Edges by consumer and name: an operator numbers its inputs, and its checkpoint keeps the numbers."""
        place = {o.name: number for number, o in enumerate(self.pipeline.operators)}
        pairs = sorted(
            zip(self.pipeline.edges, self.edge_paths, strict=True), key=lambda pair: (place[pair[0].consumer], pair[0].name)
        )
        return replace(
            self,
            pipeline=replace(self.pipeline, edges=tuple(edge for edge, _ in pairs)),
            edge_paths=tuple(path for _, path in pairs),
        )


def declare(data: dict[str, Any], problems: Problems) -> Declared:
    """The pipeline the document declares; complete only when `problems` stays empty."""
    top = Section(data, "", problems, PIPELINE)
    name = top.text("pipeline", "unnamed", A_NAME, NAME) or "unnamed"
    if not top.has("pipeline"):
        top.missing("pipeline", A_NAME)
    silent = top.choice("when_silent", Silent, Silent.HOLD)
    raw_operators = top.mapping("operators", "operators by name")
    raw_edges = top.items("edges", "a list of edges such as {topic: taxi.yellow, to: union} and {from: union, to: bill}")
    if not raw_operators:
        _once(
            top, "operators", "no operator is declared", "at least one operator: `operators: {NAME: {function: module:function}}`"
        )
    if not raw_edges:
        _once(top, "edges", "no edge is declared", "at least one edge from a topic: `edges: [{topic: TOPIC, to: OPERATOR}]`")
    downstream = {e.get("from") for e in raw_edges if isinstance(e, dict) and isinstance(e.get("from"), str)}
    operators = tuple(_operator(n, raw, name, n in downstream, problems) for n, raw in raw_operators.items())
    by_name = {o.name: o for o in operators}
    paths = [f"edges[{number}]" for number in range(len(raw_edges))]
    whole = whole_keys_below(raw_edges, by_name)
    read = [_edge(raw, path, name, silent, by_name, whole, problems) for raw, path in zip(raw_edges, paths, strict=True)]
    broken = [raw for raw, edge in zip(raw_edges, read, strict=True) if edge is None]
    excused = {str(raw.get("to")) if isinstance(raw, dict) else "" for raw in broken}
    if not excused <= set(by_name):
        excused = set(by_name)
    pipeline = Pipeline(
        name=name,
        description=top.text("description", "", "a text") or "",
        trigger_s=top.duration("trigger", 1.0, "0s", "1h"),
        latency_constraint_s=top.duration("latency", 10.0, "100ms", "24h"),
        batch_target_s=top.duration("batch_target", 4.0, "100ms", "1h"),
        lineage=top.boolean("lineage", False),
        operators=operators,
        edges=tuple(edge for edge in read if edge),
        applications=_applications(top, operators, problems),
    )
    kept = tuple(path for path, edge in zip(paths, read, strict=True) if edge)
    return Declared(pipeline=pipeline, edge_paths=kept, excused=frozenset(excused))


def _once(section: Section, name: str, message: str, allowed: str) -> None:
    """Reports an empty field unless its type was already reported."""
    if not section.has(name) or section.data[name] in ({}, []):
        section.wrong(name, message, allowed)


def _operator(name: str, raw: Any, pipeline: str, has_downstream: bool, problems: Problems) -> Operator:
    path = f"operators.{name}"
    if not NAME.fullmatch(name):
        problems.add(path, f"{name!r} is not a name", A_NAME)
    section = Section(raw, path, problems, OPERATOR)
    a_function = "package.module:function, such as spark_jobs.operators.taxi:union"
    if section.ok and not section.has("function"):
        section.missing("function", a_function)
    output_mode = section.text("output_mode", "append", one_of(OUTPUT_MODES), re.compile("|".join(OUTPUT_MODES))) or "append"
    kind = section.choice("kind", Kind, Kind.STATELESS)
    if output_mode == "complete" and kind is not Kind.AGGREGATE:
        section.wrong(
            "output_mode", f"`complete` needs an aggregate, and this operator is {kind}", "append, update; or `kind: aggregate`"
        )
    return Operator(
        name=name,
        function=section.text("function", "", a_function, _FUNCTION) or "",
        kind=kind,
        schema=_schema(section),
        key=section.text("key", None, "the name of an output column", _COLUMN),
        weight=section.boolean("weight", False),
        output_mode=output_mode,
        buckets=section.integer("buckets", 8, 1, MOST_BUCKETS),
        parallelism=_parallelism(section),
        query=_query(section, has_downstream),
        output=_output(section, pipeline, has_downstream),
        args=_args(section),
    )


def _schema(section: Section) -> str | None:
    schema = section.text("schema", None, ddl.ALLOWED)
    if schema is None:
        return None
    try:
        names = ddl.columns(schema)
    except ddl.DdlError as error:
        section.wrong("schema", str(error), ddl.ALLOWED)
        return None
    for taken in sorted(set(names) & set(ADDED_COLUMNS)):
        section.wrong("schema", f"column {taken} is added by Spillway", f"any column name except {one_of(ADDED_COLUMNS)}")
    return schema


def _parallelism(section: Section) -> Parallelism:
    if not section.has("parallelism"):
        return Parallelism()
    inner = Section(section.data["parallelism"], section.at("parallelism"), section.problems, ("start", "min", "max"))
    low = inner.integer("min", 1, 1, MOST_INSTANCES)
    start = inner.integer("start", low, 1, MOST_INSTANCES)
    high = inner.integer("max", max(start, low), 1, MOST_INSTANCES)
    if low > high:
        inner.wrong("min", f"{low} is more than max {high}", f"a whole number from 1 to {high}")
    elif not low <= start <= high:
        inner.wrong(
            "start", f"{start} is outside [{low}, {high}], the operator's min and max", f"a whole number from {low} to {high}"
        )
    return Parallelism(start=start, min=low, max=high)


def _query(section: Section, has_downstream: bool) -> Query | None:
    if has_downstream:
        if section.has("query"):
            section.wrong("query", "this operator has operators downstream", "`query` only where nothing is downstream")
        return None
    if not section.has("query"):
        return Query()
    inner = Section(section.data["query"], section.at("query"), section.problems, ("priority", "min_accuracy"))
    return Query(
        priority=inner.integer("priority", 1, -1_000_000, 1_000_000),
        min_accuracy=float(inner.number("min_accuracy", 0.0, 0.0, 1.0)),
    )


def _output(section: Section, pipeline: str, has_downstream: bool) -> Output | None:
    if has_downstream:
        if section.has("output"):
            section.wrong("output", "this operator has operators downstream", "`output` only where nothing is downstream")
        return None
    default_topic = f"{pipeline}.{section.path.removeprefix('operators.')}.out"
    if not section.has("output"):
        return Output(topic=default_topic)
    inner = Section(section.data["output"], section.at("output"), section.problems, OUTPUT)
    kind = inner.choice("type", SinkType, SinkType.KAFKA)
    fields = {SinkType.KAFKA: ("topic", "delivery"), SinkType.POSTGRES: ("table", "keys", "delivery"), SinkType.NONE: ()}[kind]
    for name in inner.data:
        if name in OUTPUT and name not in ("type", *fields):
            inner.wrong(name, f"does not apply to an output of type {kind}", one_of(("type", *fields)))
    if kind is SinkType.NONE:
        return Output(type=kind)
    delivery = inner.choice("delivery", Delivery, Delivery.EXACTLY_ONCE)
    if kind is SinkType.KAFKA:
        return Output(topic=inner.text("topic", default_topic, A_TOPIC, TOPIC), delivery=delivery)
    if delivery is Delivery.AT_LEAST_ONCE:
        inner.wrong(
            "delivery",
            "rows for Postgres are upserted together with their batch id, which is exactly once",
            "exactly_once, or leave it out",
        )
    a_table = f"schema.table in lower case, in any schema except {one_of(_OWN_SCHEMAS)}"
    table = inner.text("table", None, a_table, _TABLE)
    if not inner.has("table"):
        inner.missing("table", a_table)
    elif table and table.split(".")[0] in _OWN_SCHEMAS:
        inner.wrong("table", f"the schema {table.split('.')[0]} is not for rows of a query", a_table)
    keys = inner.texts("keys", "the columns that identify a row")
    if not inner.data.get("keys"):
        inner.wrong("keys", "an upsert needs to know what identifies a row", "at least one output column, such as keys: [zone]")
    for number, column in enumerate(keys):
        if not _COLUMN.fullmatch(column) or column in keys[:number]:
            inner.wrong(f"keys[{number}]", f"{column!r} is not a column name, or is there twice", "column names, each once")
    return Output(type=kind, table=table, keys=keys)


def _args(section: Section) -> dict[str, Any]:
    args = section.mapping("args", "keyword arguments of the function")
    for name in args:
        if not _COLUMN.fullmatch(name):
            section.wrong(f"args.{name}", "is not the name of an argument", "a Python identifier")
    try:
        json.dumps(args, allow_nan=False)
    except ValueError:
        section.wrong("args", "has a number that is not finite", "finite numbers, texts, truth values, lists and mappings")
        return {}
    return args


def _edge(
    raw: Any,
    path: str,
    pipeline: str,
    silent: Silent,
    operators: dict[str, Operator],
    whole: dict[str, Operator],
    problems: Problems,
) -> Edge | None:
    section = Section(raw, path, problems, EDGE)
    if not section.ok:
        return None
    known = tuple(operators)
    ends = (
        "an edge begins at a `topic` from outside, or `from` an operator",
        "{topic: NAME, to: OPERATOR} or {from: OPERATOR, to: OPERATOR}",
    )
    if section.has("topic") and section.has("from"):
        problems.add(path, "has both `topic` and `from`: " + ends[0], ends[1])
    elif not section.has("topic") and not section.has("from"):
        problems.add(path, "begins nowhere: " + ends[0], ends[1])
    if not section.has("to"):
        problems.add(path, "ends nowhere: `to` is missing", f"`to` with one of {one_of(known)}")
    topic = section.text("topic", None, A_TOPIC, TOPIC)
    producer = section.name("from", known)
    consumer = section.name("to", known)
    outside = section.has("topic")
    for name in INSIDE_ONLY if outside else OUTSIDE_ONLY:
        if section.has(name):
            meaning = "what Spillway writes, and others write this topic" if outside else "topics from outside"
            section.wrong(name, f"is for {meaning}", "leave it out here")
    target = operators.get(consumer or "")
    shed, utility = read_shedding(section, operators.get(producer or ""), target, whole.get(consumer or ""))
    common: dict[str, Any] = {
        "partitions": section.integer("partitions", target.buckets if target else 1, 1, MOST_BUCKETS),
        "delivery": section.choice("delivery", Delivery, Delivery.EXACTLY_ONCE),
        "shed": shed,
        "utility": utility,
        "when_silent": section.choice("when_silent", Silent, silent),
        "starting": section.text("starting", "earliest", one_of(STARTING), re.compile("|".join(STARTING))),
        "shared": section.boolean("shared", False),
    }
    if consumer is None or (topic is None and producer is None):
        return None
    if topic is not None:
        return Edge(name=f"{topic}:{consumer}", topic=topic, producer=None, consumer=consumer, **common)
    return Edge(
        name=f"{producer}:{consumer}", topic=f"{pipeline}.{producer}.{consumer}", producer=producer, consumer=consumer, **common
    )


def _applications(top: Section, operators: tuple[Operator, ...], problems: Problems) -> tuple[Application, ...]:
    if not top.has("applications"):
        return tuple(Application(name=o.name, operators=(o.name,), executors=o.parallelism.start) for o in operators)
    raw = top.mapping("applications", "applications by name, or leave it out for one application per operator")
    if not raw:
        _once(
            top,
            "applications",
            "no application is declared",
            "applications by name, or leave it out for one application per operator",
        )
    return tuple(_application(name, data, operators, problems) for name, data in raw.items())


def _application(name: str, raw: Any, operators: tuple[Operator, ...], problems: Problems) -> Application:
    path = f"applications.{name}"
    known = {o.name: o for o in operators}
    if not NAME.fullmatch(name):
        problems.add(path, f"{name!r} is not a name", A_NAME)
    section = Section(raw, path, problems, APPLICATION)
    members = section.texts("operators", one_of(tuple(known)))
    if section.ok and section.data.get("operators", []) == []:
        section.wrong("operators", "the application runs no operator", f"at least one of {one_of(tuple(known))}")
    for number, member in enumerate(members):
        if member not in known:
            section.wrong(
                f"operators[{number}]", f"unknown operator {member!r}{suggest(member, tuple(known))}", one_of(tuple(known))
            )
    starts = [known[m].parallelism.start for m in members if m in known]
    return Application(
        name=name,
        operators=members,
        node=section.text("node", None, "the tag of a node: a letter followed by up to 39 of a-z, 0-9 and _", NAME),
        executors=section.integer("executors", max(starts, default=1), 1, MOST_INSTANCES),
        slots=section.integer("slots", 1, 1, 256),
        driver_memory_mb=section.memory_mb("driver_memory", 512),
        executor_memory_mb=section.memory_mb("executor_memory", 512),
        conf=_conf(section),
    )


def _conf(section: Section) -> dict[str, str]:
    result: dict[str, str] = {}
    for key, value in section.mapping("conf", "Spark settings by name").items():
        if reason := refusal(key):
            section.wrong(f"conf.{key}", reason, "Spark settings that Spillway does not own")
        elif isinstance(value, bool):
            result[key] = str(value).lower()
        elif isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value)):
            result[key] = str(value)
        else:
            section.wrong(f"conf.{key}", f"is {describe(value)}", "a text, a number, true or false")
    return result
