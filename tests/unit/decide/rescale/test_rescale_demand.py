"""What every operator should carry: forks, joins, what waits, what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.decide.rescale.demand import demand
from spillway.decide.rescale.examples import ads, operator, world
from spillway.model.rescale import Flow


def source(consumer: str, arrival: float | None, **more: float) -> Flow:
    return Flow(producer=None, topic=f"to_{consumer}", consumer=consumer, arrival=arrival, **more)


def edge(producer: str, consumer: str, selectivity: float = 1.0, backlog: float | None = None) -> Flow:
    return Flow(producer=producer, topic=None, consumer=consumer, selectivity=selectivity, backlog=backlog)


def named(*names: str) -> list:  # type: ignore[type-arg]
    return [operator(name, needed=None) for name in names]


def test_forks_copy_and_joins_add_up() -> None:
    diamond = world(
        *named("d", "b", "a", "c"),
        edges=(
            source("a", 100.0),
            edge("a", "b", 0.5),
            edge("a", "c", 2.0),
            edge("b", "d"),
            edge("c", "d", 0.1),
            source("d", 7.0),
        ),
    )
    assert demand(diamond, 600.0).needed == {"a": 100.0, "b": 50.0, "c": 200.0, "d": 50.0 + 20.0 + 7.0}


def test_what_waits_is_drained_within_the_horizon_and_needed_by_all_that_follow() -> None:
    chain = world(*named("a", "b"), edges=(source("a", 100.0, backlog=6000.0), edge("a", "b", 0.5, backlog=600.0)))
    assert demand(chain, 60.0).needed == {"a": 200.0, "b": 110.0}
    assert demand(chain, 600.0).needed == {"a": 110.0, "b": 56.0}


def test_what_is_said_counts_where_edges_say_less() -> None:
    chain = world(operator("a", needed=300.0), operator("b", needed=10.0), edges=(source("a", 100.0), edge("a", "b", 0.5)))
    assert demand(chain, 600.0).needed == {"a": 300.0, "b": 150.0}


@pytest.mark.parametrize("lost", [source("a", None), edge("unheard", "a")])
def test_what_is_not_known_above_is_not_known_below(lost: Flow) -> None:
    chain = world(
        *named("unheard", "a", "b", "c"), edges=(source("a", 5.0), replace(lost, topic="other"), edge("a", "b"), source("c", 9.0))
    )
    assert demand(chain, 600.0).needed == {"c": 9.0}


def test_peaks_are_passed_forward_without_what_waits() -> None:
    chain = world(*named("a", "b"), edges=(source("a", 100.0, peak=400.0, backlog=6000.0), edge("a", "b", 0.5)))
    assert demand(chain, 60.0).peak == {"a": 400.0, "b": 200.0}
    assert demand(ads(), 60.0).peak == {}


def test_a_cycle_is_not_walked_for_ever() -> None:
    with pytest.raises(ValueError, match="cycle"):
        demand(world(*named("a", "b"), edges=(edge("a", "b"), edge("b", "a"))), 60.0)
