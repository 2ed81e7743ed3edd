"""Ticks on a clock that cannot jump: a late tick is made up for, a much too late one is given up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The events of [begin, end) are due at `begin`; all times in seconds since the start."""

    begin_s: float
    end_s: float
    now_s: float
    given_up: bool

    @property
    def late_s(self) -> float:
        return self.now_s - self.begin_s


def ticks(
    *, duration_s: float, tick_s: float, catch_up_s: float, clock: Callable[[], float], wait: Callable[[float], bool]
) -> Iterator[Tick]:
    """All ticks of `duration_s`, in order, none before its time.

    After a stall the missed ticks follow at once, except those more than `catch_up_s` behind, which come as given up. Ends
    early when `wait(seconds)` says so by returning True.
    """
    start = clock()
    for number in range(math.ceil(duration_s / tick_s - 1e-9)):
        begin = number * tick_s
        if wait(max(0.0, start + begin - clock())):
            return
        now = clock() - start
        yield Tick(begin_s=begin, end_s=min(begin + tick_s, duration_s), now_s=now, given_up=now - begin > catch_up_s)
