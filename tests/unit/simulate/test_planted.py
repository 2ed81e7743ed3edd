"""Planted worlds are what they say: varied, with a bottleneck where it was put and a parallelism that is enough and no more."""

from __future__ import annotations

from collections import Counter

import pytest
from spillway.simulate.planted import Law, NeverEnough, PlantedWorld, Told, planted, speedup

WORLDS = [planted(seed) for seed in range(300)]


def forks(world: PlantedWorld) -> list[list[float]]:
    shares = [[e.share for e in world.edges if e.producer == o.name] for o in world.operators]
    return [some for some in shares if len(some) > 1]


def test_the_worlds_are_varied() -> None:
    assert {len(w.operators) for w in WORLDS} == set(range(3, 41))
    assert all(any(e.share != 1.0 for e in w.edges) for w in WORLDS)
    copies = sum(any(len(set(some)) == 1 for some in forks(w)) for w in WORLDS)
    splits = sum(any(len(set(some)) > 1 for some in forks(w)) for w in WORLDS)
    joins = sum(max(Counter(e.consumer for e in w.edges).values()) > 1 for w in WORLDS)
    assert min(copies, splits, joins) > 200
    assert sum(len(w.planted) == 2 for w in WORLDS) > 50
    assert sum(bool(w.others) for w in WORLDS) > 100
    assert sum(sum(e.topic == w.topic for e in w.edges) > 1 for w in WORLDS) > 30, "a source that two operators read"
    assert {o.told for w in WORLDS for o in w.operators} == set(Told)


def test_the_bottleneck_is_where_it_was_planted() -> None:
    for world in WORLDS:
        limits = world.limits(world.parallelism)
        assert min(limits.values()) == pytest.approx(world.sustained)
        assert limits[world.planted[0]] == pytest.approx(world.sustained)
        assert all(limit >= 1.3 * world.sustained * (1 - 1e-9) for name, limit in limits.items() if name not in world.planted)
        assert world.planted[0] in world.truth(world.parallelism, world.rate) <= set(world.planted)
        assert world.truth(world.parallelism, world.sustained) == frozenset()


@pytest.mark.parametrize("law", Law)
def test_what_is_needed_is_enough_and_one_less_is_not(law: Law) -> None:
    for seed in range(150):
        world = planted(seed, law=law)
        needed = world.needed(world.rate)
        assert world.truth(needed, world.rate) == frozenset()
        for name, count in needed.items():
            if count > 1 and world.passed[name][0] > 0.0:
                assert world.truth({**needed, name: count - 1}, world.rate) == {name}


def test_law_and_noise_change_neither_shape_nor_beginning() -> None:
    for seed in range(50):
        one, other = planted(seed), planted(seed, law=Law.SUBLINEAR, noise=0.1)
        assert (one.edges, one.parallelism, one.rate, one.planted) == (other.edges, other.parallelism, other.rate, other.planted)
        assert other.limits(other.parallelism) == pytest.approx(one.limits(one.parallelism))


def test_26_instances_reach_54_percent_of_linear() -> None:
    assert speedup(26, Law.SUBLINEAR) == pytest.approx(0.54 * 26)
    assert speedup(1, Law.SUBLINEAR) == 1.0
    faster = [speedup(p, Law.SUBLINEAR) for p in range(1, 200)]
    assert faster == sorted(faster)


def test_no_parallelism_is_enough_for_everything() -> None:
    with pytest.raises(NeverEnough, match=r"no parallelism of o\d+ takes .* rows/s; ask for a lower rate"):
        planted(1, law=Law.SUBLINEAR).needed(1e12)


def test_the_same_seed_gives_the_same_and_noise_depends_on_the_seed_of_the_look() -> None:
    world = planted(3, noise=0.05)
    assert world == planted(3, noise=0.05)
    assert world.observe(world.parallelism, world.rate) == world.observe(world.parallelism, world.rate)
    assert world.observe(world.parallelism, world.rate, seed=1) != world.observe(world.parallelism, world.rate)


def test_rows_are_conserved_in_what_is_observed() -> None:
    """What comes over an edge is its share of what its producer took; what is not taken waits."""
    for world in WORLDS[:100]:
        seen = world.observe(world.parallelism, world.rate)
        taken = {o.name: sum(e.flow or 0.0 for e in seen.edges if e.consumer == o.name) for o in world.operators}
        for name, rows in taken.items():
            assert rows <= world.capacity(name, world.parallelism[name]) * (1 + 1e-9)
        for edge in seen.edges:
            arrived = edge.arrival if edge.producer is None else edge.share * taken[edge.producer]
            assert arrived is not None and edge.flow is not None and edge.backlog is not None
            assert edge.backlog == pytest.approx((arrived - edge.flow) * 60.0, abs=0.51)
