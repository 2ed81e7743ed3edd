"""Format, lint and types, so that whatever runs the tests holds them too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "command", [("ruff", "format", "--check", "."), ("ruff", "check", "."), ("mypy",)], ids=("format", "lint", "types")
)
def test_the_code_is_clean(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
