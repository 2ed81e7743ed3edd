"""What a copy of a checkpoint is played with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.runtime.rehearsal import rehearsed
from spark_jobs.runtime.site import State

RUNNING = State(checkpoint=2, buckets=4, max_rows=5000, reported=238, incarnation=1)


@pytest.mark.parametrize(("rows", "bound"), [(1200, 1200), (7, 100), (0, 5000)])
def test_a_copy_that_ends_some_batches_ago_has_lost_nothing(rows: int, bound: int) -> None:
    """Of an operator that is idle, what was reported is newer than the copy."""
    played = rehearsed(RUNNING, rows, 100)
    assert (played.reported, played.max_rows) == (None, bound)
    assert (played.checkpoint, played.buckets, played.incarnation) == (2, 4, 1)


@pytest.mark.parametrize(
    ("max_rows", "rows", "bound"), [(5000, 4800, 1250), (5000, 900, 900), (200, 190, 100), (None, 4800, 4800)]
)
def test_a_copy_of_a_busy_operator_is_played_with_less_than_it_manages(max_rows: int | None, rows: int, bound: int) -> None:
    assert rehearsed(replace(RUNNING, max_rows=max_rows), rows, 100, 0.25).max_rows == bound
