"""Events: the same seed gives the same bytes, in the shape their pipelines read."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest
from spillway.inject.events import KINDS, EventError, Pool
from spillway.inject.garbage import GARBAGE
from spillway.model.campaigns import campaign_of_ad

NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC
DIGESTS = {
    "yellow": "895567ee351ad9a9",
    "green": "acf57b24eb9b99cf",
    "points": "10ccc04487f76f37",
    "sentences": "c186357c252de0a6",
    "ads": "6db636e075f24d97",
}


def values(pool: Pool, count: int, start: int = 0, now_ms: int = NOON_MS) -> list[bytes]:
    return [m["value"] for part in pool.take(start, count, now_ms) for m in part]


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes_for_ever(kind: str) -> None:
    pool = Pool(kind, seed=1, size=500, garbage=0.02)
    digest = hashlib.sha256(b"\n".join(values(pool, 1200))).hexdigest()[:16]
    assert digest == DIGESTS[kind]
    assert values(Pool(kind, seed=2, size=500), 500) != values(Pool(kind, seed=1, size=500), 500)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_do_not_depend_on_how_the_stream_is_cut(kind: str) -> None:
    pool = Pool(kind, seed=3, size=70, garbage=0.1)
    whole = values(pool, 300)
    pieces = [v for start in range(0, 300, 7) for v in values(pool, min(7, 300 - start), start)]
    assert pieces == whole


def test_no_list_holds_an_entry_twice() -> None:
    parts = Pool("points", seed=1, size=10).take(7, 25, NOON_MS)
    assert [len(p) for p in parts] == [3, 10, 10, 2]
    assert all(len({id(m) for m in part}) == len(part) for part in parts)


def test_trips_have_the_fields_of_the_tlc_data_and_the_time_of_play() -> None:
    pools = {"tpep": Pool("yellow", seed=5, size=200), "lpep": Pool("green", seed=5, size=200)}
    for prefix, pool in pools.items():
        for text in values(pool, 200):
            trip = json.loads(text)
            assert trip[f"{prefix}_dropoff_datetime"] == "2026-01-01 12:00:00"
            assert trip[f"{prefix}_pickup_datetime"] < trip[f"{prefix}_dropoff_datetime"]
            assert 1 <= trip["PULocationID"] <= 263
            assert 1 <= trip["DOLocationID"] <= 263
            extras = ("extra", "mta_tax", "tip_amount", "tolls_amount", "improvement_surcharge", "congestion_surcharge")
            assert trip["total_amount"] == pytest.approx(trip["fare_amount"] + sum(trip[e] for e in extras), abs=0.01)


def test_ad_events_belong_to_campaigns_and_carry_the_time_of_play() -> None:
    campaigns = campaign_of_ad(9, 5, 4)
    events = [
        json.loads(v)
        for v in values(Pool("ads", seed=1, size=3000, options={"seed": 9, "campaigns": 5, "ads_per_campaign": 4}), 3000)
    ]
    assert {e["ad_id"] for e in events} == set(campaigns)
    assert {e["event_time"] for e in events} == {NOON_MS}
    kinds = Counter(e["event_type"] for e in events)
    assert all(900 < kinds[k] < 1100 for k in ("view", "click", "purchase"))


def test_words_follow_zipf_and_skew_zero_is_uniform() -> None:
    def counts(skew: float) -> list[int]:
        pool = Pool("sentences", seed=1, size=5000, options={"vocabulary": 100, "skew": skew, "words": 10})
        words = Counter(w for v in values(pool, 5000) for w in json.loads(v)["text"].split())
        return [words[f"w{n}"] for n in range(100)]

    zipf, even = counts(1.0), counts(0)
    assert zipf[0] / zipf[9] == pytest.approx(10, rel=0.15)
    assert max(even) / min(even) < 1.4


def test_keys_are_the_named_field() -> None:
    for part in Pool("yellow", seed=1, size=50, key="PULocationID").take(0, 50, NOON_MS):
        assert all(m["key"].decode() == str(json.loads(m["value"])["PULocationID"]) for m in part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.25, 1.0])
def test_garbage_has_the_asked_share_and_every_kind(kind: str, share: float) -> None:
    pool = Pool(kind, seed=1, size=3000, garbage=share)
    clean = values(Pool(kind, seed=1, size=3000), 3000)
    spoiled = [v for v, c in zip(values(pool, 3000), clean, strict=True) if v != c]
    assert len(spoiled) == round(share * 3000) == pool.garbage_between(0, 3000)
    assert not any(placeholder in v for v in spoiled for placeholder in (b"@start", b"@end", b"70707070"))
    if share >= 0.25:
        assert b"" in spoiled
        assert any(v.startswith(b"\x00\xff\xfe") for v in spoiled)
        assert any(v.startswith(b"GET ") for v in spoiled)


def test_garbage_is_counted_over_the_rounds_of_a_pool() -> None:
    pool = Pool("points", seed=1, size=100, garbage=0.1)
    assert pool.garbage_between(0, 1000) == 100
    assert sum(pool.garbage_between(n, 1) for n in range(30, 260)) == pool.garbage_between(30, 230)


def test_garbage_kinds_are_all_unreadable_or_incomplete() -> None:
    import random

    text = b'{"x":0.5,"y":0.25,"z":1.0,"name":"abc"}'
    for name, make in GARBAGE.items():
        for seed in range(200):
            spoiled = make(random.Random(seed), text)
            try:
                event = json.loads(spoiled)
            except ValueError:
                continue
            assert not all(isinstance(event.get(k), float) for k in "xyz"), name


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"kind": "yelow"}, "events: 'yelow' is not a kind of event; allowed: yellow, green, points, sentences, ads"),
        (
            {"kind": "points", "key": "x"},
            "key: 'x' is not a key of points events; allowed: no key, these events have no field to key by",
        ),
        ({"kind": "ads", "key": "ip"}, "key: 'ip' is not a key of ads events; allowed: ad_id, user_id"),
        (
            {"kind": "ads", "options": {"campains": 3}},
            "options.campains: unknown option of ads events; allowed: seed, campaigns, ads_per_campaign",
        ),
        ({"kind": "ads", "options": {"campaigns": 0}}, "options.campaigns: 0 cannot be used; allowed: a whole number from 1 up"),
        (
            {"kind": "sentences", "options": {"words": 2.5}},
            "options.words: 2.5 cannot be used; allowed: a whole number from 1 up",
        ),
        ({"kind": "sentences", "options": {"skew": True}}, "options.skew: True cannot be used; allowed: a number from 0 up"),
        ({"kind": "points", "size": 0}, "pool: 0 is too small; allowed: 1 or more"),
        ({"kind": "points", "garbage": 1.5}, "garbage: 1.5 is not a share; allowed: 0 to 1"),
        (
            {"kind": "points", "garbage": 0.001, "size": 100},
            "garbage: 0.001 is less than one event of a pool of 100; allowed: 0, or 0.01 and more",
        ),
    ],
)
def test_an_impossible_wish_is_explained(wish: dict, sentence: str) -> None:
    with pytest.raises(EventError) as caught:
        Pool(seed=1, **wish)
    assert str(caught.value) == sentence
