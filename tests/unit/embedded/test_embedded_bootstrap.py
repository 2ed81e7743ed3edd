"""The bootstrap's one sentence for each thing that can be wrong."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType

import pytest
from spillway.embedded.config import REPO, stack


@pytest.fixture
def bootstrap(tmp_path: Path) -> ModuleType:
    """tools/bootstrap.py, pointed at an empty folder."""
    spec = importlib.util.spec_from_file_location("bootstrap", REPO / "tools" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.REPO, module.VENV, module.STAMP = tmp_path, tmp_path / ".venv", tmp_path / ".venv" / "stamp"  # type: ignore[attr-defined]
    return module


def test_the_running_python_is_good_enough(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPILLWAY_PYTHON", raising=False)
    assert bootstrap.version_of(bootstrap.find_python()) == sys.version_info[:2]


def test_a_demanded_python_that_is_none_is_refused(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_PYTHON", "/bin/true")
    with pytest.raises(
        bootstrap.Failure, match=r"SPILLWAY_PYTHON=/bin/true is no Python that runs .*give a Python 3\.11, 3\.12 or 3\.13"
    ):
        bootstrap.find_python()


def test_no_python_at_all_is_one_sentence(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPILLWAY_PYTHON", raising=False)
    monkeypatch.setattr(bootstrap, "version_of", lambda _: (3, 9))
    with pytest.raises(bootstrap.Failure, match=r"needs Python 3\.11, 3\.12 or 3\.13 .* install one, or set SPILLWAY_PYTHON\."):
        bootstrap.find_python()


def test_a_full_disk_is_said_before_the_download(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 100 * 2**20))
    with pytest.raises(bootstrap.Failure, match="has 100 MB free and the environment needs 4000"):
        bootstrap.make()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("error: Failed to fetch: dns error: failed to lookup address", "The package index cannot be reached while x"),
        ("error: No space left on device (os error 28)", "The disk filled up while x"),
        ("error: Hash mismatch for `pyspark==4.2.0`", "A download while x is not the file the lock names"),
        ("something else", "X failed with code 2: the lines above say why."),
    ],
)
def test_a_failed_step_is_explained(bootstrap: ModuleType, said: str, sentence: str) -> None:
    assert bootstrap.explain("x", 2, said).startswith(sentence)


def test_a_failing_step_raises_and_shows_its_output(bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(bootstrap.Failure, match="The package index cannot be reached"):
        bootstrap.run("asking", [sys.executable, "-c", "print('connection refused'); raise SystemExit(1)"])
    assert "connection refused" in capsys.readouterr().err


def test_an_unchanged_lock_needs_no_work(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "make", lambda: pytest.fail("nothing should be made"))
    monkeypatch.setattr(bootstrap, "digest", lambda: "same")
    bootstrap.STAMP.parent.mkdir()
    bootstrap.STAMP.write_text("same")
    assert bootstrap.main() == 0


def test_the_lock_agrees_with_the_stack() -> None:
    lock = (REPO / "requirements-dev.txt").read_text()
    versions = stack()["versions"]
    assert f"\napache-airflow=={versions['airflow']} " in lock
    assert f"\npyspark=={versions['spark']} " in lock
    assert "--hash=sha256:" in lock
    assert "://" not in lock
