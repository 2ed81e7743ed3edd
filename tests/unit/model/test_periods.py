"""Periods in which nothing may be changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from spillway.model import periods

SUNDAY = datetime(2031, 5, 4, tzinfo=UTC)


def covered(text: str, **later: float) -> bool:
    return any(period.covers(SUNDAY + timedelta(**later)) for period in periods.parse(text))


@pytest.mark.parametrize(
    ("text", "hours", "inside"),
    [
        ("09:00-11:00", 9, True),
        ("09:00-11:00", 10.99, True),
        ("09:00-11:00", 11, False),
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5.99, True),
        ("22:00-06:00", 6, False),
        ("00:00-24:00", 23.99, True),
        ("sun 00:00-24:00", 0, True),
        ("sun 00:00-24:00", 24, False),
        ("sat-mon 08:00-09:00", 8.5, True),
        ("sat-mon 08:00-09:00", 8.5 + 24, True),
        ("sat-mon 08:00-09:00", 8.5 + 48, False),
        ("SAT 22:00-06:00", 3, True),
        ("sun 22:00-06:00", 3, False),
        ("sun 22:00-06:00", 24 + 3, True),
        ("01:00-02:00, 03:00-04:00", 3.5, True),
        ("01:00-02:00, 03:00-04:00", 2.5, False),
        ("", 3.5, False),
    ],
)
def test_what_is_covered(text: str, hours: float, inside: bool) -> None:
    assert covered(text, hours=hours) is inside


def test_it_is_utc_whatever_the_clock_says() -> None:
    (period,) = periods.parse("09:00-10:00")
    assert period.covers(datetime(2031, 5, 4, 11, 30, tzinfo=timezone(timedelta(hours=2))))


@pytest.mark.parametrize(
    "text", ["9-10", "09:00", "09:60-10:00", "24:00-25:00", "09:00-24:30", "08:00-08:00", "xyz 08:00-09:00", "08:00-09:00,", ","]
)
def test_what_is_no_period(text: str) -> None:
    with pytest.raises(ValueError, match="is no period such as"):
        periods.parse(text)
