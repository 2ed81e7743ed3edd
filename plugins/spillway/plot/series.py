"""A table of samples as the lines of a figure: panels, order, colours, what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spillway.model.samples import Measure, Sample

MOST_LINES = 8
"""Lines in one panel; more cannot be told apart."""
COLORS = ("#0b6fb8", "#d1495b", "#2e8b57", "#e09f3e", "#6a4c93", "#00838f", "#8d6e63", "#c2185b")
DASHES = ("solid", (0, (4, 2)), (0, (1, 1.5)))


@dataclass(slots=True)
class Line:
    measure: Measure
    names: list[str]
    """More than one where lines are the same throughout."""
    run: str
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """NaN where the value is not known."""

    @property
    def subject(self) -> str:
        """The operator a line is about: of an edge its consumer. Lines about one operator have one colour."""
        return self.names[0].rsplit(":", 1)[-1]

    @property
    def spread(self) -> float:
        known = [v for v in self.values if v == v]
        return max(known) - min(known) if known else 0.0


def lines(samples: Iterable[Sample]) -> list[Line]:
    """One line per measure, name and run, by time; lines about one operator that are the same become one with all names.

    What is offered is offered from outside, so there equal lines become one whichever operators they are about.
    """
    found: dict[tuple[Measure, str, str], Line] = {}
    for sample in sorted(samples, key=lambda s: s.t_s):
        line = found.setdefault((sample.measure, sample.name, sample.run), Line(sample.measure, [sample.name], sample.run))
        line.times.append(sample.t_s)
        line.values.append(float("nan") if sample.value is None else float(sample.value))
    merged: dict[tuple[object, ...], Line] = {}
    for line in found.values():
        about = "" if line.measure is Measure.OFFERED else line.subject
        shape = (line.measure, about, line.run, tuple(line.times), tuple(v if v == v else None for v in line.values))
        if shape in merged:
            merged[shape].names += line.names
        else:
            merged[shape] = line
    return list(merged.values())


def chosen(of_panel: Sequence[Line]) -> tuple[list[Line], int]:
    """The lines to draw, in their order, and how many are left out: those that change the least."""
    if len(of_panel) <= MOST_LINES:
        return list(of_panel), 0
    kept = sorted(range(len(of_panel)), key=lambda n: -of_panel[n].spread)[:MOST_LINES]
    return [of_panel[n] for n in sorted(kept)], len(of_panel) - MOST_LINES


def colors(of_figure: Iterable[Line]) -> dict[str, str]:
    """A colour per operator."""
    subjects = dict.fromkeys(line.subject for line in of_figure)
    return {subject: COLORS[number % len(COLORS)] for number, subject in enumerate(subjects)}


def dashes(of_figure: Iterable[Line]) -> dict[str, object]:
    """A line style per run; the first is solid."""
    runs = dict.fromkeys(line.run for line in of_figure)
    return {run: DASHES[number % len(DASHES)] for number, run in enumerate(runs)}
