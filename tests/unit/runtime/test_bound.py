"""The bound of a batch follows what the operator can do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from random import Random

import pytest

from spark_jobs.runtime.bound import BoundFollower, BoundPolicy, Limits, next_bound, split

POLICY = BoundPolicy(target_s=4.0)


@pytest.mark.parametrize(("fixed_s", "per_row_s"), [(0.3, 0.00001), (0.3, 0.001), (1.5, 0.0005), (0.1, 0.02)])
@pytest.mark.parametrize("first", [500, 10_000, 2_000_000])
def test_under_backlog_full_batches_settle_near_the_target(fixed_s: float, per_row_s: float, first: int) -> None:
    follower = BoundFollower(first, POLICY, cold_batches=0)
    for _ in range(40):
        took = fixed_s + per_row_s * follower.bound
        follower.batch(follower.bound, took, cut=True)
    assert 0.4 * POLICY.target_s <= fixed_s + per_row_s * follower.bound <= 1.6 * POLICY.target_s or follower.bound in (
        POLICY.floor,
        POLICY.ceiling,
    )


def test_cold_batches_teach_nothing() -> None:
    follower = BoundFollower(10_000, POLICY, cold_batches=2)
    follower.batch(200, 25.0, cut=False)
    follower.batch(10_000, 30.0, cut=True)
    assert follower.bound == 10_000
    assert follower.batch(10_000, 30.0, cut=True) < 10_000


@pytest.mark.parametrize("fixed_s", [6.5, 8.0, 30.0])
@pytest.mark.parametrize("per_row_s", [0.00001, 0.0001])
@pytest.mark.parametrize("first", [10, 12, 13, 40, 500, 10_000, 40_000])
def test_a_bound_is_not_made_ever_smaller_where_that_is_no_help(fixed_s: float, per_row_s: float, first: int) -> None:
    """Where rows are not what takes the time, fewer of them only make the lag grow. A run before may have left a small one."""
    follower = BoundFollower(first, POLICY, cold_batches=0, restored=True)
    bounds = [follower.batch(follower.bound, fixed_s + per_row_s * follower.bound, cut=True) for _ in range(400)]
    assert max(bounds) <= max(first, POLICY.start)
    assert sum(bounds[200:]) > 0.8 * 200 * POLICY.start, "that it is no help is tried now and then"
    for _ in range(12):
        follower.batch(follower.bound, 0.3 + per_row_s * follower.bound, cut=True)
    assert 1.5 <= 0.3 + per_row_s * follower.bound <= 6.0, "as soon as it can"


@pytest.mark.parametrize("first", [10, 13, 40, 500])
def test_rows_that_take_all_the_time_are_not_more_for_that(first: int) -> None:
    """At the floor it is not known what takes the time: twice as many are tried, once in a while."""
    follower = BoundFollower(first, POLICY, cold_batches=0, restored=True)
    bounds = [follower.batch(follower.bound, 0.3 + 1.0 * follower.bound, cut=True) for _ in range(100)][10:]
    assert max(bounds) <= 2 * POLICY.floor and sum(b > POLICY.floor for b in bounds) <= 0.3 * len(bounds)


def test_what_an_outage_took_is_not_taken_for_what_batches_cost() -> None:
    follower = BoundFollower(4_000, POLICY, cold_batches=0)
    for _ in range(5):
        follower.batch(follower.bound, 35.0, cut=True)
    assert follower.bound == 4_000
    for _ in range(6):
        follower.batch(follower.bound, 0.3 + 0.001 * follower.bound, cut=True)
    assert 1.6 <= 0.3 + 0.001 * follower.bound <= 6.4


def linear(bounds: BoundFollower, per_row_s: float, times: int, noise: Iterator[float] = repeat(1.0)) -> list[float]:  # noqa: B008
    """Full batches of rows that each cost the same, and how long they took."""
    took = []
    for _ in range(times):
        took.append((0.3 + per_row_s * bounds.bound) * next(noise))
        bounds.batch(bounds.bound, took[-1], cut=True)
    return took


def test_rows_that_become_dear_make_the_bound_smaller_at_once() -> None:
    follower = BoundFollower(4_000, POLICY, cold_batches=0)
    linear(follower, 0.001, 10)
    took = linear(follower, 0.004, 10)
    assert took[0] > 12.0 and max(took[2:]) < 6.0
    assert max(linear(follower, 0.016, 10)[3:]) < 6.0


def test_keeping_more_makes_no_batch_longer_than_one_that_is_too_slow() -> None:
    follower = BoundFollower(30_000, POLICY, cold_batches=0)
    follower.kept(0.3)
    assert max(linear(follower, 0.0003, 20)[3:]) < 6.0
    for keep in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        follower.kept(keep)
        assert max(linear(follower, 0.001 * keep, 3)) < 6.5


@pytest.mark.parametrize(("spread", "most_s"), [(0.2, 12.0), (0.3, 16.0)])
def test_by_chance_the_bound_does_not_run_away(spread: float, most_s: float) -> None:
    random = Random(3)
    for _ in range(20):
        follower = BoundFollower(4_000, POLICY, cold_batches=0)
        noise = (max(0.2, random.gauss(1.0, spread)) for _ in range(10_000))
        linear(follower, 0.001, 300, noise)
        assert 0.3 + 0.001 * follower.bound < most_s


def test_a_slow_moment_without_backlog_does_not_choke_the_operator() -> None:
    assert next_bound(10_000, 50, 5.0, 0.3, POLICY, cut=False) == 10_000, "five seconds is late, but not half as late again"
    assert next_bound(10_000, 0, 5.0, 0.3, POLICY, cut=False) == 10_000
    assert POLICY.floor <= next_bound(10_000, 50, 50.0, 0.3, POLICY, cut=False) < 10_000


def test_a_bound_that_an_outage_made_small_grows_again_though_no_batch_is_quite_full() -> None:
    """Spark splits a bound over the partitions and rounds down, so that a small one is never used up."""
    follower = BoundFollower(10_000, POLICY, cold_batches=0)
    for _ in range(5):
        follower.batch(150, 40.0, cut=False)
    assert follower.bound < 100
    for _ in range(12):
        follower.batch(int(0.6 * follower.bound), 0.4, cut=True)
    assert follower.bound >= 10_000


def test_the_split_follows_the_lag_and_starves_nobody() -> None:
    assert split(1000, {"a": 0, "b": 0}) == {"a": 1000, "b": 1000}, "no backlog: nothing to share out"
    shares = split(1000, {"a": 1_000_000, "b": 0, "c": 0})
    assert shares["a"] == 1000 and shares["b"] == shares["c"] == 166
    assert split(1000, {}) == {}


def test_a_bound_that_was_learned_while_little_was_kept_is_not_for_keeping_all() -> None:
    follower = learned(8_000, 0.3)
    assert follower.kept(1.0) == 2_400
    assert follower.kept(1.0) == 2_400
    assert follower.kept(0.6) == 4_000, "as it was learned at 0.3, not as it was scaled to 1"
    assert learned(8_000, 0.0).kept(1.0) == 2_000, "not by more than a slow batch would shrink it"


def learned(bound: int, keep: float) -> BoundFollower:
    """A full batch that took as long as it should has confirmed the bound at that keep."""
    follower = BoundFollower(bound, POLICY, cold_batches=0)
    assert follower.kept(keep) == bound, "keeping less makes no batch longer"
    assert follower.batch(bound, POLICY.target_s, cut=True) == bound
    return follower


def test_a_keep_that_falls_and_rises_does_not_wear_the_bound_down() -> None:
    follower = BoundFollower(10_000, POLICY, cold_batches=0)
    for _ in range(10):
        for keep in (0.5, 1.0):
            follower.kept(keep)
            assert follower.batch(300, 0.5, cut=False) == 10_000, "such a batch teaches nothing"
    low = learned(8_000, 0.5)
    assert [low.kept(keep) for keep in (1.0, 0.5) * 10] == [4_000, 8_000] * 10


@pytest.mark.parametrize("rows, busy_s, cut", [(8_000, 40.0, True), (150, 40.0, False), (8_000, 1.0, True)])
def test_a_bound_belongs_to_the_keep_at_which_a_batch_changed_it(rows: int, busy_s: float, cut: bool) -> None:
    follower = BoundFollower(8_000, POLICY, cold_batches=0)
    follower.kept(0.5)
    changed = follower.batch(rows, busy_s, cut=cut)
    assert changed != 8_000
    assert follower.kept(1.0) == changed // 2


def test_a_bound_of_an_earlier_run_was_learned_at_the_keep_that_is_still_in_force() -> None:
    follower = BoundFollower(8_000, POLICY, restored=True)
    follower.kept(0.65)
    assert follower.kept(0.3) == 8_000, "edges are told of one by one, before the first batch"
    follower.batch(300, 0.5, cut=False)
    assert follower.kept(0.6) == 4_000


class Query:
    """Takes limits, unless it has not begun."""

    def __init__(self, begun: bool = True) -> None:
        self.begun, self.limits = begun, {"a": -1}

    def set(self, limits: dict[str, int]) -> bool:
        if self.begun:
            self.limits = limits
        return self.begun


def limits(query: Query, keep: float, first: int = 8_000) -> Limits:
    """Of a query whose bound was learned at that keep."""
    found = Limits(learned(first, keep), ["a"])
    found.attach(query)
    return found


def test_more_is_kept_of_smaller_batches() -> None:
    query = Query()
    found = limits(query, 0.3)
    found.keep("a", 0.3)
    assert (query.limits, found.max_rows) == ({"a": -1}, 8_000), "nothing to say"
    found.keep("a", 1.0)
    assert (query.limits, found.max_rows) == ({"a": 2_400}, 2_400)


def test_what_is_held_admits_nothing_whatever_comes() -> None:
    query = Query()
    found = limits(query, 0.3)
    assert found.hold()
    found.keep("a", 1.0)
    found.batch(8_000, 40.0, {"a": 500})
    assert query.limits == {"a": 0}
    assert found.hold(), "it may be asked again"
    found.attach(again := Query())
    found.batch(500, 40.0, {"a": 500})
    assert again.limits["a"] > 0, "a query that was started again is not held"


def test_a_limit_that_was_not_taken_is_not_in_force() -> None:
    query = Query(begun=False)
    found = limits(query, 0.5)
    found.keep("a", 1.0)
    assert found.max_rows == 8_000
    query.begun = True
    found.batch(0, 0.0, {"a": 0})
    assert (query.limits, found.max_rows) == ({"a": 4_000}, 4_000)
    assert not Limits(BoundFollower(10, POLICY), ["a"]).hold(), "there is no query"


def test_a_query_that_was_admitted_otherwise_is_given_the_bound() -> None:
    told: list[dict[str, int]] = []

    class Admission:
        ready = True

        def set(self, limits: dict[str, int]) -> bool:
            told.append(limits)
            return True

    limits = Limits(BoundFollower(1_000, POLICY), ["a", "b"])
    assert not limits.open(), "there is no query"
    limits.attach(Admission(), held=True)
    assert limits.open() and not limits.held
    assert told == [{"a": 1_000, "b": 1_000}]
