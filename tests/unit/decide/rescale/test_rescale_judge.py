"""Whether a change brought what was expected of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from spillway.decide.rescale import judge
from spillway.decide.rescale.examples import NOW
from spillway.model.rescale import Change, Effect, Kind, Sample
from spillway.policy import Policy

POLICY = Policy()


def change(before: float | None, expected: float | None, executors: tuple[int, int] = (2, 4)) -> Change:
    return Change(
        at=NOW, operator="a", application="a", kind=Kind.RESTART, executors_from=executors[0], executors_to=executors[1],
        rate_before=before, expected_rate=expected,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "capacity", "effect"),
    [
        (change(100.0, 200.0), 125.0, Effect.EFFECTIVE),
        (change(100.0, 200.0), 124.9, Effect.INEFFECTIVE),
        (change(100.0, 200.0), 50.0, Effect.INEFFECTIVE),
        (change(200.0, 100.0, (4, 2)), 90.0, Effect.EFFECTIVE),
        (change(200.0, 100.0, (4, 2)), 89.9, Effect.INEFFECTIVE),
        (change(100.0, 100.0, (2, 2)), 90.0, Effect.EFFECTIVE),
        (change(100.0, 100.0, (2, 2)), 89.0, Effect.INEFFECTIVE),
        (change(None, 200.0), 180.0, Effect.EFFECTIVE),
        (change(None, 200.0), 120.0, Effect.INEFFECTIVE),
        (change(100.0, None), 150.0, Effect.TOO_EARLY),
    ],
)
def test_expected_against_observed(made: Change, capacity: float, effect: Effect) -> None:
    observed = Sample(parallelism=made.executors_to, capacity=capacity)
    assert judge(made, observed, POLICY, now=NOW + timedelta(seconds=120)) is effect


def test_too_early() -> None:
    made, observed = change(100.0, 200.0), Sample(parallelism=4, capacity=190.0)
    assert judge(made, observed, POLICY, now=NOW + timedelta(seconds=119)) is Effect.TOO_EARLY
    assert judge(made, None, POLICY, now=NOW + timedelta(days=1)) is Effect.TOO_EARLY
    assert judge(made, Sample(parallelism=3, capacity=190.0), POLICY, now=NOW + timedelta(days=1)) is Effect.TOO_EARLY
