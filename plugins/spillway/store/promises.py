"""What the keeps of the edges mean for the queries below them."""

from __future__ import annotations

from collections.abc import Mapping

from spillway.model.topology import Pipeline


def accuracies(pipeline: Pipeline, keeps: Mapping[str, float | None]) -> dict[str, float | None]:
    """Share of the source events each operator sees: the keep of an edge times what its producer sees, the smallest over
    the inputs (Stream Economics, equation 3, with keeps for measured rates). None where a keep on the way is unknown."""
    known: dict[str, float | None] = {}

    def of(operator: str) -> float | None:
        if operator not in known:
            shares = []
            for edge in pipeline.inputs(operator):
                keep, above = keeps.get(edge.name), of(edge.producer) if edge.producer else 1.0
                shares.append(None if keep is None or above is None else keep * above)
            known[operator] = None if None in shares or not shares else min(s for s in shares if s is not None)
        return known[operator]

    return {operator.name: of(operator.name) for operator in pipeline.operators}


def broken_floors(pipeline: Pipeline, keeps: Mapping[str, float | None]) -> list[tuple[str, float, float]]:
    """Queries whose accuracy would be below what they were promised: name, accuracy, floor."""
    seen = accuracies(pipeline, keeps)
    broken = []
    for operator in pipeline.queries():
        floor = operator.query.min_accuracy if operator.query else 0.0
        accuracy = seen[operator.name]
        if accuracy is not None and accuracy < floor - 1e-9:
            broken.append((operator.name, accuracy, floor))
    return broken
