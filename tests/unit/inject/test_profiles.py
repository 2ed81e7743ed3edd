"""Profiles: the events due are the integral of the rate, whatever the grid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway.inject.profiles import Burst, Constant, Piecewise, Profile, Ramp, Sine, Step, due

SHAPES: list[Profile] = [
    Constant(123.4),
    Step(before=100, after=700, at_s=3.3),
    Ramp(start=50, end=900, over_s=6.5),
    Ramp(start=900, end=0, over_s=4.0),
    Sine(mean=500, amplitude=500, period_s=2.7, phase_s=0.4),
    Burst(base=20, peak=4000, every_s=3.0, length_s=0.25),
    Piecewise(
        ((2.0, Constant(100)), (3.0, Ramp(start=100, end=900, over_s=3.0)), (99.0, Sine(mean=9, amplitude=3, period_s=1.0)))
    ),
]


@pytest.mark.parametrize("profile", SHAPES, ids=lambda p: type(p).__name__)
def test_events_are_the_integral_of_the_rate(profile: Profile) -> None:
    steps, length = 40_000, 10.0
    dt = length / steps
    total = sum(profile.rate((n + 0.5) * dt) for n in range(steps)) * dt
    assert profile.events(length) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("profile", SHAPES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("tick_s", [0.007, 0.02, 0.5])
def test_no_event_is_lost_or_doubled_between_ticks(profile: Profile, tick_s: float) -> None:
    ends = [n * tick_s for n in range(1, round(10 / tick_s) + 1)]
    sent = 0
    for end in ends:
        step = due(profile, end) - sent
        assert step >= 0
        sent += step
    assert sent == due(profile, ends[-1])


def test_a_whole_rate_gives_whole_seconds_in_spite_of_rounding() -> None:
    counts = [due(Constant(1000), (n + 1) * 0.02) - due(Constant(1000), n * 0.02) for n in range(5000)]
    assert set(counts) == {20}


def test_step_ramp_and_burst_at_their_corners() -> None:
    assert [Step(before=1, after=5, at_s=2).rate(t) for t in (1.999, 2.0)] == [1, 5]
    assert [Ramp(start=0, end=10, over_s=5).rate(t) for t in (0, 2.5, 5, 50)] == [0, 5, 10, 10]
    burst = Burst(base=1, peak=9, every_s=10, length_s=2)
    assert [burst.rate(t) for t in (0, 7.99, 8, 9.99, 10)] == [1, 1, 9, 9, 1]
    assert burst.events(20) == 2 * (8 * 1 + 2 * 9)


def test_pieces_begin_at_their_own_zero() -> None:
    pieces = Piecewise(((10.0, Constant(5)), (10.0, Step(before=0, after=100, at_s=4.0))))
    assert pieces.rate(13.9) == 0
    assert pieces.rate(14.0) == 100
    assert pieces.events(15.0) == 50 + 100


@settings(max_examples=200, deadline=None)
@given(
    mean=st.floats(0, 10_000), share=st.floats(0, 1), period=st.floats(0.1, 1000), phase=st.floats(0, 1000), t=st.floats(0, 1000)
)
def test_a_sine_never_takes_events_back(mean: float, share: float, period: float, phase: float, t: float) -> None:
    sine = Sine(mean=mean, amplitude=mean * share, period_s=period, phase_s=phase)
    assert sine.rate(t) >= -1e-6 * mean
    assert sine.events(t + 0.02) - sine.events(t) >= -1e-6 * max(1.0, mean)
