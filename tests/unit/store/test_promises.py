"""What keeps mean for queries."""

from __future__ import annotations

import pytest
from spillway.model.topology import Application, Edge, Operator, Pipeline, Query
from spillway.store.promises import accuracies, broken_floors


def edge(name: str) -> Edge:
    start, consumer = name.split(":")
    producer = None if start.startswith("t") else start
    return Edge(name=name, topic=start, producer=producer, consumer=consumer, partitions=1)


PIPELINE = Pipeline(
    name="p",
    operators=(
        Operator(name="u", function="a:b"),
        Operator(name="a", function="a:b", query=Query(min_accuracy=0.5)),
        Operator(name="b", function="a:b", query=Query(min_accuracy=0.3)),
    ),
    edges=tuple(edge(n) for n in ("t1:u", "t2:u", "u:a", "u:b")),
    applications=(Application(name="x", operators=("u", "a", "b")),),
)
THESIS = {"t1:u": 0.8, "t2:u": 0.8, "u:a": 1.0, "u:b": 0.5}


def test_worked_example_of_the_thesis() -> None:
    assert accuracies(PIPELINE, THESIS) == pytest.approx({"u": 0.8, "a": 0.8, "b": 0.4})
    assert broken_floors(PIPELINE, THESIS) == []


def test_the_smallest_input_counts() -> None:
    assert accuracies(PIPELINE, THESIS | {"t2:u": 0.2})["a"] == pytest.approx(0.2)
    assert broken_floors(PIPELINE, THESIS | {"t2:u": 0.2}) == [("a", pytest.approx(0.2), 0.5), ("b", pytest.approx(0.1), 0.3)]


def test_what_is_not_known_is_not_zero() -> None:
    keeps = {"t1:u": 1.0, "t2:u": 1.0, "u:a": 1.0}
    assert accuracies(PIPELINE, keeps) == {"u": 1.0, "a": 1.0, "b": None}
    assert accuracies(PIPELINE, {"t1:u": 1.0}) == {"u": None, "a": None, "b": None}
    assert broken_floors(PIPELINE, {}) == []
