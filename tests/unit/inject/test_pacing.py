"""Pacing on a clock that only moves when told to."""

from __future__ import annotations

import pytest
from spillway.inject.pacing import Tick, ticks


class FakeClock:
    """Time passes by waiting, and by `stalls`: seconds that the work after a tick takes."""

    def __init__(self, stalls: dict[int, float] | None = None, stop_at: float = float("inf")) -> None:
        self.now, self.stalls, self.stop_at, self.waits = 1000.0, stalls or {}, stop_at, 0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        self.now += seconds
        return self.now >= 1000.0 + self.stop_at

    def run(self, **options: float) -> list[Tick]:
        seen = []
        for number, tick in enumerate(ticks(clock=self, wait=self.wait, **{"tick_s": 0.1, "catch_up_s": 0.5, **options})):
            seen.append(tick)
            self.now += self.stalls.get(number, 0.0)
        return seen


def test_ticks_cover_the_duration_without_gap_or_overlap() -> None:
    seen = FakeClock().run(duration_s=1.05)
    assert seen[0].begin_s == 0.0
    assert seen[-1].end_s == 1.05
    assert [t.end_s for t in seen[:-1]] == pytest.approx([t.begin_s for t in seen[1:]])
    assert len(seen) == 11
    assert all(t.late_s == pytest.approx(0, abs=1e-9) and not t.given_up for t in seen)


def test_a_short_stall_is_made_up_for() -> None:
    seen = FakeClock({2: 0.35}).run(duration_s=1.0)
    assert [round(t.late_s, 3) for t in seen[:8]] == [0, 0, 0, 0.25, 0.15, 0.05, 0, 0]
    assert len(seen) == 10
    assert not any(t.given_up for t in seen)


def test_after_a_long_stall_only_what_is_too_old_is_given_up() -> None:
    seen = FakeClock({1: 2.05}).run(duration_s=4.0)
    given_up = [round(t.begin_s, 3) for t in seen if t.given_up]
    assert given_up == [round(0.1 * n, 3) for n in range(2, 17)]  # at 2.15 s: 0.2 … 1.6 are over 0.5 s late
    assert len(seen) == 40
    assert seen[-1].late_s == pytest.approx(0, abs=1e-9)


def test_small_delays_do_not_add_up() -> None:
    seen = FakeClock(dict.fromkeys(range(1000), 0.09)).run(duration_s=100.0)
    assert max(t.late_s for t in seen) == pytest.approx(0, abs=1e-6)


def test_stop_ends_it_between_ticks_and_also_while_catching_up() -> None:
    assert len(FakeClock(stop_at=0.55).run(duration_s=10.0)) == 6
    assert len(FakeClock({0: 3.0}, stop_at=3.0).run(duration_s=10.0)) == 1
