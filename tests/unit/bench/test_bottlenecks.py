"""The bench of bottlenecks: the published rule as it is printed, the worlds it is measured on, and a small run of all of it."""

from __future__ import annotations

import doctest
from dataclasses import replace
from typing import Any

import pytest
from spillway.simulate.planted import Law, planted

from tests.support.benches import last_line

GOALS = [
    "the_right_one_named_in_all", "enough_in_3_steps_in_all", "enough_in_one_step_in_60_pct", "at_most_4_rescales_a_day",
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "named", "steps", "rescales", "missed"),
    [
        ("linear", [True] * 10, [1] * 6 + [3] * 4, [4, 0], None),
        ("linear", [True] * 9 + [False], [1] * 10, [4], "the_right_one_named_in_all"),
        ("linear noisy", [True] * 9 + [False], [1] * 10, [4], None),
        ("linear", [True] * 10, [1] * 9 + [4], [4], "enough_in_3_steps_in_all"),
        ("sublinear far noisy", [True] * 10, [1] * 9 + [None], [4], "enough_in_3_steps_in_all"),
        ("linear", [True] * 10, [1] * 5 + [2] * 5, [4], "enough_in_one_step_in_60_pct"),
        ("linear", [True] * 10, [1] * 10, [4, 5], "at_most_4_rescales_a_day"),
    ],
)
def test_goals(
    bench: Any, capsys: pytest.CaptureFixture[str], case: str, named: list[bool], steps: list[int | None], rescales: list[int],
    missed: str | None,
) -> None:  # fmt: skip
    bottleneck, elastic = bench("bottlenecks"), bench("_elastic")
    ours = [elastic.Climb(named=n, steps=s, excess=1.4) for n, s in zip(named, steps, strict=True)]
    poor = [elastic.Climb(named=False, steps=None, excess=1.0)] * 10
    days = {
        "ours": [elastic.Days(rescales=rescales, behind=1, minutes=1440, instances=2.0)],
        "ds2": [elastic.Days(rescales=[99], behind=9, minutes=1440, instances=1.0)],
    }
    assert bottleneck.conclude({case: {"ours": ours, "ds2": poor}}, days) == (0 if missed is None else 1)
    found = last_line(capsys)
    assert list(found["goals"]) == GOALS
    assert [name for name, met in found["goals"].items() if not met] == ([missed] if missed else [])
    assert found["steps"][case]["ds2"]["never"] == 10 and found["days"]["ds2"]["most"] == 99


def test_a_small_run_reaches_every_goal(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("bottlenecks").main(["--seeds", "10", "--daily", "1", "--days", "2"]) == 0
    found = last_line(capsys)
    assert (found["worlds"], len(found["steps"])) == (10, 8)
    assert set(found["days"]) == {"ours", "ds2", "flink", "peak"}
    assert found["days"]["ours"]["most"] < found["days"]["flink"]["most"] < found["days"]["ds2"]["most"]


def test_the_examples_of_the_published_rule_hold(bench: Any) -> None:
    result = doctest.testmod(bench("_ds2"))
    assert result.attempted == 5 and result.failed == 0


def test_ds2_sizes_a_linear_world_in_one_step_to_the_instance(bench: Any) -> None:
    """What is measured beside us is not a straw man: where it assumes what is true, it is exact."""
    ds2, elastic, bottleneck = bench("_ds2"), bench("_elastic"), bench("bottlenecks")
    for seed in range(20):
        world = planted(seed)
        found = elastic.climb(world, world.rate, elastic.Published(ds2.DS2, window=1, settle=0), bottleneck.POLICY)
        assert found.steps == 1 and found.excess == pytest.approx(1.0, abs=0.05)


def test_the_farthest_rate_takes_26_instances_somewhere_and_nowhere_more(bench: Any) -> None:
    for law in Law:
        world = planted(3, law=law)
        rate = bench("_elastic").farthest(world, 26)
        assert max(world.needed(rate).values()) == 26
        assert max(world.needed(1.001 * rate).values()) > 26


def test_days_have_nights_and_the_second_half_is_half(bench: Any) -> None:
    rates = bench("_elastic").load(planted(1), 4)
    assert len(rates) == 4 * 1440
    noon, night = rates[690:750], [*rates[:30], *rates[1410:1470]]
    assert sum(noon) / len(noon) > 3.5 * sum(night) / len(night)
    assert sum(rates[2880:]) == pytest.approx(0.5 * sum(rates[:2880]), rel=0.1)


def test_who_never_rescales_falls_behind(bench: Any) -> None:
    """The load is one that has to be answered."""

    class Idle:
        def evaluate(self, seen: Any) -> dict[str, int]:
            return {}

    elastic, world = bench("_elastic"), planted(4)
    days = elastic.live(world, Idle(), elastic.load(world, 1), bench("bottlenecks").POLICY)
    assert days.rescales == [0] and days.behind > 300


def test_a_rule_sees_what_waits_and_who_is_full(bench: Any) -> None:
    seen: list[Any] = []

    class Watch:
        def evaluate(self, one: Any) -> dict[str, int]:
            seen.append(one)
            return {}

    elastic, world = bench("_elastic"), planted(4)
    elastic.live(world, Watch(), [world.rate] * 30, bench("bottlenecks").POLICY)
    first, last = seen[0], seen[-1]
    assert world.truth(world.parallelism, world.rate) <= last.bottlenecks
    assert sum(e.backlog for e in last.edges) > sum(e.backlog for e in first.edges) > 0.0
    assert all(o.parallelism == last.parallelism[o.name] for o in world.operators)
    assert replace(last, bottlenecks=frozenset()).targets == pytest.approx(first.targets)
