"""What the controller made of a rush, in the terms in which it is promised. Pure.

The limit of 2 s of traffic is for what the planning of a batch leaves behind. What the batch takes waits in Kafka as well, until
it commits; but that lasts as long as a batch may take (`batch_target`), whatever the controller does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from spillway.demo.course import (
    SAME,
    Batch,
    Rush,
    Set,
    batches_until,
    cycles,
    delivered,
    first_shed,
    in_force,
    in_order,
    lags,
    least,
    over,
    waiting,
    whole_again_s,
    worst,
)
from spillway.inject.scenario import Scenario
from spillway.model.topology import Pipeline

LAG_LIMIT_S, CYCLES_LAGGING, CYCLES_TO_RECOVER = 2.0, 3, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    cycle_s: float
    lagging_s: float
    """From the first lag of more than 2 s of traffic in the rush to the end of the last, on any edge; infinite: no end."""
    lag_peak_s: float
    lag_after_s: float
    """The largest lag of the rush after that; infinite: it was over by then."""
    waiting_after_s: float
    """The same of all that waited, with the rows a batch took."""
    floors: Mapping[str, float]
    priorities: Mapping[str, int]
    least: Mapping[str, float]
    """The lowest share of the source events that a batch of each query was to get."""
    first_shed_s: Mapping[str, float]
    """By query, seconds from the beginning of the rush to the first batch that shed; a query that was not shed is not there."""
    in_order: bool
    whole_again_s: float
    """From the end of the rush until every query got everything; infinite: not seen."""
    shed_read: int
    """Rows in batches that shed."""
    shed_kept: int
    shed_expected: float
    """Rows that these batches should have kept."""
    batches_until: int | None
    """The most batches that began before a keep was in force, that one counted; None: one never was."""

    @property
    def lagging_cycles(self) -> float:
        return cycles(self.lagging_s, self.cycle_s)

    @property
    def recovered_cycles(self) -> float:
        return cycles(self.whole_again_s, self.cycle_s)

    @property
    def floors_kept(self) -> bool:
        return all(self.least[q] >= floor - SAME for q, floor in self.floors.items())


def controlled(
    pipeline: Pipeline,
    scenario: Scenario,
    within: Rush,
    batches: Sequence[Batch],
    settings: Sequence[Set],
    cycle_s: float,
    *,
    height: Rush | None = None,
) -> Controlled:
    """`height`: the part of the rush in which lag is looked at, where that is not all of it."""
    behind, high = lags(pipeline, batches, scenario), height or within
    episodes = over(behind, LAG_LIMIT_S, high, cycle_s)
    steps = in_force(pipeline, batches)
    queries = {q.name: q.query for q in pipeline.queries() if q.query}
    priorities = {q: promise.priority for q, promise in queries.items()}
    calm_s = max((e.to_s for e in episodes), default=high.begins_s)
    calmed = calm_s < high.ends_s
    shed = [b for b in batches if b.keep < 1.0 - SAME]
    waited = batches_until(settings, batches)
    return Controlled(
        cycle_s=cycle_s,
        lagging_s=calm_s - episodes[0].from_s if episodes else 0.0,
        lag_peak_s=worst(behind, high.begins_s, high.ends_s),
        lag_after_s=worst(behind, calm_s, high.ends_s) if calmed else inf,
        waiting_after_s=worst(waiting(pipeline, batches, scenario), calm_s, high.ends_s) if calmed else inf,
        floors={q: promise.min_accuracy for q, promise in queries.items()},
        priorities=priorities,
        least=least(delivered(pipeline, batches)),
        first_shed_s={q: t - within.begins_s for q, t in first_shed(steps).items()},
        in_order=in_order(steps, priorities),
        whole_again_s=whole_again_s(steps, within),
        shed_read=sum(b.read for b in shed),
        shed_kept=sum(b.kept for b in shed),
        shed_expected=sum(b.read * b.keep for b in shed),
        batches_until=None if None in waited.values() else max((n for n in waited.values() if n is not None), default=None),
    )
