"""Periods in which nothing may be changed, as a policy has them: `22:00-06:00, sat-sun 00:00-24:00`, in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60
_ONE = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))?\s+)?(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From one minute of the day to another one; past midnight where the end is not later. It belongs to the day it begins on."""

    days: frozenset[int]
    """0 is Monday."""
    start_min: int
    end_min: int

    def covers(self, moment: datetime) -> bool:
        """
        >>> (night,) = parse("fri 22:00-06:00")
        >>> [night.covers(datetime(2031, 5, day, 3, tzinfo=UTC)) for day in (2, 3, 4)]
        [False, True, False]
        """
        utc = moment.astimezone(UTC)
        minute, today = utc.hour * 60 + utc.minute, utc.weekday()
        if self.start_min < self.end_min:
            return today in self.days and self.start_min <= minute < self.end_min
        yesterday = (today - 1) % 7
        return (today in self.days and minute >= self.start_min) or (yesterday in self.days and minute < self.end_min)

    def __str__(self) -> str:
        clock = f"{self.start_min // 60:02}:{self.start_min % 60:02}-{self.end_min // 60:02}:{self.end_min % 60:02} UTC"
        every = len(self.days) == len(DAYS)
        return clock if every else f"{', '.join(DAYS[day] for day in sorted(self.days))} {clock}"


def parse(text: str) -> tuple[Period, ...]:
    """Periods, separated by commas; raises ValueError with what is wrong.

    >>> [str(period) for period in parse("22:00-06:00, sat-sun 00:00-24:00")]
    ['22:00-06:00 UTC', 'sat, sun 00:00-24:00 UTC']
    >>> parse("")
    ()
    >>> parse("10 to 12")
    Traceback (most recent call last):
    ValueError: '10 to 12' is no period such as 22:00-06:00 or sat-sun 00:00-24:00
    """
    return tuple(_period(one.strip()) for one in text.split(",")) if text.strip() else ()


def _period(text: str) -> Period:
    wrong = ValueError(f"{text!r} is no period such as 22:00-06:00 or sat-sun 00:00-24:00")
    found = _ONE.fullmatch(text)
    if not found:
        raise wrong
    first, last, *clock = found.groups()
    start_hour, start_minute, end_hour, end_minute = map(int, clock)
    start, end = start_hour * 60 + start_minute, end_hour * 60 + end_minute
    if max(start_minute, end_minute) > 59 or start >= DAY_MIN or end > DAY_MIN or start == end:
        raise wrong
    return Period(days=_days(first, last, wrong), start_min=start, end_min=end)


def _days(first: str | None, last: str | None, wrong: ValueError) -> frozenset[int]:
    if first is None:
        return frozenset(range(len(DAYS)))
    try:
        begin, end = DAYS.index(first.lower()), DAYS.index((last or first).lower())
    except ValueError:
        raise wrong from None
    return frozenset((begin + n) % 7 for n in range((end - begin) % 7 + 1))
