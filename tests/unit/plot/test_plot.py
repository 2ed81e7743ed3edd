"""Figures of runs: which lines there are, and that a file comes out of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spillway.model.samples import Mark, Measure, Sample
from spillway.plot import PlotError, draw
from spillway.plot.series import MOST_LINES, chosen, colors, dashes, lines


def rows(measure: Measure, name: str, *values: float | None, run: str = "") -> list[Sample]:
    return [Sample(t_s=15.0 * n, measure=measure, name=name, value=value, run=run) for n, value in enumerate(values, 1)]


def test_a_line_per_name_and_run_in_order_of_time() -> None:
    table = [*rows(Measure.KEEP, "a:b", 1.0, None, 0.5), *rows(Measure.KEEP, "a:b", 1.0, 1.0, 1.0, run="other")]
    first, second = lines(reversed(table))
    assert (first.run, second.run) == ("other", "")
    assert second.times == [15.0, 30.0, 45.0]
    assert second.values[0] == 1.0 and second.values[1] != second.values[1] and second.values[2] == 0.5


def test_edges_into_one_operator_that_keep_the_same_are_one_line() -> None:
    table = [
        *rows(Measure.KEEP, "x:union", 1.0, 0.5),
        *rows(Measure.KEEP, "y:union", 1.0, 0.5),
        *rows(Measure.KEEP, "z:union", 1.0, 1.0),
    ]
    assert [line.names for line in lines(table)] == [["x:union", "y:union"], ["z:union"]]
    alike = [*rows(Measure.ACCURACY, "a", 1.0, 0.5), *rows(Measure.ACCURACY, "b", 1.0, 0.5)]
    assert [line.names for line in lines(alike)] == [["a"], ["b"]], "two operators stay two lines"
    sent = [*rows(Measure.OFFERED, "a", 9.0), *rows(Measure.OFFERED, "b", 9.0)]
    assert [line.names for line in lines(sent)] == [["a", "b"]], "what is offered from outside is offered to both"


def test_an_operator_has_one_colour_and_a_run_one_style() -> None:
    table = [*rows(Measure.KEEP, "x:b", 1.0), *rows(Measure.ACCURACY, "b", 1.0), *rows(Measure.ACCURACY, "c", 1.0, run="two")]
    found = lines(table)
    assert set(colors(found)) == {"b", "c"} and len(set(colors(found).values())) == 2
    assert dashes(found) == {"": "solid", "two": "solid"}


def test_what_is_the_same_in_every_run_is_drawn_once() -> None:
    table = [
        *rows(Measure.OFFERED, "q", 9.0, 9.0, run="one"),
        *rows(Measure.OFFERED, "q", 9.0, 9.0, run="two"),
        *rows(Measure.LAG, "q", 0.0, 1.0, run="one"),
        *rows(Measure.LAG, "q", 0.0, 99.0, run="two"),
    ]
    found = lines(table)
    assert [(line.measure, line.run) for line in found] == [(Measure.OFFERED, ""), (Measure.LAG, "one"), (Measure.LAG, "two")]
    styles = dashes(found)
    assert styles["one"] == styles[""] == "solid" != styles["two"]


def test_of_too_many_lines_those_that_change_most_are_drawn() -> None:
    table = [s for n in range(20) for s in rows(Measure.LAG, f"q{n}", 0.0, float(n))]
    shown, left_out = chosen(lines(table))
    assert [line.names[0] for line in shown] == [f"q{n}" for n in range(20 - MOST_LINES, 20)]
    assert left_out == 20 - MOST_LINES


def test_a_figure_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    table = [
        *rows(Measure.OFFERED, "q", 100.0, 900.0, 100.0),
        *rows(Measure.PROCESSED, "q", 100.0, 500.0, None),
        *rows(Measure.LAG, "q", 0.0, 4.0, 0.0, run="with control"),
        *rows(Measure.LAG, "q", 0.0, 40.0, 400.0, run="without control"),
        *rows(Measure.KEEP, "t:q", 1.0, 0.5, 1.0),
        *rows(Measure.ACCURACY, "q", 1.0, 0.5, 1.0),
        *rows(Measure.FLOOR, "q", 0.3, 0.3, 0.3),
    ]
    marks = [Mark(t_s=30.0, text=f"thing {n}") for n in range(30)]
    png = draw(table, tmp_path / "a.png", title="a title", marks=marks, lag_limit_s=2.0)
    assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 20_000
    svg = draw(table, tmp_path / "a.svg", title="a title", marks=marks).read_text()
    assert svg.count('<g id="axes_') == 4 and "<svg" in svg


def test_panels_without_samples_are_left_out(tmp_path: Path) -> None:
    table = [*rows(Measure.KEEP, "t:q", 1.0, 0.5), *rows(Measure.ACCURACY, "q", 1.0, 0.5)]
    assert draw(table, tmp_path / "a.svg", title="x").read_text().count('<g id="axes_') == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.txt", r"a.txt cannot be written: a figure ends in .png, .svg or .pdf"),
        ("no/such/a.png", "cannot be written: No such file"),
    ],
)
def test_a_figure_that_cannot_be_written_is_one_sentence(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(PlotError, match=says):
        draw(rows(Measure.KEEP, "t:q", 1.0), tmp_path / name, title="x")


def test_nothing_to_draw() -> None:
    with pytest.raises(PlotError, match="nothing to draw"):
        draw([], "a.png", title="x")


def test_matplotlib_is_imported_only_when_drawing() -> None:
    code = "import sys, spillway.plot, spillway.cli.simulate, spillway.simulate.table; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
