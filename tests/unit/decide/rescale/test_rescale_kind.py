"""Which way a change is made, what pause is expected of it, and what is learned from pauses that were seen."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from spillway.decide.rescale.examples import NOW
from spillway.decide.rescale.kind import Wanted, choose_kind, lacks, pause_s
from spillway.model.rescale import Change, Kind, Outcome
from spillway.policy import Policy

POLICY = Policy()


def took(kind: Kind, pause: float | None, **changed: Any) -> Change:
    values: dict[str, Any] = {
        "at": NOW - timedelta(hours=1), "operator": "a", "application": "a", "kind": kind, "executors_from": 1, "executors_to": 2,
        "pause_s": pause, "state_rows": 0,
    }  # fmt: skip
    return Change(**{**values, **changed})


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Wanted(executors=True), Kind.RESTART),
        (Wanted(executors=True, more=True), Kind.HANDOVER),
        (Wanted(executors=True, more=True, second_fits=False), Kind.EXECUTORS),
        (Wanted(executors=True, state_rows=1_000_000), Kind.RESTART),
        (Wanted(executors=True, state_rows=3_000_000), Kind.HANDOVER),
        (Wanted(executors=True, state_rows=5_000_000, second_fits=False), Kind.EXECUTORS),
        (Wanted(executors=True, state_rows=None), Kind.RESTART),
        (Wanted(buckets=True, state_rows=100_000), Kind.RESTART),
        (Wanted(buckets=True, executors=True, state_rows=100_001), Kind.SHADOW),
        (Wanted(buckets=True, state_rows=None), Kind.SHADOW),
        (Wanted(node=True), Kind.HANDOVER),
        (Wanted(node=True, executors=True, state_rows=9_000_000), Kind.HANDOVER),
        (Wanted(node=True, buckets=True), Kind.SHADOW),
    ],
)
def test_the_cheapest_that_does_the_job(wanted: Wanted, kind: Kind) -> None:
    found, words = choose_kind(wanted, [], POLICY)
    assert found is kind and words


def test_what_is_chosen_can_always_do_it() -> None:
    for executors, buckets, node, rows, fits in product(
        (False, True), (False, True), (False, True), (0, 10**5, 10**7, None), (False, True)
    ):
        wanted = Wanted(executors=executors, buckets=buckets, node=node, state_rows=rows, second_fits=fits)
        kind, _ = choose_kind(wanted, [], POLICY)
        assert lacks(kind, wanted) is None
        assert pause_s(kind, wanted, [], POLICY) > 0.0


@pytest.mark.parametrize(
    ("kind", "wanted", "least", "most"),
    [
        (Kind.RESTART, Wanted(state_rows=100_000), 1.2, 1.6),
        (Kind.RESTART, Wanted(state_rows=1_000_000), 2.4, 3.4),
        (Kind.RESTART, Wanted(executors=True, more=True, state_rows=100_000), 11.0, 14.0),
        (Kind.RESTART, Wanted(buckets=True, state_rows=100_000), 4.0, 5.0),
        (Kind.RESTART, Wanted(buckets=True, state_rows=1_000_000), 16.0, 30.0),
        (Kind.EXECUTORS, Wanted(state_rows=100_000), 2.0, 6.0),
        (Kind.HANDOVER, Wanted(state_rows=100_000), 1.7, 2.3),
        (Kind.SHADOW, Wanted(buckets=True, state_rows=500_000), 4.5, 4.5),
        (Kind.SHADOW, Wanted(buckets=True, state_rows=50_000_000), 4.5, 4.5),
    ],
)
def test_without_a_past_pauses_are_those_that_were_measured(kind: Kind, wanted: Wanted, least: float, most: float) -> None:
    assert least <= pause_s(kind, wanted, [], POLICY) <= most


def test_pauses_are_learned_from_plans_of_the_same_kind() -> None:
    wanted = Wanted(executors=True, more=True)
    plain = pause_s(Kind.RESTART, wanted, [], POLICY)
    thrice = [took(Kind.RESTART, 3.0 * plain)] * 8
    assert pause_s(Kind.RESTART, wanted, thrice, POLICY) == pytest.approx(plain * 3.0 ** (8 / 9))
    assert pause_s(Kind.RESTART, wanted, thrice[:1], POLICY) == pytest.approx(plain * 3.0**0.5), "one pause moves it half way"
    others = [
        took(Kind.HANDOVER, 90.0), took(Kind.RESTART, None), took(Kind.RESTART, 90.0, outcome=Outcome.ROLLED_BACK),
        took(Kind.RESTART, 90.0, buckets_from=8, buckets_to=16),
    ]  # fmt: skip
    assert pause_s(Kind.RESTART, wanted, others, POLICY) == pytest.approx(plain)
    much = Wanted(executors=True, more=True, state_rows=1_000_000)
    large = took(Kind.RESTART, pause_s(Kind.RESTART, much, [], POLICY), state_rows=1_000_000)
    assert pause_s(Kind.RESTART, wanted, [large], POLICY) == pytest.approx(plain), "a long pause of much state is as expected"


def test_a_kind_that_turns_out_slow_is_not_taken_again() -> None:
    slow = [took(Kind.RESTART, 60.0, executors_from=2, executors_to=1)] * 3
    assert choose_kind(Wanted(executors=True), slow, POLICY)[0] is Kind.HANDOVER
    assert choose_kind(Wanted(executors=True, second_fits=False), slow, POLICY)[0] is Kind.EXECUTORS
