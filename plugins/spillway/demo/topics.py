"""Reads the demo's topics: how far they go, and which source events are in an output."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, TopicPartition

Ends = dict[str, dict[int, int]]


def await_letters(found: Callable[[], int], letters: Callable[[], int], limit_s: float, pause_s: float = 1.0) -> bool:
    """Dead letters are collected behind the batches: waits until there are as many as rows were found bad, or time is over."""
    deadline = time.monotonic() + limit_s
    while letters() < found():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self._conf = {
            "bootstrap.servers": bootstrap,
            "group.id": "spillway-demo",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 2,
        }

    def ends(self, names: Iterable[str]) -> Ends:
        """End offset of every partition; a topic that is not there yet has none."""
        consumer = Consumer(self._conf)
        try:
            there = consumer.list_topics(timeout=10).topics
            return {
                name: {p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=10)[1] for p in there[name].partitions}
                if name in there
                else {}
                for name in names
            }
        finally:
            consumer.close()

    def keys(self, name: str, start: dict[int, int]) -> list[str]:
        """The key of every committed record from the given offsets on."""
        return [key.decode("utf-8", "replace") for key, _ in self._read(name, start)]

    def lineages(self, name: str, start: dict[int, int]) -> Counter[str]:
        """How often each source event appears among the committed records from the given offsets on."""
        return Counter(json.loads(value)["lineage"] for _, value in self._read(name, start))

    def _read(self, name: str, start: dict[int, int]) -> Iterable[tuple[bytes, bytes]]:
        consumer = Consumer(self._conf)
        try:
            partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
            consumer.assign([TopicPartition(name, p, start.get(p, 0)) for p in partitions])
            ended: set[int] = set()
            deadline = time.monotonic() + 60
            while len(ended) < len(partitions) and time.monotonic() < deadline:
                for message in consumer.consume(5000, timeout=1.0):
                    error = message.error()
                    if error is None:
                        yield message.key() or b"", message.value() or b"{}"
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition() or 0)
        finally:
            consumer.close()
