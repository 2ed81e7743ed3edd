"""The agent as it runs beside the workers, against Postgres and Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import psycopg2
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from spillway.model.topology import Application, Edge, Operator, Pipeline

pytestmark = pytest.mark.integration


@pytest.fixture
def read_topic(stack):
    """A pipeline that reads a topic with seven events in it."""
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": stack.env["SPILLWAY_KAFKA"]})
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    producer = Producer({"bootstrap.servers": stack.env["SPILLWAY_KAFKA"]})
    for n in range(7):
        producer.produce(name, value=b"x", partition=0 if n < 5 else 1)
    producer.flush(20)
    pipeline = Pipeline(
        name=name,
        operators=(Operator(name="a", function="x:y"),),
        edges=(Edge(name=f"{name}:a", topic=name, producer=None, consumer="a", partitions=2),),
        applications=(Application(name="main", operators=("a",)),),
    )
    conn = psycopg2.connect(stack.env["SPILLWAY_DSN_CONTROL"])
    with conn, conn.cursor() as cursor:
        cursor.execute(
            "insert into spillway.pipeline_version values (%s, 1, %s, '', 'd', now(), 'test')", (name, pipeline.to_json())
        )
        cursor.execute("insert into spillway.pipeline values (%s, 1, 'stopped', now(), 'test')", (name,))
    yield name
    with conn, conn.cursor() as cursor:
        cursor.execute("delete from spillway.pipeline where pipeline = %s", (name,))
    conn.close()
    admin.delete_topics([name])[name].result(20)


def test_nodes_and_topics_are_measured_cheaply_and_it_ends_when_asked(stack, read_topic):
    node = f"node-{uuid.uuid4().hex[:6]}"
    environment = {
        **os.environ, **stack.env, "SPILLWAY_NODES": f"{node}=0", "SPILLWAY_POLICY_AGENT_INTERVAL_S": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }  # fmt: skip
    agent = subprocess.Popen([sys.executable, "-m", "spillway.observe.agent"], env=environment, stderr=subprocess.PIPE, text=True)
    conn = psycopg2.connect(stack.env["SPILLWAY_DSN_READ"])
    conn.autocommit = True
    try:
        with conn.cursor() as cursor:
            offsets: dict[int, int] = {}
            samples, deadline = 0, time.monotonic() + 60
            while (samples < 3 or offsets != {0: 5, 1: 2}) and time.monotonic() < deadline:
                time.sleep(0.5)
                assert agent.poll() is None, agent.stderr.read()
                cursor.execute(
                    "select partition, max(end_offset) from spillway.topic_metric where topic = %s group by 1", (read_topic,)
                )
                offsets = dict(cursor.fetchall())
                cursor.execute("select count(*) from spillway.node_metric where node = %s", (node,))
                samples = cursor.fetchone()[0]
            assert offsets == {0: 5, 1: 2}
            cursor.execute(
                "select cores, cpu_pct, own_cpu_pct, mem_used < mem_total, window_s from spillway.node_metric where node = %s",
                (node,),
            )
            for cores, cpu, own, fits, window in cursor.fetchall():
                assert cores == 1
                assert 0 <= cpu <= 110
                assert own >= 0
                assert fits
                assert 0.2 < window < 10  # after one that was late, a quarter of the interval at least
        process = psutil.Process(agent.pid)
        before, started = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(5)
        spent = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - started)
        assert spent < 0.075, f"{spent:.1%} of a core at five times the usual pace"
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(15) == 0
    finally:
        if agent.poll() is None:
            agent.kill()
        agent.stderr.close()
        conn.close()
