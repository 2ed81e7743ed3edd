"""A bench that misses a goal it states says so in its last line and in its exit code."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a bench as `make bench` would."""
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("goals", "code"),
    [
        ({}, 0),
        ({"a": True, "b": {"x": True}}, 0),
        ({"a": False, "b": True}, 1),
        ({"a": True, "b": {"x": True, "y": False}}, 1),
    ],
)
def test_one_missed_goal_is_enough(bench: Any, goals: dict[str, Any], code: int) -> None:
    assert bench("_common").exit_code(goals) == code


@pytest.mark.parametrize(
    ("services", "both", "missed"),
    [
        ((30.0, 4.0), (80.0, 5.0), None),
        ((36.0, 4.0), (80.0, 5.0), "services_at_most_35_pct"),
        ((30.0, 4.0), (86.0, 5.0), "idle_pipeline_at_most_55_pct"),
        ((30.0, 4.0), (80.0, 8.1), "memory_at_most_8_gb"),
    ],
)
def test_idle(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    services: tuple[float, float],
    both: tuple[float, float],
    missed: str | None,
) -> None:
    measured = [{"cpu_pct": cpu, "memory_gb": memory} for cpu, memory in (services, both)]
    assert bench("idle").conclude(*measured) == (0 if missed is None else 1)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == ([missed] if missed else [])


@pytest.mark.parametrize(
    ("held", "largest", "missed"),
    [(True, 300_000, None), (False, 300_000, "every_rate_held"), (True, 199_000, "largest_rate_at_least_200000")],
)
def test_injector(
    bench: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    held: bool,
    largest: int,
    missed: str | None,
) -> None:
    injector = bench("injector")
    topic = SimpleNamespace(asked=1000, at_broker=1000, error_pct=0.0)
    report = SimpleNamespace(
        topics=[topic], ran_s=1.0, cpu_s=0.1, late_ms_p50=1.0, late_ms_p99=1.0, late_ms_max=1.0, ok=held,
        problems=[] if held else ["it fell behind"], second_error_pct=lambda: (0.0, 0.0),
    )  # fmt: skip
    monkeypatch.setattr(injector, "run", lambda *_: report)
    monkeypatch.setattr(injector, "largest_rate", lambda *_, **__: (float(largest), 1.0))
    assert injector.measure("nowhere", 1.0) == (0 if missed is None else 1)
    assert [name for name, met in last_line(capsys)["goals"].items() if not met] == ([missed] if missed else [])
