"""A transactional Kafka producer that takes whole Arrow columns.

confluent-kafka's `produce_batch` wants one Python dictionary per row, which costs more than the rest of the sink together.
The wheel carries librdkafka as a shared library, whose C function `rd_kafka_produce_batch` takes an array of
(pointer, length) pairs: exactly what an Arrow column is. So the array is filled by numpy and no Python object is made per row.
`rd_kafka_message_t` has been the same since librdkafka 0.9 and is part of its stable ABI.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

MESSAGE = np.dtype(
    {
        "names": ["err", "rkt", "partition", "payload", "len", "key", "key_len", "offset", "opaque"],
        "formats": ["<i4", "<u8", "<i4", "<u8", "<u8", "<u8", "<u8", "<i8", "<u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
ANY_PARTITION = -1
_COPY, _BLOCK = 0x2, 0x4
_PRODUCER = 0
_CONF_OK = 0
_PURGE_ALL = 0x3


class KafkaWriteError(RuntimeError):
    """A call into librdkafka failed. `fenced`: a newer producer with the same transactional id has taken over."""

    def __init__(self, what: str, name: str, text: str, *, fatal: bool = False) -> None:
        super().__init__(f"{what}: {name}: {text}")
        self.name = name
        self.fatal = fatal
        self.fenced = name in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


@functools.cache
def library() -> ctypes.CDLL:
    """librdkafka as confluent-kafka ships it (or SPILLWAY_LIBRDKAFKA), with the signatures used here."""
    import confluent_kafka  # loads the library's own dependencies first

    path = os.environ.get("SPILLWAY_LIBRDKAFKA")
    if not path:
        libs = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
        found = sorted(p for p in libs.glob("librdkafka*") if ".so" in p.name)
        if not found:
            raise RuntimeError(
                "librdkafka is not beside confluent-kafka; install the manylinux wheel or set SPILLWAY_LIBRDKAFKA to the library"
            )
        path = str(found[0])
    lib = ctypes.CDLL(path)
    ptr, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, *args in (
        ("rd_kafka_version", ctypes.c_int),
        ("rd_kafka_conf_new", ptr),
        ("rd_kafka_conf_set", ctypes.c_int, ptr, text, text, text, size),
        ("rd_kafka_conf_destroy", None, ptr),
        ("rd_kafka_new", ptr, ctypes.c_int, ptr, text, size),
        ("rd_kafka_destroy_flags", None, ptr, ctypes.c_int),
        ("rd_kafka_topic_new", ptr, ptr, text, ptr),
        ("rd_kafka_topic_destroy", None, ptr),
        ("rd_kafka_produce_batch", ctypes.c_int, ptr, ctypes.c_int32, ctypes.c_int, ptr, ctypes.c_int),
        ("rd_kafka_poll", ctypes.c_int, ptr, ctypes.c_int),
        ("rd_kafka_purge", ctypes.c_int, ptr, ctypes.c_int),
        ("rd_kafka_init_transactions", ptr, ptr, ctypes.c_int),
        ("rd_kafka_begin_transaction", ptr, ptr),
        ("rd_kafka_commit_transaction", ptr, ptr, ctypes.c_int),
        ("rd_kafka_error_name", text, ptr),
        ("rd_kafka_error_string", text, ptr),
        ("rd_kafka_error_is_fatal", ctypes.c_int, ptr),
        ("rd_kafka_error_destroy", None, ptr),
        ("rd_kafka_fatal_error", ctypes.c_int, ptr, text, size),
        ("rd_kafka_err2name", text, ctypes.c_int),
        ("rd_kafka_err2str", text, ctypes.c_int),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, args
    if lib.rd_kafka_version() < 0x02000000:
        raise RuntimeError(f"librdkafka at {path} is older than 2.0; install the pinned confluent-kafka")
    return lib


def column_pointers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(addresses, lengths) of a binary or string column; a null has address 0.

    >>> addresses, lengths = column_pointers(pa.array([b"ab", None, b""], pa.binary()))
    >>> lengths.tolist(), bool(addresses[1]), bool(addresses[2])
    ([2, 0, 0], False, True)
    """
    kind = column.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        width: np.dtype[np.signedinteger] = np.dtype("<i8")
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        width = np.dtype("<i4")
    else:
        raise TypeError(f"a Kafka key or value must be binary or string, not {kind}")
    n = len(column)
    _, offsets, data = column.buffers()
    if n == 0 or offsets is None:
        return np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    bounds = np.frombuffer(offsets, width, count=n + 1, offset=column.offset * width.itemsize).astype(np.uint64)
    base = np.uint64(data.address if data is not None and data.address else offsets.address)
    addresses, lengths = base + bounds[:-1], bounds[1:] - bounds[:-1]
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        addresses, lengths = np.where(valid, addresses, 0), np.where(valid, lengths, 0)
    return addresses, lengths


class ArrowProducer:
    """One transactional producer: `init`, then (`begin`, `send`…, `commit`) over and over."""

    def __init__(self, conf: Mapping[str, str | int | bool]) -> None:
        self._lib = lib = library()
        self._topics: dict[str, int] = {}
        error = ctypes.create_string_buffer(512)
        handle = lib.rd_kafka_conf_new()
        for key, value in conf.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if lib.rd_kafka_conf_set(handle, key.encode(), text.encode(), error, len(error)) != _CONF_OK:
                lib.rd_kafka_conf_destroy(handle)
                raise KafkaWriteError(f"setting {key}", "_INVALID_ARG", error.value.decode())
        self._rk = lib.rd_kafka_new(_PRODUCER, handle, error, len(error))
        if not self._rk:
            lib.rd_kafka_conf_destroy(handle)
            raise KafkaWriteError("making a producer", "_FAIL", error.value.decode())

    def _check(self, what: str, error: int | None) -> None:
        if error:
            name = self._lib.rd_kafka_error_name(error).decode()
            text = self._lib.rd_kafka_error_string(error).decode()
            fatal = bool(self._lib.rd_kafka_error_is_fatal(error))
            self._lib.rd_kafka_error_destroy(error)
            raise KafkaWriteError(what, name, text, fatal=fatal)

    def init(self, timeout_s: float) -> None:
        """Fences every older producer with the same transactional id and ends what it left open."""
        self._check("initialising transactions", self._lib.rd_kafka_init_transactions(self._rk, int(timeout_s * 1000)))

    def begin(self) -> None:
        self._check("beginning a transaction", self._lib.rd_kafka_begin_transaction(self._rk))

    def commit(self, timeout_s: float) -> None:
        """Flushes and commits; a row that could not be delivered makes this raise."""
        self._check("committing a transaction", self._lib.rd_kafka_commit_transaction(self._rk, int(timeout_s * 1000)))

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            topic = self._lib.rd_kafka_topic_new(self._rk, name.encode(), None)
            if not topic:
                raise KafkaWriteError(f"opening topic {name}", "_INVALID_ARG", "the name is not a topic's")
            self._topics[name] = topic
        return self._topics[name]

    def send(self, topic: str, keys: pa.Array | None, values: pa.Array, partition: int = ANY_PARTITION) -> None:
        """Queues every row; waits while the queue is full. The rows are copied, so the columns may go afterwards."""
        n = len(values)
        if not n:
            return
        messages = np.zeros(n, MESSAGE)
        messages["payload"], messages["len"] = column_pointers(values)
        if keys is not None:
            messages["key"], messages["key_len"] = column_pointers(keys)
        sent = self._lib.rd_kafka_produce_batch(self._topic(topic), partition, _COPY | _BLOCK, messages.ctypes.data, n)
        if sent != n:
            raise self._refused(f"queueing {n - sent} of {n} rows for {topic}", int(messages["err"][messages["err"] != 0][0]))
        self._lib.rd_kafka_poll(self._rk, 0)

    def _refused(self, what: str, code: int) -> KafkaWriteError:
        """With the reason, where it says no more than that the producer has failed for good: rows that were sent before may have
        told it that it is fenced."""
        text = ctypes.create_string_buffer(512)
        fatal = int(self._lib.rd_kafka_fatal_error(self._rk, text, len(text)))
        name = self._lib.rd_kafka_err2name(fatal or code).decode()
        said = text.value.decode() if fatal else self._lib.rd_kafka_err2str(code).decode()
        return KafkaWriteError(what, name, said, fatal=bool(fatal))

    def close(self) -> None:
        """Drops what is queued and the connection, without waiting for a broker that may be gone."""
        if self._rk:
            self._lib.rd_kafka_purge(self._rk, _PURGE_ALL)
            for topic in self._topics.values():
                self._lib.rd_kafka_topic_destroy(topic)
            self._lib.rd_kafka_destroy_flags(self._rk, 0x8)  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
            self._topics, self._rk = {}, None
