"""Makes the topics an application needs, and gives its own more partitions where the declaration asks for more."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from spillway.model.topology import Operator, Pipeline, SinkType

log = logging.getLogger("spillway.topics")

MARKER_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)
    grow: bool = False
    """Ours alone: may be given more partitions when its source has grown."""


def writer_id(pipeline: str, operator: str, checkpoint: int) -> str:
    return f"spillway-{pipeline}-{operator}-{checkpoint}"


def marker_topic(pipeline: str, operator: str, checkpoint: int, of: str) -> str:
    return f"__spillway.{pipeline}.{operator}.{checkpoint}.{of.replace(':', '-')}"


def marker_of(pipeline: str, operator: str, topic: str) -> int | None:
    """The checkpoint whose markers `topic` holds; None: not those of this operator."""
    found = re.fullmatch(rf"__spillway\.{re.escape(pipeline)}\.{re.escape(operator)}\.(\d+)\..+", topic)
    return int(found[1]) if found else None


def data_topics(pipeline: Pipeline, operator: Operator) -> tuple[str, ...]:
    """Where an operator's rows go: one topic per consumer, or the topic of its output."""
    edges = pipeline.outputs(operator.name)
    if edges:
        return tuple(e.topic for e in edges)
    output = operator.output
    if output is not None and output.type is SinkType.KAFKA:
        return (output.topic or f"{pipeline.name}.{operator.name}.out",)
    return ()


def needed(pipeline: Pipeline, operators: tuple[Operator, ...]) -> list[Topic]:
    """Edges in and out, outputs, dead letters. Marker topics depend on the sources' true partition counts and come later."""
    topics = {}
    for operator in operators:
        for edge in (*pipeline.inputs(operator.name), *pipeline.outputs(operator.name)):
            topics[edge.topic] = Topic(name=edge.topic, partitions=edge.partitions, grow=edge.producer is not None)
        for name in data_topics(pipeline, operator):
            topics.setdefault(name, Topic(name=name, partitions=operator.buckets))
        topics[pipeline.dead_letter_topic(operator.name)] = Topic(name=pipeline.dead_letter_topic(operator.name), partitions=1)
    return list(topics.values())


class Topics:
    def __init__(self, bootstrap: str, client_conf: dict[str, str] | None = None) -> None:
        self._admin = AdminClient({**(client_conf or {}), "bootstrap.servers": bootstrap, "log_level": 2})
        self._bootstrap = bootstrap

    def partitions(self) -> dict[str, int]:
        try:
            listed = self._admin.list_topics(timeout=15).topics
        except KafkaException as error:
            raise RuntimeError(
                f"Kafka at {self._bootstrap} does not answer ({error.args[0].str()}); "
                "check that the broker runs and SPILLWAY_KAFKA is its address"
            ) from error
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def ensure(self, topics: list[Topic]) -> dict[str, int]:
        """Makes what is missing; returns the partition count of every topic there is."""
        there = self.partitions()
        missing = [NewTopic(t.name, t.partitions, config=t.config) for t in topics if t.name not in there]
        if missing:
            for name, future in self._admin.create_topics(missing, request_timeout=30).items():
                try:
                    future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise RuntimeError(f"topic {name} could not be made: {error.args[0].str()}") from error
        small = [NewPartitions(t.name, t.partitions) for t in topics if t.grow and there.get(t.name, t.partitions) < t.partitions]
        if small:
            for future in self._admin.create_partitions(small, request_timeout=30).values():
                future.result()
        return self.partitions() if missing or small else there

    def remove(self, names: list[str]) -> None:
        for name, future in self._admin.delete_topics(names, request_timeout=30).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise RuntimeError(f"topic {name} could not be removed: {error.args[0].str()}") from error
