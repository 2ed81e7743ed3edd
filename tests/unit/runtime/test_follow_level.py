"""When a query that follows another one is level with it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.runtime import follow
from spark_jobs.runtime.follow import WARM, Follower


class Original:
    """What is followed: one more batch of ten rows whenever it commits."""

    def __init__(self) -> None:
        self.last = 0

    def last_commit(self) -> int:
        return self.last

    def offsets(self, batch: int) -> dict[str, dict[int, int]]:
        return {"t": {0: 10 * batch}}


class Actor:
    location, alive, max_rows = "here", True, 1000

    def __init__(self) -> None:
        self.position = (0, {"t": {0: 0}})

    def collect(self) -> None:
        """Nothing is reported."""


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = Follower.__new__(Follower)
    original, actor = Original(), Actor()
    made.actor, made._original, made._singly, made._times = actor, original, False, follow.TIMES
    made._read, made._done, made._target, made._finished, made.level = {"t": {0: 0}}, 0, None, 0, False
    made._quiet_since = follow.time.monotonic()
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


def test_it_is_level_all_the_same_where_nothing_comes_for_a_while(follower: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    follower.advance()
    assert not follower.level
    monkeypatch.setattr(follow, "_QUIET_S", -1.0)
    follower.advance()
    assert follower.level


def test_it_is_not_level_while_the_original_has_more_than_it_reads(follower: Any) -> None:
    follower._finished, follower.actor.max_rows, follower._original.last = WARM, 1, 9
    follower.advance()
    assert not follower.level and follower._times == 2 * follow.TIMES
