"""What an edge sheds first, and who may ask for weights: read, defaulted and checked together."""

from __future__ import annotations

from typing import Any

from spillway.model.topology import Edge, Kind, Operator, Pipeline, Shed
from spillway.topology import ddl, expression
from spillway.topology.problem import Problems
from spillway.topology.section import Section, one_of

WHOLE_KEYS = (Kind.DEDUP, Kind.JOIN, Kind.SESSION)
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
WEIGHT = "weight"


def whole_keys_below(edges: list[Any], operators: dict[str, Operator]) -> dict[str, Operator]:
    """Operator → the operator that needs whole keys of its input: itself, or one further down behind stateless ones only.

    What is dropped in front of a stateless operator is missing behind it as well.
    """
    found = {o.name: o for o in operators.values() if o.kind in WHOLE_KEYS}
    pending = list(found)
    while pending:
        consumer = pending.pop()
        for producer in (e.get("from") for e in edges if isinstance(e, dict) and e.get("to") == consumer):
            known = operators.get(producer) if isinstance(producer, str) else None
            if known is not None and known.kind is Kind.STATELESS and known.name not in found:
                found[known.name] = found[consumer]
                pending.append(known.name)
    return found


def read_shedding(
    section: Section, producer: Operator | None, consumer: Operator | None, needs_keys: Operator | None
) -> tuple[Shed, str | None]:
    """`shed` and `utility` of an edge. `needs_keys`: the operator at or behind the consumer that needs whole keys, if any."""
    shed = section.choice("shed", Shed, Shed.BY_KEY if needs_keys else Shed.RANDOM)
    if needs_keys and shed is not Shed.BY_KEY:
        behind = "" if needs_keys is consumer else ", further down,"
        section.wrong(
            "shed",
            f"`{shed}` drops single events, and a {needs_keys.kind} ({needs_keys.name}){behind} needs whole keys kept or dropped",
            "by_key",
        )
    elif shed is Shed.BY_KEY and producer is not None and producer.key is None:
        section.wrong(
            "shed",
            f"`by_key` goes by Kafka's key, and operator {producer.name} writes none",
            f"`key` on operator {producer.name}" + ("" if needs_keys else ", or another strategy"),
        )
    return shed, _utility(section, shed, consumer)


def _utility(section: Section, shed: Shed, consumer: Operator | None) -> str | None:
    names = _columns(consumer)
    columns = (*names, *(c for c in KAFKA_COLUMNS if c not in names))
    allowed = f"an SQL number, the lowest goes first, over the columns {one_of(columns)}"
    utility = section.text("utility", None, allowed)
    if shed is not Shed.BY_UTILITY:
        if section.has("utility"):
            section.wrong("utility", f"has no meaning with `shed: {shed}`", "`utility` only with `shed: by_utility`")
    elif not section.has("utility"):
        section.missing("utility", f"with `shed: by_utility`, {allowed}")
    elif utility is not None and (reason := expression.refusal(utility, columns)):
        section.wrong("utility", reason, allowed)
    return utility


def _columns(operator: Operator | None) -> tuple[str, ...]:
    return ddl.columns(operator.schema) if operator and operator.schema else ()


def check_weights(pipeline: Pipeline, problems: Problems) -> None:
    for operator in (o for o in pipeline.operators if o.weight):
        path = f"operators.{operator.name}"
        if WEIGHT in (name.lower() for name in _columns(operator)):
            problems.add(
                f"{path}.schema", f"column {WEIGHT} is added by Spillway where `weight` is true", "another name for the column"
            )
        for edge in _above(pipeline, operator.name):
            producer = None if edge.producer is None else pipeline.operator(edge.producer)
            if edge.shed is Shed.BY_UTILITY:
                problems.add(
                    f"{path}.weight",
                    f"edge {edge.name} sheds by utility: what it keeps does not stand for what it drops, so no weight is right",
                    "random or by_key on every edge above, or no weight",
                )
            if producer is not None and producer.kind is not Kind.STATELESS and not producer.weight:
                problems.add(
                    f"{path}.weight",
                    f"the {producer.kind} {producer.name} above does not use weights, so what it hands on is too small already",
                    f"`weight: true` on operator {producer.name} as well",
                )


def _above(pipeline: Pipeline, operator: str) -> list[Edge]:
    """Edges whose shedding an operator's weights make up for: those above it, up to the next stateful operator."""
    found, seen, pending = [], {operator}, [operator]
    while pending:
        for edge in pipeline.inputs(pending.pop()):
            found.append(edge)
            if edge.producer is None or edge.producer in seen:
                continue
            seen.add(edge.producer)
            if pipeline.operator(edge.producer).kind is Kind.STATELESS:
                pending.append(edge.producer)
    return found
