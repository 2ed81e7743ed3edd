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
    def course(self) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
        return tuple(self.times), tuple(v if v == v else None for v in self.values)

    @property
    def highest(self) -> float:
        return max((v for v in self.values if v == v), default=0.0)

    @property
    def spread(self) -> float:
        return self.highest - min((v for v in self.values if v == v), default=0.0)


def lines(samples: Iterable[Sample]) -> list[Line]:
    """One line per measure, name and run, by time; of lines that are the same one is left, with all names.

    Lines about different operators stay apart, except for what is offered: that comes from outside. A line that is the same in
    every run belongs to none.
    """
    found: dict[tuple[Measure, str, str], Line] = {}
    for sample in sorted(samples, key=lambda s: s.t_s):
        line = found.setdefault((sample.measure, sample.name, sample.run), Line(sample.measure, [sample.name], sample.run))
        line.times.append(sample.t_s)
        line.values.append(float("nan") if sample.value is None else float(sample.value))
    return _runs_together(_names_together(found.values()))


def _names_together(found: Iterable[Line]) -> list[Line]:
    kept: dict[tuple[object, ...], Line] = {}
    for line in found:
        about = "" if line.measure is Measure.OFFERED else line.subject
        first = kept.setdefault((line.measure, about, line.run, *line.course), line)
        if first is not line:
            first.names += line.names
    return list(kept.values())


def _runs_together(found: list[Line]) -> list[Line]:
    runs = {line.run for line in found}
    alike: dict[tuple[object, ...], list[Line]] = {}
    for line in found:
        alike.setdefault((line.measure, tuple(line.names), *line.course), []).append(line)
    everywhere = {id(same[0]) for same in alike.values() if len(runs) > 1 and len(same) == len(runs)}
    repeated = {id(line) for same in alike.values() if id(same[0]) in everywhere for line in same[1:]}
    for line in found:
        line.run = "" if id(line) in everywhere else line.run
    return [line for line in found if id(line) not in repeated]


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
    """A line style per run; the first is solid, and so is what belongs to none."""
    runs = dict.fromkeys(line.run for line in of_figure if line.run)
    return {"": DASHES[0], **{run: DASHES[number % len(DASHES)] for number, run in enumerate(runs)}}
