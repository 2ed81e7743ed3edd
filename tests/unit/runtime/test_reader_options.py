"""What a task's Kafka consumer is told."""

from __future__ import annotations

from spillway.model.topology import Edge

from spark_jobs.runtime.plan import Input, reader_options

EDGE = Edge(name="t:op", topic="t", producer=None, consumer="op", partitions=4)


def test_an_edge_is_read_committed_within_its_bound_and_with_the_settings_of_a_task() -> None:
    options = reader_options(EDGE, Input(bootstrap="here:1", max_rows=7))
    assert options["subscribe"] == "t" and options["maxOffsetsPerTrigger"] == "7"
    assert options["kafka.isolation.level"] == "read_committed" and options["failOnDataLoss"] == "true"
    assert options["kafka.max.poll.records"] == "5000" and options["kafka.receive.buffer.bytes"] == "1048576"
    assert options["kafka.fetch.max.wait.ms"] == "10"


def test_a_site_may_say_otherwise_but_not_where_kafka_is() -> None:
    said = (("kafka.max.poll.records", "50"), ("kafka.bootstrap.servers", "elsewhere:1"))
    options = reader_options(EDGE, Input(bootstrap="here:1", max_rows=7, options=said))
    assert options["kafka.max.poll.records"] == "50" and options["kafka.bootstrap.servers"] == "here:1"
