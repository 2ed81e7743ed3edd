"""Shipped pipelines with as much state as is wanted: events by number, and what has to come out of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import yaml
from _common import REPO
from confluent_kafka import Consumer, KafkaError, TopicPartition
from spillway.model.campaigns import campaign_of_ad

EXECUTORS, NODES = 2, ("n1", "n2")
PER_SENTENCE, CAMPAIGNS, WINDOW_MS, BEGIN_MS = 8, 1_000, 10_000, 1_767_225_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A shipped pipeline, its events by number, and what has to come out of them."""

    name: str
    operator: str
    topic: str
    out: str
    change: Callable[[dict[str, Any], int], None]
    """Of the shipped topology, for so many keys."""
    first: Callable[[int], int]
    """Events after which the state has so many keys."""
    make: Callable[[int, int], tuple[bytes, bytes]]
    keys_of: Callable[[int, int], list[int]]
    """Numbers of the keys that an event counts for."""
    read: Callable[[dict[str, Any]], tuple[Any, int]]
    """Key and count of a record that came out."""
    key: Callable[[int], Any]
    """What comes out for the key of a number."""

    def topology(self, keys: int) -> str:
        spec = yaml.safe_load((REPO / "pipelines" / f"{self.name}.yaml").read_text(encoding="utf-8"))
        self.change(spec, keys)
        return yaml.safe_dump(spec, sort_keys=False)


def scattered(number: int, keys: int) -> int:
    """The same key for the same number, all of them alike often.

    >>> [scattered(n, 10) for n in range(4)]
    [0, 1, 2, 3]
    """
    return number * 2_654_435_761 % keys


def _words_of(number: int, keys: int) -> list[int]:
    first = -(-keys // PER_SENTENCE)
    if number < first:
        return list(range(number * PER_SENTENCE, min(keys, (number + 1) * PER_SENTENCE)))
    return [scattered(number * 4 + n, keys) for n in range(4)]


def _sentence(number: int, keys: int) -> tuple[bytes, bytes]:
    text = " ".join(f"w{n}" for n in _words_of(number, keys))
    return str(number).encode(), json.dumps({"text": text}).encode()


def _for_words(spec: dict[str, Any], keys: int) -> None:
    spec["applications"]["count"] |= {"executors": EXECUTORS, "node": NODES[0], "executor_memory": "1g", "driver_memory": "1g"}


def _ad(number: int, keys: int) -> tuple[bytes, bytes]:
    [key] = _views_of(number, keys) or [0]
    at = BEGIN_MS + key // CAMPAIGNS * WINDOW_MS + number % WINDOW_MS
    kind = "view" if _views_of(number, keys) else "click"
    return str(number).encode(), json.dumps({"ad_id": _ads()[key % CAMPAIGNS][0], "event_type": kind, "event_time": at}).encode()


def _views_of(number: int, keys: int) -> list[int]:
    """First a view for every campaign and window; after that every tenth event is a click, which nobody counts."""
    if number < keys:
        return [number]
    return [] if number % 10 == 9 else [scattered(number, keys)]


@lru_cache(maxsize=1)
def _ads() -> list[tuple[str, str]]:
    """Ad and campaign, in the order of their numbers."""
    return sorted(campaign_of_ad(1, CAMPAIGNS, 1).items())


def _for_ads(spec: dict[str, Any], keys: int) -> None:
    spec["operators"]["join"]["args"] = {"seed": 1, "campaigns": CAMPAIGNS, "ads_per_campaign": 1}
    spec["operators"]["count"]["args"] = {"window": "10 seconds", "late": "365 days"}  # every window stays in the state
    spec["applications"]["count"] |= {"executors": EXECUTORS, "node": NODES[0], "executor_memory": "1g", "driver_memory": "1g"}
    spec["applications"]["front"]["node"] = NODES[1]


def _window(record: dict[str, Any]) -> tuple[Any, int]:
    begins = datetime.fromisoformat(record["window_start"]).timestamp()
    return (record["campaign_id"], round(begins)), record["views"]


WORKLOADS = {
    "wordcount": Workload(
        name="wordcount", operator="count", topic="wordcount.sentences", out="wordcount.count.out",
        change=_for_words, first=lambda keys: -(-keys // PER_SENTENCE), make=_sentence, keys_of=_words_of,
        read=lambda r: (r["word"], r["count"]), key=lambda n: f"w{n}",
    ),
    "ads": Workload(
        name="ads", operator="count", topic="ads.events", out="ads.count.out",
        change=_for_ads, first=lambda keys: keys, make=_ad, keys_of=_views_of,
        read=_window, key=lambda n: (_ads()[n % CAMPAIGNS][1], (BEGIN_MS + n // CAMPAIGNS * WINDOW_MS) // 1000),
    ),
}  # fmt: skip


def counted(bootstrap: str, workload: Workload, keys: int, sent: int) -> dict[str, int]:
    """What came out against what went in: keys `lost` or with a `wrong` count, and records that do not count further (`doubled`).

    In update mode every record of a key counts more rows than the one before it, and all of them lie in one partition."""
    wanted: Counter[int] = Counter()
    for number in range(sent):
        wanted.update(workload.keys_of(number, keys))
    came: dict[Any, int] = {}
    doubled = records = 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-count",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(workload.out, timeout=10).topics[workload.out].partitions
    consumer.assign([TopicPartition(workload.out, p, 0) for p in partitions])
    left = len(partitions)
    while left:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                key, count = workload.read(json.loads(message.value()))
                doubled += count <= came.get(key, 0)
                came[key] = max(count, came.get(key, 0))
                records += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left -= 1
    consumer.close()
    found = {n: came.pop(workload.key(n), None) for n in wanted}
    return {
        "events": sent,
        "keys": len(wanted),
        "records": records,
        "lost": sum(count is None for count in found.values()),
        "wrong": sum(count is not None and count != wanted[n] for n, count in found.items()),
        "unknown": len(came),
        "doubled": doubled,
    }
