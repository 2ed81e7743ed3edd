"""What a replay says to whoever waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from spillway.cli.guard import BadInput
from spillway.cli.quality import Progress, moment, stored_from
from spillway.model.window import Interval

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_long_replay_says_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = Progress(40, every_s=5.0, clock=lambda: now[0])
    for n in range(40):
        now[0] += 0.5
        start = NOON + timedelta(seconds=15 * n)
        progress(Interval(start=start, end=start + timedelta(seconds=15)))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[:2] == [
        "10 of 40 windows, up to 2026-05-01 12:02:30Z",
        "20 of 40 windows, up to 2026-05-01 12:05:00Z",
    ]


def test_a_replay_begins_with_the_window_of_the_oldest_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    end, oldest = NOON + timedelta(hours=1), NOON + timedelta(seconds=4)
    assert stored_from(NOON, end, oldest, 15.0) == NOON
    assert capsys.readouterr().err == ""
    assert stored_from(NOON - timedelta(days=999), end, oldest, 15.0) == NOON
    assert capsys.readouterr().err == "nothing is stored from before 2026-05-01 12:00:00Z: the replay begins there\n"
    oldest = end - timedelta(seconds=14)
    for found, words in ((None, "nothing was measured yet"), (oldest, "the oldest measurement is of 2026-05-01 12:59:46Z")):
        with pytest.raises(BadInput, match=f"^there is nothing to replay between 2026-05-01 12:00:00Z and .*Z: {words}\\.$"):
            stored_from(NOON, end - timedelta(seconds=1), found, 15.0)


@pytest.mark.parametrize("text", ["99999999999h", "9" * 400 + "h", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "0s"])
def test_what_is_no_moment_is_explained(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--from .* is no moment: give 2026-05-01T12:00 \(UTC\), or how long ago, such as 60m"):
        moment("--from", text, NOON)


def test_a_moment_of_another_zone_is_the_same_moment() -> None:
    assert moment("--from", "2026-05-01T14:00+02:00", NOON).isoformat() == "2026-05-01T12:00:00+00:00"
