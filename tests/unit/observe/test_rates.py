"""Rates from offsets and batches: what arrives, what of it gets in, whose the CPU is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from spillway.observe.rates import Arrival, EdgeBatch, arrival, done_rate, flow, split_cpu


def readings(rate: Callable[[float], float], until: float, rng: random.Random, every: float = 5.0) -> list[tuple[float, int]]:
    """End offsets of one partition as an agent reads them: shortly before each full interval, late by up to 80 ms, dated with an
    error of up to 10 ms."""
    found, offset, t = [], 0.0, 0.0
    for tick in range(1, int(until / every) + 1):
        at = tick * every - 0.2 + rng.uniform(0.0, 0.08)
        while t < at:
            step = min(0.05, at - t)
            offset += rate(t) * step
            t += step
        found.append((at + rng.uniform(-0.01, 0.01), int(offset)))
    return found


def errors(rate: Callable[[float], float], windows: int, seed: int = 1) -> list[float]:
    """Relative error per window of 15 s against the true mean rate of the window, over two partitions."""
    rng, until = random.Random(seed), 15.0 * windows
    partitions = {p: readings(lambda t: rate(t) / 2, until, rng) for p in (0, 1)}
    found = []
    for number in range(1, windows):
        start, end = 15.0 * number, 15.0 * (number + 1)
        seen = {p: [r for r in points if r[0] <= end] for p, points in partitions.items()}
        true = statistics.fmean(rate(start + 0.05 * k) for k in range(300))
        estimate = arrival(seen, start, end)
        assert estimate is not None
        found.append(abs(estimate.rate - true) / true)
    return found


def rush(t: float) -> float:
    """Calm, a ramp of 5 s in the middle of a window, four minutes of rush, and back."""
    if t < 307.0:
        return 300.0
    if t < 312.0:
        return 300.0 + 260.0 * (t - 307.0)
    return 1600.0 if t < 552.0 else 300.0


@pytest.mark.parametrize("rate", [lambda t: 1000.0, lambda t: 20.0 + t / 10.0, rush], ids=["steady", "growing", "rush"])
def test_the_arrival_rate_is_as_exact_as_the_thesis_has_it(rate):
    found = errors(rate, 60)
    assert statistics.fmean(found) <= 0.004
    assert statistics.quantiles(found, n=10)[8] <= 0.028


def test_the_window_itself_in_place_of_its_readings_would_not_be():
    """Counts what was read inside the window against its nominal length: off by the time without a reading."""
    points = readings(lambda t: 1000.0, 900.0, random.Random(1))
    off = []
    for number in range(1, 60):
        inside = [o for t, o in points if 15.0 * number < t <= 15.0 * (number + 1)]
        off.append(abs((inside[-1] - inside[0]) / 15.0 - 1000.0) / 1000.0)
    assert statistics.fmean(off) > 0.1


def test_arrival_needs_two_readings_of_every_partition():
    assert arrival({}, 0.0, 15.0) is None
    assert arrival({0: [(1.0, 5), (9.0, 50)], 1: [(1.0, 5)]}, 0.0, 15.0) is None
    assert arrival({0: [(1.0, 5), (16.0, 50)]}, 0.0, 15.0) is None, "nothing after the end is used"


def test_arrival_goes_on_with_old_readings_and_says_how_old_they_are():
    assert arrival({0: [(-20.0, 100), (-10.0, 200)]}, 0.0, 15.0) == Arrival(rate=10.0, newest=-10.0)


def test_a_topic_that_was_made_anew_shrinks():
    found = arrival({0: [(-1.0, 5000), (5.0, 10), (14.0, 20)]}, 0.0, 15.0)
    assert found is not None
    assert found.rate < 0


BASE = EdgeBatch(
    checkpoint=0, batch_id=4, started_at=-2.0, ended_at=-0.5, read=100, kept=100, keep=1.0, lag=0, partitions=2, end_offset=1000,
    latest_offset=1000,
)  # fmt: skip


def batches(keep: float = 1.0, arrive: int = 100, read: int = 100, count: int = 7) -> list[EdgeBatch]:
    """One batch every 2 s: so many offsets arrive between two, and so many are read."""
    return [BASE] + [
        replace(
            BASE, batch_id=4 + n, started_at=-2.0 + 2 * n, ended_at=-0.5 + 2 * n, read=read, kept=int(read * keep), keep=keep,
            end_offset=1000 + read * n, latest_offset=1000 + arrive * n, lag=(arrive - read) * n, decision_id=9,
        )
        for n in range(1, count + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keep", "arrive", "read", "share"),
    [(1.0, 100, 100, 1.0), (0.5, 100, 100, 0.5), (1.0, 200, 100, 0.5), (0.5, 200, 100, 0.25), (1.0, 100, 150, 1.5)],
    ids=["keeps up", "sheds", "falls behind", "sheds and falls behind", "catches up"],
)
def test_share_is_what_gets_in_of_what_arrives(keep, arrive, read, share):
    found = flow(batches(keep, arrive, read), 0.0)
    assert found is not None
    assert found.share == pytest.approx(share)
    assert (found.keep, found.decision_id, found.newest) == (keep, 9, 13.5)
    assert found.lag == (arrive - read) * 7
    assert found.kept_rate == pytest.approx(read * keep / 2)


def test_what_is_in_flight_at_the_ends_of_a_window_distorts_nothing():
    """Batches of very different length, of which the last takes in what all others left: nothing was lost."""
    found, end = [BASE], 1000
    for n, (started, arrived) in enumerate([(1.0, 40), (3.0, 400), (9.0, 60), (9.5, 700)], 1):
        end += arrived
        found.append(
            replace(BASE, batch_id=4 + n, started_at=started, ended_at=started + 0.4, read=arrived, kept=arrived, end_offset=end,
                    latest_offset=end)
        )  # fmt: skip
    assert flow(found, 0.0).share == 1.0


def test_a_query_whose_batches_grow_carries_less_than_it_takes():
    """100 rows arrive every second and every batch takes all that waits, but only 50 of them are done in one."""
    found, end = [replace(BASE, started_at=-2.0, ended_at=0.0)], 1000
    for n, (started, ended, rows) in enumerate([(0.0, 4.0, 200), (4.0, 12.0, 400)], 1):
        end += rows
        found.append(
            replace(BASE, batch_id=4 + n, started_at=started, ended_at=ended, read=rows, kept=rows, end_offset=end,
                    latest_offset=end)
        )  # fmt: skip
    carried = flow(found, 0.0, trigger_s=2.0)
    assert (carried.lag, carried.share, carried.kept_rate) == (0, 0.5, 50.0)


def test_a_query_whose_batches_shrink_catches_up():
    found = [
        replace(BASE, started_at=-8.0, ended_at=0.0),
        replace(BASE, batch_id=5, started_at=0.0, ended_at=4.0, read=800, kept=800, end_offset=1800, latest_offset=1800),
    ]
    assert flow(found, 0.0, trigger_s=2.0).share == 2.0


@pytest.mark.parametrize("trigger_s", [2.0, 3600.0])
def test_how_long_batches_take_within_a_trigger_does_not_matter(trigger_s):
    uneven = [replace(b, ended_at=b.started_at + (0.2 if b.batch_id % 2 else 1.9)) for b in batches()]
    assert flow(uneven, 0.0, trigger_s).share == 1.0


def test_markers_of_transactions_are_no_rows():
    """Half of all offsets are markers: of 50 rows per batch all got in."""
    with_markers = [replace(b, read=50, kept=50) for b in batches()]
    assert flow(with_markers, 0.0).share == 1.0


def test_only_batches_of_the_window_count_and_the_one_before_is_where_they_begin():
    found = flow(batches(), 7.0)
    assert (found.read, found.kept_rate) == (400, 50.0)


def test_without_a_batch_in_the_window_the_last_one_before_is_what_is_known():
    found = flow(batches(keep=0.5), 100.0)
    assert (found.read, found.share, found.newest) == (100, 0.5, 13.5)


def test_a_first_batch_says_nothing_about_rates():
    assert flow([], 0.0) is None
    found = flow([replace(BASE, ended_at=3.0)], 0.0)
    assert (found.share, found.kept_rate, found.read) == (None, None, 100)


def test_another_checkpoint_begins_anew():
    before = [replace(b, checkpoint=0, end_offset=999_999, latest_offset=999_999) for b in batches()]
    anew = [replace(b, checkpoint=1, batch_id=b.batch_id - 4) for b in batches()]
    assert flow(before + anew, 0.0).share == 1.0


def test_offsets_that_were_not_told_give_no_share_but_a_rate():
    found = flow([replace(b, latest_offset=None) for b in batches()], 0.0)
    assert found.share is None
    assert found.kept_rate == 50.0
    grown = [*batches()[:-1], replace(batches()[-1], partitions=4)]
    assert flow(grown, 0.0).share is None, "a topic that got partitions is not comparable"


def test_rows_are_done_while_their_batches_run():
    steady = [(3.0 * n, 3.0 * n + 1.0, 90) for n in range(-2, 5)]
    assert done_rate(steady, 0.0, 15.0, 3.0) == pytest.approx(30.0), "idle between two triggers, as always"
    assert done_rate(steady[:-1], 0.0, 15.0, 3.0) == pytest.approx(30.0), "the last one is still in flight"
    rises = [*steady[:-2], (9.0, 12.0, 400)]
    assert done_rate(rises, 0.0, 15.0, 3.0) == pytest.approx((3 * 90 + 400) / 12)
    slow = [(-6.0, 6.0, 1200), (6.0, 14.0, 800)]
    assert done_rate(slow, 0.0, 15.0, 3.0) == pytest.approx(100.0), "of the first one only what lies within the window"


def test_nothing_done_says_nothing():
    assert done_rate([], 0.0, 15.0, 3.0) is None
    assert done_rate([(-9.0, -8.0, 50)], 0.0, 15.0, 3.0) is None, "it is over"
    assert done_rate([(8.0, 10.0, 60)], 0.0, 15.0, 3.0) == 20.0, "a first batch: nobody was there before"


def test_cpu_is_split_by_the_stages_of_this_executor_else_of_all_else_by_time_else_evenly():
    both = ["union", "light"]
    taken = {("union", "0"): 10.0, ("light", "0"): 30.0, ("union", "1"): 50.0, ("light", "1"): 10.0}
    assert split_cpu(both, "0", taken, {}) == {"union": 0.25, "light": 0.75}
    assert split_cpu(both, "7", taken, {}) == {"union": 0.6, "light": 0.4}
    assert split_cpu(both, "7", {}, {"union": 3.0, "light": 1.0}) == {"union": 0.75, "light": 0.25}
    assert split_cpu(both, "7", {}, {}) == {"union": 0.5, "light": 0.5}
