"""Events no job can use, of every kind that turns up in a topic sooner or later."""

from __future__ import annotations

import json
import random
from collections.abc import Callable


def _not_json(rng: random.Random, text: bytes) -> bytes:
    return b"GET /health HTTP/1.1 %d" % rng.randrange(10**6)


def _truncated(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(1, len(text) - 1)]


def _missing_fields(rng: random.Random, text: bytes) -> bytes:
    return b'{"schema_version":%d}' % rng.randrange(1, 9)


def _wrong_type(rng: random.Random, text: bytes) -> bytes:
    """Numbers become lists; strings become null, since JSON readers take any other value for a string."""
    return json.dumps({k: None if isinstance(v, str) else [v] for k, v in json.loads(text).items()}).encode()


def _binary(rng: random.Random, text: bytes) -> bytes:
    return b"\x00\xff\xfe" + rng.randbytes(rng.randrange(8, 64))


def _empty(rng: random.Random, text: bytes) -> bytes:
    return b""


GARBAGE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "not_json": _not_json,
    "truncated": _truncated,
    "missing_fields": _missing_fields,
    "wrong_type": _wrong_type,
    "binary": _binary,
    "empty": _empty,
}


def spoil(rng: random.Random, text: bytes, number: int) -> bytes:
    """A garbage event in place of `text`; kinds take turns by `number`."""
    makers = list(GARBAGE.values())
    return makers[number % len(makers)](rng, text)
