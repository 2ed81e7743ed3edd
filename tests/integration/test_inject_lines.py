"""Events by hand against a real Kafka: what is sent comes out again, and nothing that is not committed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from spillway.cli.app import app
from spillway.embedded import Stack
from spillway.inject.lines import Tail
from typer.testing import CliRunner

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def here(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_KAFKA", stack.env["SPILLWAY_KAFKA"])


def run(*args: str, given: str | bytes = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args), prog_name="spillway", input=given)
    return result.exit_code, result.stdout, result.stderr


def writer(stack: Stack, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": stack.env["SPILLWAY_KAFKA"], "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    return producer


def test_lines_go_in_and_come_out(topic: Callable[..., str]) -> None:
    name = topic("trips", partitions=1)
    assert run("tail", name) == (0, "", f"topic {name} has no event yet\n")
    assert run("send", name, given='{"zone": 7, "tip": 2.5}\n') == (0, "1 event was acknowledged\n", "")
    assert run("send", name, given="plain\n\nlast, without an end") == (0, "2 events were acknowledged\n", "")
    assert run("tail", name) == (0, '–\t{"zone": 7, "tip": 2.5}\n–\tplain\n–\tlast, without an end\n', "")
    assert run("tail", name, "-n", "1") == (0, "–\tlast, without an end\n", "")


def test_a_key_decides_the_partition(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic("trips", partitions=4)
    lines = "".join(json.dumps({"zone": n % 10, "n": n}) + "\n" for n in range(200))
    assert run("send", name, "--key", "zone", given=lines) == (0, "200 events were acknowledged\n", "")
    reader = Tail(stack.env["SPILLWAY_KAFKA"], name, 4)
    found = reader.newest(1000)
    reader.close()
    assert sorted(json.loads(e.value or b"")["n"] for e in found) == list(range(200))
    assert all(json.loads(e.value or b"")["zone"] == int(e.key or b"") for e in found)
    homes = {e.key: {f.partition for f in found if f.key == e.key} for e in found}
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set().union(*homes.values())) > 1


def test_the_newest_of_all_partitions_in_order(topic: Callable[..., str]) -> None:
    name = topic("trips", partitions=3)
    for n in range(5):
        assert run("send", name, given=f"{n}\n")[0] == 0
    out = run("tail", name, "-n", "3")[1]
    assert [line.split("\t")[1] for line in out.splitlines()] == ["2", "3", "4"]


def test_a_bad_line_ends_it_after_those_before(topic: Callable[..., str]) -> None:
    name = topic("trips", partitions=1)
    code, out, err = run("send", name, "--key", "zone", given='{"zone": 1}\n{"tip": 1}\n{"zone": 2}\n')
    assert (code, out) == (2, "1 event was acknowledged\n")
    assert err == "error: line 2 has no field zone to be its key: it has tip.\n"
    assert run("tail", name)[1] == '1\t{"zone": 1}\n'


@pytest.mark.parametrize("command", ["send", "tail"])
def test_a_topic_that_is_not_there(command: str, unique: Callable[[str], str]) -> None:
    name = unique("trips")
    expected = f"error: there is no topic {name}: it is made when a pipeline that reads or writes it starts.\n"
    assert run(command, name, given="x\n") == (2, "", expected)


def test_only_what_is_committed_and_as_much_of_it_as_asked(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic("out", partitions=1)
    producer = writer(stack, name)
    for n in range(40):  # each followed by two taken back: of the last offsets few hold an event
        for value, end in ((f"kept {n}", producer.commit_transaction), *[("taken back", producer.abort_transaction)] * 2):
            producer.begin_transaction()
            producer.produce(name, value, "k")
            producer.flush(10)
            end(30)
    out = run("tail", name, "-n", "30")[1]
    assert out.splitlines() == [f"k\tkept {n}" for n in range(10, 40)]


def test_following_shows_what_is_committed_later(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic("out", partitions=1)
    assert run("send", name, given="before\n")[0] == 0
    producer = writer(stack, name)
    producer.begin_transaction()
    producer.produce(name, "open when it began", None)
    producer.flush(10)
    reader = Tail(stack.env["SPILLWAY_KAFKA"], name, 1)
    try:
        assert [e.value for e in reader.newest(10)] == [b"before"]
        timer = threading.Timer(1.0, producer.commit_transaction, [30])
        timer.start()
        assert next(reader.follow()).value == b"open when it began"
        timer.join()
    finally:
        reader.close()
