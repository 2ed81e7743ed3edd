"""A run as the plain table of samples that figures are drawn from."""

from __future__ import annotations

from math import isnan

from spillway.model.samples import Mark, Measure, Sample
from spillway.simulate.run import Run
from spillway.simulate.watch import offered, topics_above


def samples(run: Run, *, name: str = "") -> list[Sample]:
    """Rates, lag and accuracy by query, keep by edge, at the end of each cycle."""
    world = run.world
    queries = [(number, o) for number, o in enumerate(world.operators) if o.min_accuracy is not None]
    above = topics_above(world)
    found: list[Sample] = []

    def add(t_s: float, measure: Measure, of: str, value: float | None) -> None:
        known = None if value is None or isnan(value) else value
        found.append(Sample(t_s=t_s, measure=measure, name=of, value=known, run=name))

    for cycle in run.cycles:
        window = cycle.window
        for edge, keep, live in zip(world.edges, window.keep.tolist(), window.live[run.twin.consumer].tolist(), strict=True):
            add(window.end_s, Measure.KEEP, edge.name, keep if live else None)
        for number, operator in queries:
            live = bool(window.live[number])
            add(window.end_s, Measure.OFFERED, operator.name, offered(window, above[number]) if live else None)
            for measure, values in (
                (Measure.PROCESSED, window.processed),
                (Measure.LAG, window.lag_s),
                (Measure.ACCURACY, window.accuracy),
            ):
                add(window.end_s, measure, operator.name, float(values[number]) if live else None)
            add(window.end_s, Measure.FLOOR, operator.name, operator.min_accuracy)
    return found


def marks(run: Run) -> list[Mark]:
    """What happened: moves, and when floors could not be kept."""
    found = [Mark(t_s=t_s, text=f"{m.operator}[{m.instance}] moves from {m.source} to {m.target}") for t_s, m in run.moves]
    known: tuple[str, ...] = ()
    for t_s, queries in run.infeasible:
        if queries != known:
            found.append(Mark(t_s=t_s, text=f"the floors do not fit: {', '.join(queries)}"))
        known = queries
    return sorted(found, key=lambda mark: mark.t_s)
