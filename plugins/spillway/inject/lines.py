"""Events by hand: lines into a topic, and the newest events out of one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.inject.broker import PlayError, Sender, client_conf

if TYPE_CHECKING:
    from spillway.inject.events import Message

DELIVERY_S = 30.0
ANSWER_S = 15.0
"""How long a broker that is read from may say nothing."""
LARGEST_STEP = 20_000


class BadLine(ValueError):
    """A line that cannot be sent; one sentence that says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    lines: int
    acknowledged: int
    first_failure: str
    bad_line: BadLine | None
    """Where it ended before the last line."""


class Event(NamedTuple):
    """In the order of the broker's clock."""

    at_ms: int
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        return f"{_text(self.key)}\t{_text(self.value)}"


def message(line: bytes, number: int, key: str | None) -> Message:
    """One line as an event, keyed by a field of its JSON where that was asked for.

    >>> message(b'{"zone": 7, "tip": 2.5}', 1, "zone")["key"]
    b'7'
    """
    if key is None:
        return {"value": line}
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise BadLine(f"line {number} is not a JSON object, so it has no field {key} to be its key.")
    if key not in event:
        raise BadLine(f"line {number} has no field {key} to be its key: it has {', '.join(event) or 'none'}.")
    if (value := event[key]) is None:
        raise BadLine(f"line {number} has no value in the field {key} to be its key.")
    return {"key": (value if isinstance(value, str) else json.dumps(value)).encode(), "value": line}


def send(bootstrap: str, topic: str, partitions: int, lines: Iterable[bytes], key: str | None = None) -> Sent:
    """Sends each line that is not empty as one event, as it comes, and waits until all are acknowledged."""
    sender = Sender(bootstrap, partitions={topic: partitions}, stopped=lambda: False, delivery_timeout_s=DELIVERY_S)
    sent, bad = 0, None
    for number, line in enumerate(lines, 1):
        if not (event := line.rstrip(b"\r\n")):
            continue
        try:
            sent += sender.send(topic, [message(event, number, key)], sent)
        except BadLine as error:
            bad = error
            break
        sender.poll()
    missing = sender.flush(DELIVERY_S + 5)
    failed = sender.failed[topic]
    return Sent(lines=sent, acknowledged=sent - failed - missing, first_failure=sender.first_failure, bad_line=bad)


class Tail:
    """Reads what is committed in one topic, and leaves no trace of it at the broker."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer

        self.bootstrap, self.topic = bootstrap, topic
        self._consumer = Consumer(
            client_conf(bootstrap)
            | {
                "group.id": "spillway-tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        self._bounds = {p: self._watermarks(p) for p in range(partitions)}

    def newest(self, count: int) -> list[Event]:
        """The newest `count` events of all partitions, oldest first.

        An offset may hold a transaction's end or an event that was taken back, so it goes back step by step until it has enough.
        """
        found: dict[int, list[Event]] = {p: [] for p in self._bounds}
        begin = {p: high for p, (_, high) in self._bounds.items()}
        step = count + 10
        while short := [p for p, (low, _) in self._bounds.items() if len(found[p]) < count and begin[p] > low]:
            windows = {p: (max(self._bounds[p][0], begin[p] - step), begin[p]) for p in short}
            read = list(self._read(windows))
            for p, (start, _) in windows.items():
                found[p], begin[p] = [*(e for e in read if e.partition == p), *found[p]], start
            step = min(4 * step, LARGEST_STEP)
        return sorted(event for events in found.values() for event in events)[-count:]

    def follow(self) -> Iterator[Event]:
        """What is committed after those that `newest` gives, as it comes; does not end."""
        self._assign({p: high for p, (_, high) in self._bounds.items()})
        while True:
            yield from (event for event in self._consume() if isinstance(event, Event))

    def close(self) -> None:
        self._consumer.close()

    def _watermarks(self, partition: int) -> tuple[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=ANSWER_S)
        except KafkaException as error:
            raise PlayError(f"topic {self.topic} does not tell its offsets: {error.args[0].str()}.") from error
        return low, high

    def _read(self, windows: Mapping[int, tuple[int, int]]) -> Iterator[Event]:
        """The events at [start, end) of each partition."""
        self._assign({p: start for p, (start, _) in windows.items()})
        still, heard = set(windows), time.monotonic()
        while still:
            got = self._consume()
            if got:
                heard = time.monotonic()
            elif time.monotonic() - heard > ANSWER_S:
                raise PlayError(f"The broker at {self.bootstrap} does not answer: check that it is healthy.")
            for event in got:
                if isinstance(event, Event) and event.offset < windows[event.partition][1]:
                    yield event
                else:
                    still.discard(event.partition if isinstance(event, Event) else event)

    def _assign(self, starts: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in starts.items()])

    def _consume(self) -> list[Event | int]:
        """Events, and the number of each partition whose end was reached."""
        from confluent_kafka import KafkaError

        got: list[Event | int] = []
        for m in self._consumer.consume(1000, timeout=0.2):
            partition, error = int(m.partition() or 0), m.error()
            if error is None:
                got.append(Event(m.timestamp()[1], partition, int(m.offset() or 0), _bytes(m.key()), _bytes(m.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                got.append(partition)
            elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                raise PlayError(f"topic {self.topic} cannot be read: {error.str()}.")
        return got


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _text(data: bytes | None) -> str:
    r"""On one line, whatever it holds.

    >>> _text(b"a\nb\xff"), _text(None)
    ('a\\nb\\xff', '–')
    """
    if data is None:
        return "–"
    return data.decode("utf-8", "backslashreplace").replace("\r", "\\r").replace("\n", "\\n")
