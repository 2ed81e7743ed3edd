"""What queries ask for, carried up to the sources, and what sources deliver, carried down to the queries.

Equations 1, 2 and 5 of the paper are one rule: an operator takes the highest value of the queries below it. Equations 14 and 15
turn the accuracies of operators into the keep of every edge, so that a row that must go goes as early as it can.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spillway.decide.qod.world import OUTSIDE, Floats, World, highest


def upward(world: World, of_queries: Floats) -> Floats:
    """(1) priority, (2) min_accuracy, (5) max_accuracy, (14) desired: `value(t) = max over queries below t`.

    Two queries below one operator, with floors 0.4 and 0.6:

    >>> from spillway.decide.qod.examples import fork
    >>> world = fork(floors=(0.4, 0.6))
    >>> upward(world, world.floor).tolist()     # source_1, source_2, union, A, B
    [0.6, 0.6, 0.6, 0.4, 0.6]
    """
    return highest(world.pair_operator, of_queries[world.pair_query], len(world.operators))


def keeps(world: World, desired: Floats) -> Floats:
    """(15) `keep(external, t) = desired(t)`, `keep(t, t') = desired(t') / desired(t)`, by edge; from the accuracy of queries.

    Thesis figure 3.3: A wants 0.8 and B 0.4; both source shedders keep 0.8, everything toward A 1.0, the edge into B 0.5:

    >>> from spillway.decide.qod.examples import fork
    >>> keeps(fork(), np.array([0.8, 0.4])).tolist()     # into source_1, source_2, union, union, A, B
    [0.8, 0.8, 1.0, 1.0, 1.0, 0.5]
    """
    of_operator = upward(world, desired)
    wanted = of_operator[world.consumer]
    arriving = np.where(world.producer == OUTSIDE, 1.0, of_operator[world.producer])
    return np.clip(np.divide(wanted, arriving, out=np.zeros_like(wanted), where=wanted > 0.0), 0.0, 1.0)


def downward(world: World, keep: Floats) -> Floats:
    """The accuracy every operator gets from the keeps of all edges: the product along a path, the least over its inputs.

    >>> from spillway.decide.qod.examples import fork
    >>> downward(fork(), np.array([0.8, 0.8, 1.0, 1.0, 1.0, 0.5])).tolist()
    [0.8, 0.8, 0.8, 0.8, 0.4]
    """
    outside = world.producer == OUTSIDE
    accuracy = np.ones(len(world.operators))
    np.minimum.at(accuracy, world.consumer[outside], keep[outside])
    for begin, end in pairwise(world.steps):
        layer = world.inner[begin:end]
        np.minimum.at(accuracy, world.consumer[layer], accuracy[world.producer[layer]] * keep[layer])
    return accuracy
