from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from tests.support.benches import BENCH


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a bench as `make bench` would."""
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load
