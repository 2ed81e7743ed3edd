"""Where a new or moved instance goes."""

from __future__ import annotations

from spillway.decide.qod.schedule import estimate, place


def test_the_most_free_cpu_wins() -> None:
    assert place(10.0, {"n1": 20.0, "n2": 80.0, "n3": 50.0}) == "n2"


def test_preferred_nodes_that_can_hold_it_come_first() -> None:
    free = {"n1": 20.0, "n2": 80.0, "n3": 50.0}
    assert place(10.0, free, preferred=("n1", "n3")) == "n3"
    assert place(60.0, free, preferred=("n1", "n3")) == "n2"


def test_it_goes_to_the_least_crowded_even_when_nothing_can_hold_it() -> None:
    assert place(500.0, {"n1": -30.0, "n2": -10.0}) == "n2"


def test_it_never_returns_to_where_it_was_moved_from() -> None:
    assert place(10.0, {"n1": 90.0, "n2": 10.0}, preferred=("n1",), avoid=("n1",)) == "n2"
    assert place(10.0, {"n1": 90.0}, avoid=("n1",)) is None


def test_ties_are_decided_by_the_seed_and_nothing_else() -> None:
    names = [f"n{k}" for k in range(6)]
    free = dict.fromkeys(names, 50.0)
    turned = dict.fromkeys(reversed(names), 50.0)
    chosen = {place(10.0, free, seed=seed) for seed in range(40)}
    assert len(chosen) > 3
    assert all(place(10.0, free, seed=seed) == place(10.0, turned, seed=seed) for seed in range(40))


def test_estimates() -> None:
    assert estimate(30.0, [90.0]) == 30.0
    assert estimate(0.0, [90.0]) == 0.0
    assert estimate(None, [None, 20.0, 40.0]) == 30.0
    assert estimate(None, [None]) == 100.0
