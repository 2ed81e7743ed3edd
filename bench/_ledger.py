"""What went into a pipeline that counts by key against what came out of it, by lineage."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """By lineage: what went in against what came out."""

    events: int
    lost: int
    doubled: int
    wrong: int
    """Keys whose count or sum is not that of their events."""

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


class Ledger:
    """All events that went in and all records that came out, read on from where it stopped."""

    def __init__(self, bootstrap: str, source: str, handed: str, states: str) -> None:
        self._bootstrap, self._topics = bootstrap, (source, handed, states)
        self._next: dict[tuple[str, int], int] = {}
        self._events: dict[str, dict[str, Any]] = {}
        self._handed: Counter[str] = Counter()
        self._states: Counter[tuple[str, int]] = Counter()
        self._newest: dict[str, tuple[int, int]] = {}

    def read(self) -> Verdict:
        source, handed, _ = self._topics
        for topic, partition, offset, value in self._records():
            if topic == source:
                self._events[f"{topic}-{partition}-{offset}"] = value
            elif topic == handed:
                self._handed[value["lineage"]] += 1
            else:
                self._states[value["key"], value["rows"]] += 1
                self._newest[value["key"]] = max(self._newest.get(value["key"], (0, 0)), (value["rows"], value["total"]))
        rows: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for event in self._events.values():
            rows[event["key"]] += 1
            total[event["key"]] += event["n"]
        return Verdict(
            events=len(self._events),
            lost=len(self._events.keys() - self._handed.keys()),
            doubled=sum(n > 1 for n in (*self._handed.values(), *self._states.values())),
            wrong=sum(self._newest.get(key) != (rows[key], total[key]) for key in rows.keys() | self._newest.keys()),
        )

    def settled(self, limit_s: float) -> Verdict:
        """As soon as nothing is missing, or what is missing after so long."""
        deadline = time.monotonic() + limit_s
        while not (found := self.read()).exact and not found.doubled and time.monotonic() < deadline:
            time.sleep(1.0)
        return found

    def _records(self) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench-ledger",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        known = consumer.list_topics(timeout=20).topics
        places = [(topic, p) for topic in self._topics if topic in known for p in known[topic].partitions]
        consumer.assign([TopicPartition(topic, p, self._next.get((topic, p), 0)) for topic, p in places])
        left, deadline = set(places), time.monotonic() + 60
        while left and time.monotonic() < deadline:
            for message in consumer.consume(5_000, timeout=1.0):
                place = message.topic(), message.partition()
                if message.error() is None:
                    self._next[place] = message.offset() + 1
                    yield *place, message.offset(), json.loads(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
        consumer.close()
