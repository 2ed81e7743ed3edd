"""The Kafka side of player and lines: topics, an idempotent producer with a bounded buffer, and end offsets."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from spillway.inject.events import Message
from spillway.inject.stuck import Stuck

BUFFER_MESSAGES = 500_000
BUFFER_KB = 262_144
DEFAULT_PARTITIONS = 4
STATISTICS_MS = 2000
SETTLE_S = 30.0
"""How long what is on its way to a broker that is there may take."""


class PlayError(RuntimeError):
    """Kafka cannot be written to or read as asked; one sentence that says why and what to do."""


def client_conf(bootstrap: str) -> dict[str, Any]:
    # Errors reach us as failed deliveries and unanswered requests; librdkafka would also print each lost connection.
    return {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 1000}


class Broker:
    """Topics and offsets."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = bootstrap
        self._admin = AdminClient(client_conf(bootstrap))
        self._partitions: dict[str, int] = {}
        self._pending: dict[Any, Future[Any]] = {}

    def ensure_topics(self, wanted: Mapping[str, int | None], timeout_s: float = 10.0) -> dict[str, int]:
        """Partitions of each topic; makes those that are missing."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        found = self._existing(timeout_s)
        missing = {t: n or DEFAULT_PARTITIONS for t, n in wanted.items() if t not in found}
        if missing:
            made = self._admin.create_topics([NewTopic(t, n, -1) for t, n in missing.items()])
            for topic, future in made.items():
                try:
                    future.result(timeout_s)
                except KafkaException as error:
                    if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                        raise PlayError(f"Topic {topic} could not be made at {self.bootstrap}: {error.args[0].str()}.") from error
            found = self._existing(timeout_s)
        for topic, partitions in wanted.items():
            have = found.get(topic, missing.get(topic, 0))
            if partitions is not None and have != partitions:
                raise PlayError(
                    f"Topic {topic} has {have} partitions and the scenario asks for {partitions}: "
                    "change the scenario or remake the topic."
                )
            self._partitions[topic] = have
        return dict(self._partitions)

    def partitions(self, topic: str, timeout_s: float = 5.0) -> int:
        """Partitions of a topic that others have made."""
        found = self._existing(timeout_s)
        if topic not in found:
            raise PlayError(f"there is no topic {topic}: it is made when a pipeline that reads or writes it starts.")
        return found[topic]

    def _existing(self, timeout_s: float) -> dict[str, int]:
        from confluent_kafka import KafkaException

        try:
            listed = self._admin.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise PlayError(
                f"No Kafka broker answers at {self.bootstrap}: start it (`make up`) or check SPILLWAY_KAFKA."
            ) from error
        return {name: len(meta.partitions) for name, meta in listed.items() if meta.error is None}

    def ask_ends(self, timeout_s: float = 5.0) -> None:
        """Asks for all end offsets; a question still open is forgotten.

        After a failure a new client asks: the old one would go on with the leader epoch it remembers, and a broker that was
        restarted refuses that for ever (FENCED_LEADER_EPOCH).
        """
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        if any(f.done() and f.exception() for f in self._pending.values()):
            self._admin = AdminClient(client_conf(self.bootstrap))
        asked = {TopicPartition(t, p): OffsetSpec.latest() for t, n in self._partitions.items() for p in range(n)}
        self._pending = self._admin.list_offsets(asked, request_timeout=timeout_s)

    def answered_ends(self) -> dict[str, int] | None:
        """Sum of the end offsets per topic as last asked for; None while (or if) there is no answer."""
        if not self._pending or not all(f.done() for f in self._pending.values()):
            return None
        if any(f.exception() for f in self._pending.values()):
            return None
        ends: Counter[str] = Counter()
        for at, future in self._pending.items():
            ends[at.topic] += future.result().offset
        return dict(ends)

    def ends(self, timeout_s: float = 10.0) -> dict[str, int] | None:
        """End offsets now; None when the broker does not answer in time."""
        deadline = time.monotonic() + timeout_s
        found = None
        while found is None and time.monotonic() < deadline:
            self.ask_ends(max(0.5, deadline - time.monotonic()))
            wait(self._pending.values(), timeout_s)
            found = self.answered_ends()
            if found is None:
                time.sleep(0.1)
        return found


class Sender:
    """Hands events to the broker, each exactly once also when it restarts; counts what was refused.

    At most `buffer_messages` wait for an acknowledgement: while the broker is away longer than that lasts, `send` blocks.

    With `ends`, which tells the end offsets of topics that nobody else writes to, a producer that is stuck is replaced: what
    waits in it goes to the next one, not all of it in its order, if the end offsets show that none of it has arrived.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        partitions: Mapping[str, int],
        stopped: Callable[[], bool],
        buffer_messages: int = BUFFER_MESSAGES,
        delivery_timeout_s: float = 120.0,
        ends: Callable[[], dict[str, int] | None] | None = None,
    ) -> None:
        self.failed: Counter[str] = Counter()
        self.first_failure = ""
        self.renewed = 0
        """How many producers were stuck."""
        self._partitions = partitions
        self._stopped = stopped
        self._conf = client_conf(bootstrap) | {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": buffer_messages,
            "queue.buffering.max.kbytes": BUFFER_KB,
            "message.timeout.ms": int(delivery_timeout_s * 1000),
            "delivery.report.only.error": True,
            "retry.backoff.ms": 50,
        }
        self._ends, self._begin = ends, ends() if ends else None
        if self._begin is not None:
            self._conf |= {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._look}
        self._taken: Counter[str] = Counter()
        self._stuck, self._is_stuck = Stuck(), False
        self._back: dict[tuple[str, int], list[Message]] | None = None
        """Where a producer that is given up puts what it has not sent."""
        self._producer = self._make()

    def _make(self) -> Any:
        from confluent_kafka import Producer

        self._stuck, self._is_stuck = Stuck(), False
        return Producer(self._conf)

    def _look(self, report: str) -> None:
        self._is_stuck = self._is_stuck or self._stuck.look(json.loads(report))

    def send(self, topic: str, messages: list[Message], first: int) -> int:
        """Hands the messages over and returns how many were taken (all, unless stopped meanwhile).

        Keyed ones go where their key says; the others evenly around the partitions, by their number from `first` on.
        """
        if not messages:
            return 0
        if "key" in messages[0]:
            return self._hand_over(topic, messages, -1)
        count = self._partitions[topic]
        return sum(self._hand_over(topic, messages[(p - first) % count :: count], p) for p in range(count))

    def _hand_over(self, topic: str, messages: list[Message], partition: int) -> int:
        taken = 0
        while messages:
            queued = self._produce(topic, messages, partition)
            taken += queued
            self._taken[topic] += queued
            if queued == len(messages):
                break
            errors: list[tuple[Message, Any]] = [(m, m.pop("_error")) for m in messages if "_error" in m]
            worst = next((e for _, e in errors if e.name() != "_QUEUE_FULL"), None)
            if worst is not None:
                raise PlayError(f"Topic {topic} does not take events: {worst.str()}.")
            messages = [m for m, _ in errors]
            self._poll(0.02)
            if self._stopped():
                break
        return taken

    def _produce(self, topic: str, messages: list[Message], partition: int) -> int:
        from confluent_kafka import KafkaException

        try:
            return int(self._producer.produce_batch(topic, messages, partition=partition, on_delivery=self._refused))
        except KafkaException as error:
            raise PlayError(f"The producer gave up on topic {topic}: {error.args[0].str()}; play the scenario again.") from error

    def _refused(self, error: Any, message: Any) -> None:
        if self._back is not None and error.name() == "_PURGE_QUEUE":
            event: Message = {"value": message.value()}
            if message.key() is not None:
                event["key"] = message.key()
            self._back[message.topic(), message.partition()].append(event)
        else:
            self._fail(message.topic(), 1, error.str())

    def _fail(self, topic: str, events: int, why: str) -> None:
        self.failed[topic] += events
        self.first_failure = self.first_failure or f"{topic}: {why}"

    def poll(self) -> None:
        self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        if self._is_stuck:
            self.renew()

    def renew(self) -> None:
        """Another producer goes on with what waits in this one."""
        back = self._back = defaultdict(list)
        self._producer.purge(in_queue=True, in_flight=False, blocking=True)
        left = self._producer.flush(SETTLE_S)
        if left:
            self._producer.purge(blocking=True)  # what is on its way is reported as failed
            self._producer.flush(1.0)
        self._back, self._producer, self.renewed = None, self._make(), self.renewed + 1
        for topic in {topic for topic, _ in back}:
            events = {place: messages for place, messages in back.items() if place[0] == topic}
            count = sum(map(len, events.values()))
            if left or not self._none_arrived(topic, count):
                self._fail(topic, count, "a producer was stuck, and nobody knows whether what waited in it has arrived")
                continue
            self._taken[topic] -= count
            for (_, partition), messages in events.items():
                self._hand_over(topic, messages, partition)

    def _none_arrived(self, topic: str, events: int) -> bool:
        now = self._ends() if self._ends else None
        if now is None or self._begin is None:
            return False
        return now[topic] - self._begin[topic] == self._taken[topic] - self.failed[topic] - events

    def waiting(self) -> int:
        return len(self._producer)

    def flush(self, timeout_s: float) -> int:
        """Waits for acknowledgements; returns how many are still missing."""
        missing = int(self._producer.flush(timeout_s))
        if self._is_stuck:
            self.renew()
            missing = self.waiting()
        return missing
