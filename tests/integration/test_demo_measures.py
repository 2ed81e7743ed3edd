"""What the demo reads back from Kafka and from Postgres."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg2
import pytest
from confluent_kafka import Producer
from spillway.demo.topics import Topics
from spillway.embedded import Stack
from spillway.store.queries import rows

from tests.support.line import until

pytestmark = pytest.mark.integration


def test_keys_and_lineages_of_what_was_committed_since(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic("out", partitions=2)
    topics = Topics(stack.env["SPILLWAY_KAFKA"])
    producer = Producer({"bootstrap.servers": stack.env["SPILLWAY_KAFKA"], "transactional.id": name})
    producer.init_transactions(30)

    def write(lineages: list[str], ends: dict[int, int], commit: bool = True) -> None:
        """Whoever commits is told so before the markers are written that end the transaction in each partition."""
        producer.begin_transaction()
        for number, lineage in enumerate(lineages):
            producer.produce(name, key=f"k-{lineage}", value=json.dumps({"lineage": lineage}), partition=number % 2)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        until(lambda: topics.ends([name])[name] == ends, 30, f"the topic does not end at {ends}", every_s=0.05)

    start = {0: 2, 1: 2}
    write(["before-0", "before-1"], start)
    write(["a", "b", "a"], {0: 5, 1: 4})
    write(["never"], {0: 7, 1: 4}, commit=False)
    assert topics.lineages(name, start) == {"a": 2, "b": 1}
    assert sorted(topics.keys(name, start)) == ["k-a", "k-a", "k-b"]
    assert sorted(topics.keys(name, {})) == ["k-a", "k-a", "k-b", "k-before-0", "k-before-1"]


def test_an_edge_is_known_by_the_least_keep_it_had(dsn: Callable[[str], str], unique: Callable[[str], str]) -> None:
    pipeline = unique("demo")
    connection = psycopg2.connect(dsn("job"))
    try:
        with connection.cursor() as cursor:
            for batch, (edge, keep, kept) in enumerate([("a:b", 1.0, 10), ("a:b", 0.4, 4), ("a:b", 1.0, 10), ("a:c", 1.0, 9)]):
                cursor.execute(
                    "insert into spillway.edge_metric (pipeline, operator, edge, checkpoint, batch_id, ended_at, rows_read,"
                    " rows_kept, keep, keep_source) values (%s, 'x', %s, 1, %s, now(), 10, %s, %s, 'setting')",
                    (pipeline, edge, batch, kept, keep),
                )
            cursor.execute("select now() - interval '1 minute'")
            since = cursor.fetchone()[0]
        found = {
            r["edge"]: (r["least_keep"], r["rows_kept"]) for r in rows(connection, "demo_edges", pipeline=pipeline, since=since)
        }
    finally:
        connection.close()
    assert found == {"a:b": (0.4, 24), "a:c": (1.0, 9)}
