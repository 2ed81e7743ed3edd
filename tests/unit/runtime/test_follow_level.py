"""When a query that follows another one is level with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.runtime import follow
from spark_jobs.runtime.control import Effective
from spark_jobs.runtime.follow import WARM, Follower, Unlike
from spark_jobs.runtime.operator import OperatorQuery


class Original:
    """What is followed: one more batch of ten rows whenever it begins one, committed by the time it begins the next."""

    location = "there"

    def __init__(self) -> None:
        self.last, self.took = 0, 60.0

    def last_planned(self) -> int:
        return self.last

    def last_commit(self) -> int:
        return self.last - 1

    def took_s(self, batch: int) -> float | None:
        return self.took

    def offsets(self, batch: int) -> dict[str, dict[int, int]]:
        return {"t": {0: 10 * batch}}


class Actor:
    location, alive, max_rows = "here", True, 1000

    def __init__(self) -> None:
        self.position = (0, {"t": {0: 0}})
        self.edges = (SimpleNamespace(name="a:b"),)
        self.keep = 1.0
        self.outlets = SimpleNamespace(effective=lambda: {"a:b": Effective(keep=self.keep), "c:d": Effective(keep=0.1)})

    sheds = OperatorQuery.sheds

    def collect(self) -> None:
        """Nothing is reported."""


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = Follower.__new__(Follower)
    original, actor = Original(), Actor()
    made.actor, made._original, made._singly, made._times = actor, original, False, follow.TIMES
    made._read, made._done, made._target, made.level = {"t": {0: 0}}, 0, None, False
    made.shed = False
    made._warm, made._slow, made._took, made._ended = False, False, [], 0.0
    made._begun, made._quiet_since = 0.0, follow.time.monotonic()
    monkeypatch.setattr(made, "_read_up_to", lambda end: None)
    return made


def finish(follower: Any) -> None:
    """The batch it reads ends."""
    follower.actor.position = (0, follower._target[1])


def test_it_is_not_level_before_it_has_done_a_few_batches(follower: Any) -> None:
    """The first look finds the newest batch and reads up to it: whoever took over then would wait for a cold batch."""
    for number in range(WARM):
        follower._original.last += 1
        follower.advance()
        assert follower._target is not None and not follower.level, f"batch {number} of a cold query"
        finish(follower)
    follower._original.last += 1
    follower.advance()
    assert follower.level


def test_it_is_not_level_while_it_still_becomes_quicker(follower: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    follower._original.took, now, takes = -1.0, 0.0, 20.0  # whatever it does takes longer than the original
    monkeypatch.setattr(follow.time, "monotonic", lambda: now)
    for _ in range(8):
        follower._original.last += 1
        follower.advance()
        now, takes = now + takes, 0.8 * takes
        finish(follower)
    follower.advance()
    assert not follower.level
    follower._original.took = takes
    follower._original.last += 1
    follower.advance()
    now += takes
    finish(follower)
    follower.advance()
    assert follower.level


def test_it_is_level_all_the_same_where_nothing_comes_for_a_while(follower: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    follower.advance()
    assert not follower.level
    monkeypatch.setattr(follow, "_QUIET_S", -1.0)
    follower.advance()
    assert follower.level


def test_it_is_not_level_while_the_original_has_more_than_it_reads(follower: Any) -> None:
    follower._warm, follower.actor.max_rows, follower._original.last = True, 1, 9
    follower.advance()
    assert not follower.level and follower._times == 2 * follow.TIMES


def test_a_batch_that_runs_is_followed_before_it_is_committed(follower: Any) -> None:
    """Else the pause of a cut-over would hold two batches: the last one repeated, and the first one after it."""
    follower._original.last = 3
    assert follower._original.last_commit() == 2
    assert follower.advance() == 30, "what it has begun and this one has not done"
    assert follower._target == (3, {"t": {0: 30}})
    finish(follower)
    assert follower.advance() == 0


def test_it_does_not_come_to_rest_beyond_what_was_committed(follower: Any) -> None:
    follower._original.last = 3
    follower.advance()
    finish(follower)
    follower.advance()
    with pytest.raises(follow.FollowFailed, match="read further"):
        follower.reach_end()


@pytest.mark.parametrize(("slow", "singly", "rests"), [(True, False, True), (False, False, False), (True, True, False)])
def test_one_that_is_slower_rests_until_it_is_told_and_then_repeats_all_at_once(
    follower: Any, monkeypatch: pytest.MonkeyPatch, slow: bool, singly: bool, rests: bool
) -> None:
    now = 100.0
    monkeypatch.setattr(follow.time, "monotonic", lambda: now)
    follower._warm, follower._slow, follower._singly, follower._took = True, slow, singly, [9.0, 4.0]
    follower._original.last = 1
    follower.advance()
    finish(follower)
    follower.advance(may_rest=True)
    follower._original.last, now = 2, now + 3.9
    assert follower.advance(may_rest=True) == 10
    assert follower.level and (follower._target is None) == rests
    follower._original.last = 3
    follower.advance()
    assert follower._target == ((3, {"t": {0: 30}}) if rests else (2, {"t": {0: 20}}))


def test_one_that_rests_goes_on_after_as_long_as_a_batch_takes(follower: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(follow.time, "monotonic", lambda: now)
    follower._warm = follower._slow = follower.level = True
    follower._took, follower._ended, follower._original.last = [4.0], 100.0, 2
    now = 104.1
    follower.advance(may_rest=True)
    assert follower._target == (2, {"t": {0: 20}})


def test_what_was_repeated_by_another_keep_is_not_gone_on_from(follower: Any) -> None:
    """The original did its batches at keep 1; the keep fell before what follows had repeated the last of them."""
    follower._original.last += 2
    follower.advance()
    finish(follower)
    follower._original.last_commit = lambda: follower._original.last
    follower.reach_end()
    assert not follower.shed, "the keep of another operator's edge says nothing"
    follower._original.last += 1
    follower.actor.keep = 0.4
    follower.advance()
    finish(follower)
    with pytest.raises(Unlike, match="rows were shed while here repeated batches"):
        follower.reach_end()


def test_a_keep_that_falls_while_a_batch_is_repeated_counts_too(follower: Any) -> None:
    follower._original.last += 1
    follower.advance()
    assert not follower.shed
    follower.actor.keep = 0.4
    finish(follower)
    follower.advance()
    assert follower.shed
