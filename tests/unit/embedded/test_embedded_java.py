"""Which Java is taken, and what is said about a wrong one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.java import VECTOR, bundled, java_home, version_of, wrap


def fake(folder: Path, version: str, modules: str = VECTOR) -> Path:
    """A JAVA_HOME whose java only knows its version and modules."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\ncase "$1" in -version) echo \'openjdk version "{version}"\' >&2;; '
        f'--list-modules) echo "java.base@17 {modules}@17";; *) echo "$@";; esac\n'
    )
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21)])
def test_versions_are_read(tmp_path: Path, text: str, major: int) -> None:
    assert version_of(fake(tmp_path / "j", text) / "bin" / "java") == major


def test_the_full_java_of_the_path_is_taken(tmp_path: Path) -> None:
    home = fake(tmp_path / "j", "21.0.1")
    assert java_home(tmp_path / "w", {"PATH": f"{home / 'bin'}:/usr/bin:/bin"}) == home


@pytest.mark.parametrize(("version", "modules"), [("11.0.2", VECTOR), ("17.0.9", "java.sql")])
def test_an_old_or_incomplete_java_of_the_path_is_passed_over(tmp_path: Path, version: str, modules: str) -> None:
    home = fake(tmp_path / "j", version, modules)
    chosen = java_home(tmp_path / "w", {"PATH": str(home / "bin")})
    assert chosen == tmp_path / "w"
    assert version_of(chosen / "bin" / "java") == version_of(bundled())


def test_an_old_java_home_is_refused(tmp_path: Path) -> None:
    home = fake(tmp_path / "j", "11.0.2")
    with pytest.raises(EmbeddedError, match=r"a Java 11: Spark needs 17 or newer; change or unset JAVA_HOME\."):
        java_home(tmp_path / "w", {"JAVA_HOME": str(home), "PATH": ""})


def test_a_java_home_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="does not run: point it to a Java 17 or newer, or unset it"):
        java_home(tmp_path / "w", {"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = wrap(fake(tmp_path / "j", "17.0.9") / "bin" / "java", tmp_path / "w")
    done = subprocess.run(
        [str(home / "bin" / "java"), f"--add-modules={VECTOR}", "-cp", "a b", "Main"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "-cp a b Main"


def test_the_bundled_java_runs_behind_the_wrapper(tmp_path: Path) -> None:
    java = wrap(bundled(), tmp_path / "w") / "bin" / "java"
    done = subprocess.run([str(java), f"--add-modules={VECTOR}", "-version"], capture_output=True, text=True)
    assert (done.returncode, "17.0" in done.stderr) == (0, True)
