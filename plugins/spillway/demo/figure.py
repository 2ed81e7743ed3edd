"""A run on the real line as the table of samples that figures are drawn from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from spillway.demo.course import Batch, in_force, lags, offered
from spillway.inject.scenario import Scenario
from spillway.model.samples import Measure, Sample
from spillway.model.topology import Pipeline


def samples(pipeline: Pipeline, scenario: Scenario, batches: Sequence[Batch], *, run: str = "") -> Iterator[Sample]:
    """Rates, lag, keep and accuracy of the queries, with what was offered to them."""
    queries = {q.name: q.query.min_accuracy if q.query else 0.0 for q in pipeline.queries()}
    last = max((b.began_s for b in batches), default=scenario.duration_s)
    for second in range(int(min(last, scenario.duration_s)) + 1):
        for name in queries:
            yield Sample(t_s=second, measure=Measure.OFFERED, name=name, value=offered(scenario, second), run=run)
    behind = lags(pipeline, batches, scenario)
    for name in queries:
        own = sorted((b for b in batches if b.consumer == name), key=lambda b: b.began_s)
        for b, following in pairwise(own):
            rate = b.kept / (following.began_s - b.began_s) if following.began_s > b.began_s else None
            yield Sample(t_s=b.began_s, measure=Measure.PROCESSED, name=name, value=rate, run=run)
        for edge in pipeline.inputs(name):
            for t, lag in behind.get(edge.name, ()):
                yield Sample(t_s=t, measure=Measure.LAG, name=name, value=lag, run=run)
    for b in batches:
        yield Sample(t_s=b.began_s, measure=Measure.KEEP, name=b.edge, value=b.keep, run=run)
    for t, step in in_force(pipeline, batches):
        for name, reached in step.items():
            yield Sample(t_s=t, measure=Measure.ACCURACY, name=name, value=reached, run=run)
            yield Sample(t_s=t, measure=Measure.FLOOR, name=name, value=queries[name], run=run)
