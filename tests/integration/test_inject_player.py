"""The player against a real Kafka: what it reports is what the broker has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from spillway.embedded import Stack
from spillway.inject.broker import Broker, PlayError, Sender
from spillway.inject.player import PlayOptions, play
from spillway.inject.profiles import Constant
from spillway.inject.report import Report, Second
from spillway.inject.scenario import PipelineRun, Scenario, TopicLoad
from spillway.store import session
from spillway.store.pipelines import apply, remove
from spillway.topology import check_text

pytestmark = pytest.mark.integration

REPO = Path(__file__).parents[2]
NOON_MS = 1_767_268_800_000
_number = count()


def topic_name() -> str:
    return f"inject.test.{os.getpid()}.{next(_number)}"


def read_all(bootstrap: str, topic: str, partitions: int) -> list[list[tuple[bytes | None, bytes]]]:
    """Key and value of every event, per partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "inject-test", "enable.auto.commit": False})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in range(partitions)]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(partitions)]
        deadline = time.monotonic() + 30
        while sum(map(len, found)) < sum(ends):
            assert time.monotonic() < deadline, f"only {sum(map(len, found))} of {sum(ends)} events could be read"
            for message in consumer.consume(500, timeout=0.2):
                assert message.error() is None
                found[message.partition()].append((message.key(), message.value()))
        return found
    finally:
        consumer.close()


def scenario(topic: str, *, rate: float = 5000, seconds: float = 3, **load: object) -> Scenario:
    wish = {"events": "points", "partitions": 4, **load}
    return Scenario(name="test", duration_s=seconds, topics=(TopicLoad(topic=topic, rate=Constant(rate), **wish),))  # type: ignore[arg-type]


def test_five_thousand_a_second_arrive_exactly_as_made(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    wish = scenario(topic, events="ads", garbage=0.01, pool=3000)
    rows: list[Second] = []
    report = play(wish, bootstrap, on_second=lambda _, new: rows.extend(new), options=PlayOptions(start_ms=NOON_MS))
    assert report.ok, report.problems
    (of_topic,) = report.topics
    assert (of_topic.asked, of_topic.sent, of_topic.delivered, of_topic.at_broker) == (15_000,) * 4
    assert sum(r.asked for r in rows) == sum(r.sent for r in rows) == 15_000
    assert json.loads(report.to_json())["topics"][0]["delivered"] == 15_000

    found = read_all(bootstrap, topic, 4)
    assert [len(p) for p in found] == [3750] * 4
    pool = wish.topics[0].make_pool(wish.seed)
    due = [(n, NOON_MS + n // 100 * 20) for n in range(15_000)]  # 100 events a tick of 20 ms
    truth = [pool.take(n, 1, at)[0][0]["value"] for n, at in due]
    for partition, events in enumerate(found):
        assert [value for _, value in events] == truth[partition::4]
    assert of_topic.garbage == pool.garbage_between(0, 15_000) == 150


def test_keyed_events_of_a_key_share_a_partition(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    report = play(scenario(topic, events="yellow", key="PULocationID", seconds=1), bootstrap)
    assert report.ok, report.problems
    found = read_all(bootstrap, topic, 4)
    keys = [{key for key, _ in partition} for partition in found]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert all(keys)
    assert all(json.loads(v)["PULocationID"] == int(k or b"") for partition in found for k, v in partition)


def play_across_a_restart(stack: Stack, wish: Scenario, options: PlayOptions | None = None) -> tuple[Report, list[int]]:
    """Kafka is restarted once the first second was played; with how many events waited at the end of each second."""
    thread = threading.Thread(target=stack.restart, args=["kafka"])
    seen: list[int] = []

    def watch(_: int, rows: Sequence[Second]) -> None:
        if not seen:
            thread.start()
        seen.append(rows[0].waiting)

    try:
        report = play(wish, stack.env["SPILLWAY_KAFKA"], on_second=watch, options=options or PlayOptions())
    finally:
        if seen:
            thread.join()
    stack.wait_healthy("kafka")
    return report, seen


def test_a_broker_restart_loses_and_doubles_nothing(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    report, seen = play_across_a_restart(stack, scenario(topic, rate=1500, seconds=8, events="sentences", pool=12_000))
    assert report.ok, report.problems
    assert max(seen) > 1000, "the restart did not hold any event up, so it proved nothing"
    pool = scenario(topic, events="sentences", pool=12_000).topics[0].make_pool(1)
    truth = Counter(m["value"] for m in pool.take(0, 12_000, 0)[0])
    assert Counter(value for partition in read_all(bootstrap, topic, 4) for _, value in partition) == truth


def test_a_full_buffer_holds_the_player_back_and_what_is_too_old_is_given_up(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    options = PlayOptions(buffer_messages=1000, catch_up_s=0.5)
    report, _ = play_across_a_restart(stack, scenario(topic, rate=3000, seconds=5), options)
    (of_topic,) = report.topics
    assert not report.ok
    assert of_topic.given_up > 0
    assert any("events were given up, the rate could not be held" in p for p in report.problems)
    assert of_topic.asked == 15_000 == of_topic.sent + of_topic.given_up
    assert of_topic.sent == of_topic.delivered == of_topic.at_broker
    assert sum(map(len, read_all(bootstrap, topic, 4))) == of_topic.sent


def waiting_sender(stack: Stack, topic: str, events: int) -> tuple[Sender, Broker]:
    """With some events delivered and the last ones still in its queue."""
    bootstrap = stack.env["SPILLWAY_KAFKA"]
    broker = Broker(bootstrap)
    sender = Sender(bootstrap, partitions=broker.ensure_topics({topic: 4}), stopped=lambda: False, ends=broker.ends)
    for first in range(0, events, 1000):
        sender.send(topic, [{"value": b"%d" % n} for n in range(first, first + 1000)], first)
        if first == events // 2:
            assert sender.flush(20) == 0
    return sender, broker


def test_what_waits_in_a_stuck_producer_goes_on_in_another_one(stack: Stack) -> None:
    topic = topic_name()
    sender, broker = waiting_sender(stack, topic, 10_000)
    assert sender.waiting() > 0, "nothing waited, so it proved nothing"
    sender.renew()
    sender.send(topic, [{"value": b"%d" % n} for n in range(10_000, 11_000)], 10_000)
    assert sender.flush(20) == 0
    assert (sender.renewed, sender.failed, sender.first_failure) == (1, Counter(), "")
    assert broker.ends() == {topic: 11_000}
    found = read_all(stack.env["SPILLWAY_KAFKA"], topic, 4)
    assert [sorted(int(value) for _, value in partition) for partition in found] == [list(range(p, 11_000, 4)) for p in range(4)]


def test_what_may_have_arrived_is_not_sent_by_another_producer(stack: Stack) -> None:
    topic = topic_name()
    sender, broker = waiting_sender(stack, topic, 10_000)
    play(scenario(topic, rate=100, seconds=0.5), stack.env["SPILLWAY_KAFKA"])  # for all the sender knows, these are its own
    sender.send(topic, [{"value": b"x"}] * 1000, 0)
    sender.renew()
    assert sender.flush(20) == 0
    assert sender.failed[topic] > 0
    assert sender.first_failure == f"{topic}: a producer was stuck, and nobody knows whether what waited in it has arrived"
    assert broker.ends() == {topic: 11_000 + 50 - sender.failed[topic]}


def test_a_topic_with_other_partitions_is_refused(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    assert Broker(bootstrap).ensure_topics({topic: 2}) == {topic: 2}
    assert Broker(bootstrap).ensure_topics({topic: None}) == {topic: 2}
    with pytest.raises(PlayError, match=f"Topic {topic} has 2 partitions and the scenario asks for 4: change the scenario or"):
        play(scenario(topic), bootstrap)


def test_another_writer_is_noticed(stack: Stack) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    other = threading.Timer(0.2, play, [scenario(topic, rate=100, seconds=0.5), bootstrap])
    Broker(bootstrap).ensure_topics({topic: 4})
    other.start()
    report = play(scenario(topic, rate=100, seconds=2), bootstrap)
    other.join()
    assert report.problems == (f"Topic {topic} grew by 250 events and 200 were delivered: others wrote to it too.",)


PIPELINE = """
pipeline: {name}
operators:
  echo: {{function: "builtins:print"}}
edges:
  - {{topic: {topic}, to: echo, partitions: 4}}
"""


def test_pipelines_are_asked_to_run_and_to_stop_when_their_time_comes(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap, topic = stack.env["SPILLWAY_KAFKA"], topic_name()
    monkeypatch.setenv("SPILLWAY_DSN_CONTROL", stack.env["SPILLWAY_DSN_CONTROL"])
    name = f"injected_{os.getpid()}"
    text = PIPELINE.format(name=name, topic=topic)
    pipeline, problems = check_text(text)
    assert pipeline is not None, problems
    wish = replace(scenario(topic, rate=100, seconds=2), pipelines=(PipelineRun(name=name, start_at_s=0.5, stop_at_s=1.5),))
    with pytest.raises(PlayError, match=f"The scenario's pipelines cannot be started: there is no pipeline {name}"):
        play(wish, bootstrap)
    with session("control") as connection:
        apply(connection, pipeline, text, "test")
    began = datetime.now(UTC)
    report = play(wish, bootstrap)
    assert report.ok, report.problems
    with session("control") as connection:
        with connection.cursor() as cursor:
            cursor.execute(
                "select at, actor, text from spillway.event where pipeline = %s and kind = 'desired' order by at", (name,)
            )
            rows = cursor.fetchall()
        remove(connection, name, "test")
    assert [(actor, said) for _, actor, said in rows] == [
        ("scenario test", f"pipeline {name} should be running"),
        ("scenario test", f"pipeline {name} should be stopped"),
    ]
    assert (rows[0][0] - began).total_seconds() >= 0.5
    assert (rows[1][0] - rows[0][0]).total_seconds() >= 0.8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_report(stack: Stack, tmp_path: Path, number: signal.Signals) -> None:
    topic = topic_name()
    file = tmp_path / "long.yaml"
    file.write_text(f"name: long\nduration: 1h\ntopics:\n  {topic}: {{events: points, partitions: 4, rate: 1000}}\n")
    program = f"import sys; from spillway.inject.player import main_play; sys.exit(main_play({str(file)!r}, as_json=True))"
    env = os.environ | {"SPILLWAY_KAFKA": stack.env["SPILLWAY_KAFKA"], "PYTHONPATH": f"{REPO / 'plugins'}:{REPO}"}
    player = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert player.stderr is not None
    lines = [player.stderr.readline() for _ in range(3)]  # the head and two seconds
    assert lines[0].split()[:3] == ["second", "topic", "asked"], lines
    player.send_signal(number)
    out, err = player.communicate(timeout=30)
    assert player.returncode == 0, err
    report = json.loads(out)
    assert report["stopped_early"]
    assert report["topics"][0]["delivered"] == report["topics"][0]["at_broker"] == report["topics"][0]["sent"] >= 2000
