"""Every worked example in a docstring holds."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(
    file.relative_to(base)
    for base in (ROOT / "plugins", ROOT)
    for file in (base / ("spillway" if base.name == "plugins" else "spark_jobs")).rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_examples_hold(file: Path) -> None:
    result = doctest.testmod(importlib.import_module(".".join(file.with_suffix("").parts)))
    assert result.attempted > 0 and result.failed == 0
