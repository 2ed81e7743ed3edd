"""End offsets of the topics that pipelines read, from Kafka itself: arrival is known even when the job does not run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 3.0
REFRESH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset:
    topic: str
    partition: int
    end_offset: int


class Topics:
    """Raises confluent_kafka.KafkaException when the broker is away."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "client.id": "spillway-agent", "log_level": 0, "socket.timeout.ms": 3000}
        )
        self._partitions: dict[str, int] = {}
        self._asked_at = float("-inf")

    def end_offsets(self, topics: Iterable[str], now_s: float) -> list[EndOffset]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = set(topics)
        if not wanted:
            return []
        if now_s - self._asked_at > REFRESH_S or not wanted <= self._partitions.keys():
            self._refresh(wanted)
            self._asked_at = now_s
        request: dict[Any, Any] = {
            TopicPartition(topic, partition): OffsetSpec.latest()
            for topic in sorted(wanted)
            for partition in range(self._partitions.get(topic, 0))
        }
        if not request:
            return []
        answers = self._admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S)
        found = []
        for where, answer in answers.items():
            found.append(EndOffset(topic=where.topic, partition=where.partition, end_offset=answer.result(TIMEOUT_S + 1).offset))
        return found

    def _refresh(self, wanted: set[str]) -> None:
        """A topic that does not exist yet has no partitions, and is asked for again; it is never made by asking."""
        listed = self._admin.list_topics(timeout=TIMEOUT_S).topics
        self._partitions = {t: len(listed[t].partitions) for t in wanted if t in listed and listed[t].error is None}
