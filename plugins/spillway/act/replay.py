"""The cycles of the past once more, on the metrics that were stored: what would have been decided, beside what was.

A replay decides on what was measured then. It does not know how the pipelines would have behaved under other keeps; the twin
(`spillway simulate`) does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spillway.act.cycle import decide_all, observe
from spillway.model.samples import Measure, Sample
from spillway.model.window import Interval
from spillway.store import decisions
from spillway.store.decisions import LIVE, Run, Stored

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

SAME = 1e-9
WAS, WOULD_BE = "as it was", "replayed"


def intervals(start: datetime, end: datetime, cycle_s: float) -> Iterator[Interval]:
    """The whole windows between two moments, aligned as the live ones are.

    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> [i.end.strftime("%M:%S") for i in intervals(noon + timedelta(seconds=4), noon + timedelta(seconds=50), 15.0)]
    ['00:30', '00:45']
    """
    first = datetime.fromtimestamp(-(-start.timestamp() // cycle_s) * cycle_s, tz=UTC)
    step = timedelta(seconds=cycle_s)
    while first + step <= end:
        yield Interval(start=first, end=first + step)
        first += step


def replay(
    conn: Connection, start: datetime, end: datetime, run: Run, *, on_window: Callable[[Interval], None] = lambda _: None
) -> int:
    """Writes the decisions of a replay beside the historic ones; nothing that runs hears of it. Returns how many windows.

    What it remembers on its first window is what the live cycles did, whatever was replayed under its name before."""
    count = 0
    for interval in intervals(start, end, run.policy.qod_cycle_s):
        run = run if count else replace(run, begins=interval.start)
        observe(conn, interval, run)
        decide_all(conn, interval, run)
        on_window(interval)
        count += 1
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One edge, in one window, that would have kept something else. None: it was not decided."""

    at: datetime
    pipeline: str
    edge: str
    was: float | None
    would_be: float | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(), "pipeline": self.pipeline, "edge": self.edge, "was": self.was, "would_be": self.would_be,
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    only_historic: int
    only_replayed: int
    differences: tuple[Difference, ...]
    kept: dict[str, tuple[float | None, float | None]]
    """By pipeline and query: the mean accuracy that was decided, historic and replayed, over windows that both decided."""


def compare(historic: Iterable[Stored], replayed: Iterable[Stored]) -> Comparison:
    """By pipeline and window, where both have a decision; one that was refused or failed has no keeps."""
    was = {(d.interval_end, d.pipeline): d for d in historic}
    would = {(d.interval_end, d.pipeline): d for d in replayed}
    found: list[Difference] = []
    both = sorted(was.keys() & would.keys())
    for key in both:
        before, after = _keeps(was[key]), _keeps(would[key])
        for edge in sorted(before.keys() | after.keys()):
            one, other = before.get(edge), after.get(edge)
            if one is None or other is None or abs(one[0] - other[0]) > SAME:
                reason = (other or one or (0.0, ""))[1]
                found.append(
                    Difference(
                        at=key[0], pipeline=key[1], edge=edge, was=one[0] if one else None,
                        would_be=other[0] if other else None, reason=reason,
                    )
                )  # fmt: skip
    return Comparison(
        only_historic=len(was.keys() - would.keys()),
        only_replayed=len(would.keys() - was.keys()),
        differences=tuple(found),
        kept=_means([(was[k], would[k]) for k in both]),
    )


def outcome(decision: Stored) -> dict[str, Any] | None:
    """What was decided; None when it was refused or failed, and so came to nothing."""
    return None if decision.status in ("refused", "failed") else decision.output


def _keeps(decision: Stored) -> dict[str, tuple[float, str]]:
    return {e["name"]: (e["keep"], e["reason"]) for e in (outcome(decision) or {"edges": ()})["edges"]}


def _means(pairs: Iterable[tuple[Stored, Stored]]) -> dict[str, tuple[float | None, float | None]]:
    seen: dict[str, tuple[list[float], list[float]]] = {}
    for pair in pairs:
        outcomes = [outcome(decision) for decision in pair]
        if None in outcomes:
            continue
        for side, output in enumerate(outcomes):
            for query, state in (output or {})["queries"].items():
                seen.setdefault(f"{pair[0].pipeline}/{query}", ([], []))[side].append(state["desired"])
    return {name: (_mean(one), _mean(other)) for name, (one, other) in sorted(seen.items())}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def historic(conn: Connection, start: datetime, end: datetime, run: Run, pipeline: str | None) -> list[Stored]:
    return decisions.span(conn, Run(origin=LIVE, policy=run.policy), start, end, pipeline)


def samples(start: datetime, historic: Iterable[Stored], replayed: Iterable[Stored]) -> list[Sample]:
    """Keeps and accuracies of both, for a figure; names carry their pipeline where there are several."""
    found = []
    sides = ((WAS, list(historic)), (WOULD_BE, list(replayed)))
    several = len({d.pipeline for _, decided in sides for d in decided}) > 1
    for name, decided in sides:
        for decision in decided:
            output = outcome(decision) or {"edges": [], "queries": {}}
            t_s = (decision.interval_end - start).total_seconds()
            prefix = f"{decision.pipeline}/" if several else ""
            for e in output["edges"]:
                edge = f"{prefix}{e['name'].rsplit(':', 1)[0]}:{prefix}{e['to']}"
                found.append(Sample(t_s=t_s, measure=Measure.KEEP, name=edge, value=e["keep"], run=name))
            for query, state in output["queries"].items():
                found.append(Sample(t_s=t_s, measure=Measure.ACCURACY, name=prefix + query, value=state["desired"], run=name))
                if name == WOULD_BE:
                    found.append(Sample(t_s=t_s, measure=Measure.FLOOR, name=prefix + query, value=state["floor"]))
    return found
