"""What stops or looks does not install anything first, and what tests runs them all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The Makefile alone: a target that makes the environment fails, because its tool is not there."""
    shutil.copy(REPO / "Makefile", tmp_path)
    return tmp_path


def make(clone: Path, target: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return subprocess.run(["make", target], cwd=clone, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("target", ["down", "status", "logs", "clean"])
def test_without_an_environment_one_sentence_says_so(clone: Path, target: str) -> None:
    done = make(clone, target)
    first, *rest = done.stderr.splitlines()
    assert done.returncode == 2
    assert first == "There is no .venv in this clone, so it has started nothing: run 'make setup' first."
    assert all(line.startswith("make") for line in rest)


@pytest.mark.parametrize("target", ["down", "status", "logs", "clean"])
def test_an_environment_of_an_older_lock_is_good_enough(clone: Path, target: str) -> None:
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = make(clone, target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"-m spillway.embedded {target}")


@pytest.mark.parametrize("target", ["up", "demo", "test"])
def test_what_starts_makes_the_environment_first(clone: Path, target: str) -> None:
    done = make(clone, target)
    assert done.returncode == 2
    assert "bootstrap.py" in done.stderr


@pytest.fixture
def tested(clone: Path) -> Path:
    """One whose tests are not run, but written down; those that `failing` names fail."""
    for name, text in {
        "tools/bootstrap.py": "",
        ".venv/bin/python": '#!/bin/sh\necho "$@" >>ran\ncase "$*" in $FAILING) exit 1;; esac\n',
    }.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
        (clone / name).chmod(0o755)
    return clone


def test_what_is_run_beside_the_services_is_run_once(tested: Path) -> None:
    done = make(tested, "test")
    assert done.returncode == 0, done.stderr
    first, *three, alone = (tested / "ran").read_text().splitlines()
    pure, light, served = sorted(three, key=lambda line: ("tests/unit" not in line, "-m beside" not in line))
    beside = pure.partition("1500 ")[2].split()
    assert beside and all((REPO / folder).is_dir() for folder in beside)
    assert re.findall(r"--ignore=(\S+)", first) == beside and " tests/unit " in first
    assert "tests/integration" in served and "-m not alone and not beside" in served and "-m alone" in alone
    assert served.split()[-3:] == light.split()[-3:] == alone.split()[-3:], "of the same folders, each test once"


@pytest.mark.parametrize("failing", ["*--ignore*", "*1500*", "*loadfile*tests/integration", "*-m beside*", "*-m alone*"])
def test_whichever_tests_fail_make_test_fails(tested: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setenv("FAILING", failing)
    assert make(tested, "test").returncode == 2


def test_every_folder_of_tests_is_run_by_make_test() -> None:
    """It names them, for collecting all tests to choose among takes longer than some of them."""
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    named = {folder for line in re.findall(r"^(?:UNITS|SERVED) := (.*)$", makefile, re.MULTILINE) for folder in line.split()}
    assert named == {f"tests/{f.name}" for f in (REPO / "tests").iterdir() if f.is_dir() and any(f.rglob("test_*.py"))}
