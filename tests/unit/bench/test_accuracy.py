"""The arithmetic of `make bench NAME=accuracy`, without its services."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("accuracy")


def test_errors_and_how_often_the_bar_holds_the_truth(accuracy: Any) -> None:
    found = accuracy.compared([101.0, 98.0, 100.0, 110.0], [2.0, 1.0, 0.0, 10.0], [100.0] * 4)
    assert (found["windows"], found["error_pct"], found["held"]) == (4, 3.25, 0.75)
    assert found["bar_pct"] == 3.25


def test_long_windows_are_sums_of_short_ones(accuracy: Any) -> None:
    size = accuracy.SHORT_IN_LONG
    sums, errors = accuracy.long_windows([1.0] * 2 * size, [3.0] * 2 * size)
    assert sums == [size, size] and errors == pytest.approx([3.0 * size**0.5] * 2)
    assert accuracy.WINDOWS % size == 0


def keep(value: float, load: float, error: float, held: float, cpu: float = 0.1) -> dict[str, Any]:
    ratios = {"load_ratio": {"median": load}, "cpu_ratio": {"median": cpu}}
    return {"keep": value, **ratios, "long": {"error_pct": error}, "short": {"held": held}}


@pytest.mark.parametrize(
    ("keeps", "missed"),
    [
        ([keep(0.5, 1.7, 0.5, 0.95), keep(0.4, 2.1, 0.8, 0.94), keep(0.3, 2.4, 1.2, 0.92)], []),
        ([keep(0.4, 2.1, 1.1, 0.94)], ["load_at_1_pct_error_at_least_2"]),
        ([keep(0.4, 2.1, 0.8, 0.92)], ["bar_holds_truth_at_least_0.93"]),
        ([keep(0.4, 2.1, 0.8, 0.95, 0.55)], ["load_at_1_pct_error_at_least_2", "bar_holds_truth_at_least_0.93"]),
        ([keep(0.4, 1.9, 0.8, 0.95)], ["load_at_1_pct_error_at_least_2", "bar_holds_truth_at_least_0.93"]),
    ],
)
def test_goals(accuracy: Any, capsys: pytest.CaptureFixture[str], keeps: list[dict[str, Any]], missed: list[str]) -> None:
    unshed = keep(1.0, 1.0, 0.0, 1.0)
    assert accuracy.conclude([unshed, *keeps]) == (1 if missed else 0)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [name for name, met in said["goals"].items() if not met] == missed
    assert said["bench"] == "accuracy"


def test_every_round_counts_and_is_held_against_the_truth(accuracy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "WINDOWS", 2)
    monkeypatch.setattr(accuracy, "WINDOW_ROWS", 10)
    monkeypatch.setattr(accuracy, "SHORT_IN_LONG", 2)

    def answer(sums: tuple[float, float], error: float, rows: int, batch_s: float) -> Any:
        run = accuracy.Run(cpu_s=batch_s, wall_s=batch_s, rows=20, batch_s=batch_s)
        return accuracy.Answer(run=run, sums=sums, errors=(error, error), rows=rows)

    whole = [answer((100.0, 200.0), 0.0, 20, 4.0)] * 2
    shed = [answer((101.0, 206.0), 3.0, 9, 2.0), answer((90.0, 206.0), 12.0, 11, 1.0)]
    unshed, half = accuracy.judged({1.0: whole, 0.5: shed})
    assert unshed["short"]["error_pct"] == 0.0 and unshed["load_ratio"]["median"] == 1.0
    assert half["kept"] == 0.5 and half["load_ratio"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert half["short"]["windows"] == 4 and half["short"]["held"] == 0.75
    assert half["short"]["error_pct"] == pytest.approx(100 * (0.01 + 0.03 + 0.1 + 0.03) / 4, abs=1e-3)
    assert half["long"]["windows"] == 2 and half["long"]["error_pct"] == pytest.approx(100 * (7 + 4) / 300 / 2, abs=1e-3)
    assert half["long"]["held"] == 0.5
