"""The demo's comparison by source event finds what a comparison of counts would not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from spillway.demo.lineage import Compared, compare, edges_before, good_events
from spillway.topology import check_files

TAXI = Path(__file__).resolve().parents[3] / "pipelines" / "taxi.yaml"
START, END = {"y": {0: 10}, "g": {0: 0}}, {"y": {0: 13, 1: 2}, "g": {0: 2}}
GOOD = good_events(["y", "g"], START, END, {"y-0-11", "elsewhere-0-5"})


def test_good_events_are_those_of_the_run_that_are_no_dead_letters() -> None:
    assert sorted(GOOD) == ["g-0-0", "g-0-1", "y-0-10", "y-0-12", "y-1-0", "y-1-1"]


def test_an_output_with_every_event_once_is_right() -> None:
    assert compare(Counter(GOOD), GOOD, shed=False, kept=0) == Compared(written=6, lost=0, doubled=0, strange=0)


@pytest.mark.parametrize("wrong", ["y-0-9", "y-0-13", "y-0-11", "other-0-0"], ids=["before", "after", "garbage", "foreign"])
def test_a_lost_row_and_a_wrong_one_do_not_cancel(wrong: str) -> None:
    seen = Counter([*(GOOD - {"g-0-0"}), wrong])
    assert len(seen) == len(GOOD)
    assert compare(seen, GOOD, shed=False, kept=len(GOOD)) == Compared(written=5, lost=1, doubled=0, strange=1)


def test_a_lost_row_and_a_doubled_one_do_not_cancel() -> None:
    seen = Counter([*(GOOD - {"g-0-0"}), "g-0-1"])
    assert compare(seen, GOOD, shed=False, kept=len(GOOD)) == Compared(written=5, lost=1, doubled=1, strange=0)


def test_what_the_jobs_say_they_kept_does_not_excuse_a_loss_where_everything_was_to_be_kept() -> None:
    assert compare(Counter(GOOD - {"g-0-0"}), GOOD, shed=False, kept=len(GOOD) - 1).lost == 1


@pytest.mark.parametrize(
    ("events", "lost", "strange"),
    [
        (["g-0-0", "y-1-0", "y-1-1"], 0, 0),
        (["g-0-0", "y-1-0"], 1, 0),
        (["g-0-0", "y-1-0", "y-0-9"], 1, 1),
        (["g-0-0", "y-1-0", "y-1-1", "g-0-1"], -1, 0),
    ],
)
def test_after_shedding_the_number_must_fit_and_every_event_be_of_the_run(events: list[str], lost: int, strange: int) -> None:
    found = compare(Counter(events), GOOD, shed=True, kept=3)
    assert (found.lost, found.strange) == (lost, strange)


def test_every_edge_on_the_way_to_a_query_counts_and_no_other() -> None:
    (taxi,) = check_files([TAXI]).pipelines
    assert {e.name for e in edges_before(taxi, "light")} == {"taxi.yellow:union", "taxi.green:union", "union:light"}
    assert {e.name for e in edges_before(taxi, "union")} == {"taxi.yellow:union", "taxi.green:union"}
