"""The shedding policy: who gets CPU first, and how those who are alike share. Change it here.

Three rules, each one function: `ladder` says in which order queries are served, `pace` how those of one rung share, `ceiling` how
far a query may rise. `distribute` applies them; `plan` calls it for what is above the floors and, when these do not all fit, for
the floors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spillway.decide.qod.cpu import Load
from spillway.decide.qod.fill import NOTHING, Filled, fill
from spillway.decide.qod.floors import warming
from spillway.decide.qod.uses import Uses
from spillway.decide.qod.world import OUTSIDE, Flags, Floats, World, highest


def ladder(world: World) -> Iterator[Flags]:
    """Which queries are served together; the highest priority first, lower ones only with what it leaves.

    >>> from spillway.decide.qod.examples import fork
    >>> [rung.tolist() for rung in ladder(fork(priorities=(2, 5)))]
    [[False, True], [True, False]]
    """
    for rank in range(int(world.rank.max(initial=-1)), -1, -1):
        yield world.rank == rank


def pace(world: World, load: Load, slope: Floats) -> Floats:
    """Accuracy a query gains per percent of a core: the heaviest instance above it sets the pace.

    So queries of one priority get equal CPU, as in the paper's algorithm 3, and a light one is soon satisfied. For equal accuracy
    instead, return ones.
    """
    reading = highest(world.producer[world.producer != OUTSIDE], load.read[world.producer != OUTSIDE], len(world.operators))
    heaviest = highest(world.pair_query, np.maximum(slope, reading)[world.pair_operator], len(world.query))
    return np.divide(1.0, heaviest, out=np.full_like(heaviest, np.inf), where=heaviest > 0.0)


def ceiling(world: World, floor: Floats) -> Floats:
    """The accuracy a query may rise to: 1; while a node warms up, every operator on it stays at its min_accuracy.

    `floor` is by operator. Both sinks and all else of the fork run on one node, where one instance is new:

    >>> from dataclasses import replace
    >>> from spillway.decide.qod.examples import fork
    >>> from spillway.decide.qod.propagate import upward
    >>> world = fork(floors=(0.4, 0.6))
    >>> ceiling(world, upward(world, world.floor)).tolist()
    [1.0, 1.0]
    >>> world = replace(world, warming=np.array([False, False, True, False, False]))
    >>> ceiling(world, upward(world, world.floor)).tolist()
    [0.4, 0.6]
    """
    held = np.where(slowed(world), floor, 1.0)
    result = np.ones(len(world.query))
    np.minimum.at(result, world.pair_query, held[world.pair_operator])
    return result


def slowed(world: World) -> Flags:
    """Operators with an instance on a node that warms up."""
    result = np.zeros(len(world.operators), dtype=bool)
    result[world.operator_of[warming(world)[world.node_of]]] = True
    return result


def distribute(world: World, uses: Uses, capacity: Floats, start: Floats, most: Floats, speed: Floats) -> Filled:
    """From `start` as far up to `most` as `capacity` allows, rung by rung."""
    accuracy, limit = start, np.full(len(start), NOTHING)
    for rung in ladder(world):
        filled = fill(world, uses, capacity, accuracy, most, np.where(rung, speed, 0.0))
        accuracy, limit = filled.accuracy, np.where(rung, filled.limit, limit)
    return Filled(accuracy, limit)
