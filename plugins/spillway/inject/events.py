"""Seeded events, serialised ahead so that playing them costs almost nothing.

A pool holds the events of one topic; event `n` of the stream is entry `n` modulo the pool's size. Events that carry a time get
it when they are played. The same kind, seed, options and times give the same bytes.
"""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from spillway.inject.garbage import spoil
from spillway.model.campaigns import campaign_of_ad

Message = dict[str, bytes]
"""What `Producer.produce_batch` takes: `value`, and `key` where the topic is keyed."""

ZONES = 263
SENTINEL_END = "@end@"
SENTINEL_START = "@start@"
SENTINEL_MILLIS = 7_070_707_070_707


class EventError(ValueError):
    """Events that cannot be made: which field of the wish is wrong, and what is allowed."""

    def __init__(self, field: str, message: str, allowed: str) -> None:
        super().__init__(f"{field}: {message}; allowed: {allowed}")
        self.field, self.message, self.allowed = field, message, allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How the events of one kind are made."""

    make: Callable[[random.Random, Mapping[str, Any], int], list[dict[str, Any]]]
    options: Mapping[str, Any]
    """Options with their defaults."""
    keys: tuple[str, ...]
    """Fields a topic may be keyed by."""
    timed: str = ""
    """`trip`: start and end as local date-times; `millis`: one epoch time; empty: no time inside."""


class Pool:
    """The events of one topic, ready to be sent."""

    def __init__(
        self,
        kind: str,
        *,
        seed: int | str,
        size: int = 20_000,
        key: str | None = None,
        garbage: float = 0.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        spec = check(kind, key=key, options=options or {}, size=size, garbage=garbage)
        rng = random.Random(f"{kind}-{seed}")
        records = spec.make(rng, {**spec.options, **(options or {})}, size)
        keys = [None if key is None else str(record[key]).encode() for record in records]
        texts = [json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() for record in records]
        self.size = size
        self._timed = spec.timed
        self._spoiled = _spoiled(random.Random(f"garbage-{kind}-{seed}"), texts, garbage)
        self._spoiled_at = sorted(self._spoiled)
        self._keys = keys
        if spec.timed == "trip":
            self._trips = [_split_trip(text) for text in texts]
            self._clock = _DateTimes()
        elif spec.timed == "millis":
            self._halves = [tuple(text.split(str(SENTINEL_MILLIS).encode(), 1)) for text in texts]
        else:
            for at, value in self._spoiled.items():
                texts[at] = value
            self._ready = [_message(k, v) for k, v in zip(keys, texts, strict=True)]

    def take(self, start: int, count: int, now_ms: int) -> list[list[Message]]:
        """Events `start` … `start + count - 1` as of `now_ms`, in lists that hold no entry twice."""
        lists = []
        while count > 0:
            lo = start % self.size
            n = min(count, self.size - lo)
            lists.append(self._slice(lo, lo + n, now_ms))
            start += n
            count -= n
        return lists

    def garbage_between(self, start: int, count: int) -> int:
        """How many of the events `start` … `start + count - 1` are garbage."""

        def before(n: int) -> int:
            rounds, rest = divmod(n, self.size)
            return rounds * len(self._spoiled_at) + bisect_left(self._spoiled_at, rest)

        return before(start + count) - before(start)

    def _slice(self, lo: int, hi: int, now_ms: int) -> list[Message]:
        if not self._timed:
            return self._ready[lo:hi]
        if self._timed == "millis":
            now = b"%d" % now_ms
            values = [a + now + b for a, b in self._halves[lo:hi]]
        else:
            at, now_s = self._clock, now_ms // 1000
            end = at[now_s]
            values = [a + at[now_s - d] + b + end + c for a, b, c, d in self._trips[lo:hi]]
        for n in self._spoiled_at[bisect_left(self._spoiled_at, lo) : bisect_left(self._spoiled_at, hi)]:
            values[n - lo] = self._spoiled[n]
        keys = self._keys
        if keys[0] is None:
            return [{"value": v} for v in values]
        return [{"key": k, "value": v} for k, v in zip(keys[lo:hi], values, strict=True)]  # type: ignore[dict-item]


def check(kind: str, *, key: str | None, options: Mapping[str, Any], size: int, garbage: float) -> Kind:
    """The kind, or an `EventError` that says which part of the wish cannot be met."""
    spec = KINDS.get(kind)
    if spec is None:
        raise EventError("events", f"{kind!r} is not a kind of event", ", ".join(KINDS))
    if key is not None and key not in spec.keys:
        allowed = ", ".join(spec.keys) if spec.keys else "no key, these events have no field to key by"
        raise EventError("key", f"{key!r} is not a key of {kind} events", allowed)
    for name, value in options.items():
        if name not in spec.options:
            known = ", ".join(spec.options) if spec.options else "none for this kind"
            raise EventError(f"options.{name}", f"unknown option of {kind} events", known)
        default, least = spec.options[name], 0 if name in ("seed", "skew") else 1
        is_number = isinstance(value, int | float if isinstance(default, float) else int) and not isinstance(value, bool)
        if not is_number or value < least:
            number = "a number" if isinstance(default, float) else "a whole number"
            raise EventError(f"options.{name}", f"{value!r} cannot be used", f"{number} from {least} up")
    if size < 1:
        raise EventError("pool", f"{size} is too small", "1 or more")
    if not 0.0 <= garbage <= 1.0:
        raise EventError("garbage", f"{garbage} is not a share", "0 to 1")
    if 0.0 < garbage * size < 1.0:
        raise EventError("garbage", f"{garbage} is less than one event of a pool of {size}", f"0, or {1 / size:g} and more")
    return spec


def _message(key: bytes | None, value: bytes) -> Message:
    return {"value": value} if key is None else {"key": key, "value": value}


def _spoiled(rng: random.Random, texts: list[bytes], share: float) -> dict[int, bytes]:
    chosen = rng.sample(range(len(texts)), round(share * len(texts)))
    return {at: spoil(rng, _with_fixed_times(texts[at]), number) for number, at in enumerate(chosen)}


def _with_fixed_times(text: bytes) -> bytes:
    text = text.replace(SENTINEL_START.encode(), b"2024-01-01 08:00:00").replace(b"%d" % SENTINEL_MILLIS, b"1704096000000")
    return re.sub(SENTINEL_END.encode() + rb"\d+@", b"2024-01-01 08:30:00", text)


def _split_trip(text: bytes) -> tuple[bytes, bytes, bytes, int]:
    """The text around its two times, and the seconds between them."""
    head, rest = text.split(SENTINEL_START.encode(), 1)
    middle, tail = rest.split(SENTINEL_END.encode(), 1)
    seconds, tail = tail.split(b"@", 1)
    return head, middle, tail, int(seconds)


class _DateTimes(dict[int, bytes]):
    """Seconds since the epoch as the TLC data write them; forgets when it has grown over a day."""

    def __missing__(self, second: int) -> bytes:
        if len(self) > 86_400:
            self.clear()
        text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S").encode()
        self[second] = text
        return text


def _trips(rng: random.Random, options: Mapping[str, Any], size: int, prefix: str) -> list[dict[str, Any]]:
    """Trip records with the fields of the NYC TLC data; zones are popular by Zipf's law."""
    zones = list(range(1, ZONES + 1))
    rng.shuffle(zones)
    weights = list(accumulate(1 / (rank + 1) ** options["skew"] for rank in range(ZONES)))
    starts = rng.choices(zones, cum_weights=weights, k=size)
    ends = rng.choices(zones, cum_weights=weights, k=size)
    green = prefix == "lpep"
    records = []
    for start, end in zip(starts, ends, strict=True):
        miles = round(min(60.0, rng.lognormvariate(0.75, 0.8)), 2)
        seconds = int(60 + miles * 3600 / rng.uniform(7.0, 22.0))
        fare = round(3.0 + 1.75 * miles + 0.5 * seconds / 60, 2)
        extra = rng.choice((0.0, 0.5, 1.0, 2.5))
        paid_by_card = rng.random() < 0.72
        tip = round(fare * rng.uniform(0.1, 0.3), 2) if paid_by_card else 0.0
        tolls = 6.94 if rng.random() < 0.05 else 0.0
        congestion = 0.0 if green else 2.5
        record: dict[str, Any] = {
            "VendorID": rng.choice((1, 2)),
            f"{prefix}_pickup_datetime": SENTINEL_START,
            f"{prefix}_dropoff_datetime": f"{SENTINEL_END}{seconds}@",
            "store_and_fwd_flag": "Y" if rng.random() < 0.01 else "N",
            "RatecodeID": 1 if rng.random() < 0.95 else rng.randint(2, 5),
            "PULocationID": start,
            "DOLocationID": end,
            "passenger_count": rng.choices((1, 2, 3, 4, 5, 6), (72, 14, 5, 3, 3, 3))[0],
            "trip_distance": miles,
            "fare_amount": fare,
            "extra": extra,
            "mta_tax": 0.5,
            "tip_amount": tip,
            "tolls_amount": tolls,
            "improvement_surcharge": 1.0,
            "total_amount": round(fare + extra + 0.5 + tip + tolls + 1.0 + congestion, 2),
            "payment_type": 1 if paid_by_card else 2,
            "congestion_surcharge": congestion,
        }
        record.update({"trip_type": 1 if rng.random() < 0.97 else 2} if green else {"airport_fee": 0.0})
        records.append(record)
    return records


def _points(rng: random.Random, options: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    return [{"x": round(rng.random(), 6), "y": round(rng.random(), 6), "z": round(rng.random(), 6)} for _ in range(size)]


def _sentences(rng: random.Random, options: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """`words` words each; the word of rank r has weight r^-skew, so `skew: 0` draws all words alike."""
    vocabulary = [f"w{n}" for n in range(options["vocabulary"])]
    weights = list(accumulate((rank + 1) ** -float(options["skew"]) for rank in range(len(vocabulary))))
    words = options["words"]
    drawn = rng.choices(vocabulary, cum_weights=weights, k=words * size)
    return [{"text": " ".join(drawn[n : n + words])} for n in range(0, words * size, words)]


def _ads(rng: random.Random, options: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """The seven fields of the Yahoo streaming benchmark; a third of the events are views."""
    ads = sorted(campaign_of_ad(options["seed"], options["campaigns"], options["ads_per_campaign"]))
    return [
        {
            "user_id": f"{rng.getrandbits(64):016x}",
            "page_id": f"{rng.getrandbits(64):016x}",
            "ad_id": rng.choice(ads),
            "ad_type": rng.choice(("banner", "modal", "sponsored-search", "mail", "mobile")),
            "event_type": rng.choice(("view", "click", "purchase")),
            "event_time": SENTINEL_MILLIS,
            "ip_address": f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        }
        for _ in range(size)
    ]


KINDS: Mapping[str, Kind] = {
    "yellow": Kind(
        make=lambda rng, options, size: _trips(rng, options, size, "tpep"),
        options={"skew": 0.7},
        keys=("PULocationID", "DOLocationID"),
        timed="trip",
    ),
    "green": Kind(
        make=lambda rng, options, size: _trips(rng, options, size, "lpep"),
        options={"skew": 0.7},
        keys=("PULocationID", "DOLocationID"),
        timed="trip",
    ),
    "points": Kind(make=_points, options={}, keys=()),
    "sentences": Kind(make=_sentences, options={"vocabulary": 5000, "skew": 1.1, "words": 8}, keys=()),
    "ads": Kind(
        make=_ads,
        options={"seed": 1, "campaigns": 100, "ads_per_campaign": 10},
        keys=("ad_id", "user_id"),
        timed="millis",
    ),
}
