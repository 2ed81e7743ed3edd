"""Rate, lag, keep and accuracy over time, one under the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from spillway.model.samples import Mark, Measure, Sample
from spillway.plot.series import Line, chosen, colors, dashes, lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: tuple[tuple[str, tuple[Measure, ...]], ...] = (
    ("events per second", (Measure.OFFERED, Measure.PROCESSED)),
    ("lag, seconds of traffic", (Measure.LAG,)),
    ("keep, share of events by edge", (Measure.KEEP,)),
    ("accuracy, share of source events by query (dotted: its floor)", (Measure.ACCURACY, Measure.FLOOR)),
)
SHARES = (Measure.KEEP, Measure.ACCURACY)
FAR = 30.0
"""Lags beyond this many times the limit are drawn by powers of ten, or the limit would not be seen."""
_LETTERS = ascii_uppercase
INK, GRID, GREY = "#222222", "#e3e3e3", ("#555555", "#8a8a8a", "#b0b0b0")


class PlotError(ValueError):
    """A figure that cannot be drawn or written, in one sentence."""


def draw(
    samples: Iterable[Sample],
    path: str | Path,
    *,
    title: str,
    marks: Sequence[Mark] = (),
    lag_limit_s: float | None = None,
) -> Path:
    """Writes the figure of a table of samples; the end of `path` chooses the format (.png, .svg, .pdf).

    A panel without samples is left out. Operators have one colour in all panels; with several runs, the first is solid.
    """
    found = lines(samples)
    panels = [(label, [line for line in found if line.measure in measures]) for label, measures in PANELS]
    panels = [(label, of_panel) for label, of_panel in panels if of_panel]
    if not panels:
        raise PlotError("there is nothing to draw: the table of samples is empty")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 1.0 + 2.15 * len(panels) + 0.17 * min(len(marks), 27)), dpi=120, layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes: list[Axes] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    shades, styles = colors(found), dashes(found)
    for axis, (label, of_panel) in zip(axes, panels, strict=True):
        _panel(axis, label, of_panel, shades, styles)
        if lag_limit_s is not None and of_panel[0].measure is Measure.LAG:
            if max(line.highest for line in of_panel) > FAR * lag_limit_s:
                axis.set_yscale("symlog", linthresh=lag_limit_s)
                axis.yaxis.set_major_formatter("{x:g}")
            axis.axhline(lag_limit_s, color=INK, linewidth=0.8, linestyle=(0, (2, 2)), label=f"limit, {lag_limit_s:g} s")
        for mark in marks:
            axis.axvline(mark.t_s, color=INK, linewidth=0.7, alpha=0.6)
        _legend(axis)
    axes[-1].set_xlim(min(0.0, *(line.times[0] for line in found)), max(line.times[-1] for line in found))
    _write_marks(axes[0], axes[-1], marks)
    return _save(figure, Path(path))


def _panel(axis: Axes, label: str, of_panel: list[Line], shades: dict[str, str], styles: dict[str, object]) -> None:
    floors = [line for line in of_panel if line.measure is Measure.FLOOR]
    shown, left_out = chosen([line for line in of_panel if line.measure is not Measure.FLOOR])
    greys = iter(GREY * len(shown))
    for line in shown:
        outside = line.measure is Measure.OFFERED
        axis.plot(
            line.times,
            line.values,
            color=next(greys) if outside else shades[line.subject],
            linestyle=styles[line.run],
            linewidth=1.3 if outside else 1.8,
            drawstyle="steps-pre" if line.measure is Measure.KEEP else "default",
            label=_label(line),
            zorder=2 if outside else 3,
        )
    subjects = {line.subject for line in shown}
    for line in floors:
        if line.subject in subjects:
            axis.plot(line.times, line.values, color=shades[line.subject], linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    axis.set_title(label + (f"  (+ {left_out} that change less)" if left_out else ""), loc="left", fontsize=10, color=INK)
    axis.set_ylim(bottom=0.0)
    if of_panel[0].measure in SHARES:
        axis.set_ylim(0.0, 1.05)
    axis.grid(color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=INK, labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _label(line: Line) -> str:
    names = ", ".join(line.names)
    what = {Measure.OFFERED: f"offered to {names}", Measure.PROCESSED: f"{names} processed"}.get(line.measure, names)
    return f"{what} ({line.run})" if line.run else what


def _legend(axis: Axes) -> None:
    axis.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), fontsize=8.5, frameon=False, borderaxespad=0.0)


def _write_marks(first: Axes, last: Axes, marks: Sequence[Mark]) -> None:
    """A letter above each mark, and what the letters stand for under the figure."""
    where: dict[float, str] = {}
    for mark, letter in zip(marks, _LETTERS, strict=False):
        near = next((t for t in where if abs(t - mark.t_s) < 0.012 * (first.get_xlim()[1] - first.get_xlim()[0])), mark.t_s)
        where[near] = where.get(near, "") + letter
    for t_s, letters in where.items():
        first.annotate(
            letters,
            (t_s, 1.0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            xytext=(3, -2),
            ha="left",
            va="top",
            fontsize=9,
            fontweight="bold",
            color=INK,
        )
    words = [f"{letter}  {mark.t_s:.0f} s: {mark.text}" for mark, letter in zip(marks, _LETTERS, strict=False)]
    if len(marks) > len(_LETTERS):
        words.append(f"and {len(marks) - len(_LETTERS)} more")
    last.set_xlabel("\n".join(["seconds", *words]), color=INK, loc="left", fontsize=9)


def check_path(path: str | Path) -> None:
    """Raises what is known of a path before anything is drawn: how it ends, and that there is a folder for it."""
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    if path.suffix.lstrip(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        raise PlotError(f"{path} cannot be written: a figure ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PlotError(f"{path} cannot be written: No such file or directory")


def _save(figure: Any, path: Path) -> Path:
    check_path(path)
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"{path} cannot be written: {error.strerror or error}") from error
    return path
