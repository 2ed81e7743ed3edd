"""Folders of processes that were killed are found and emptied; those of the living, of others and of nobody are left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from spillway.embedded import Stack
from spillway.embedded.config import REPO
from spillway.embedded.owner import RECORD, claim, owner, scratch, sweep_scratch
from spillway.embedded.processes import MARK, Identity


@pytest.fixture
def dead() -> Identity:
    """A process that is no more."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = Identity.of(process.pid)
        process.kill()
    return identity


@pytest.fixture
def left(tmp_path: Path, dead: Identity) -> Path:
    """The folder of a session that was killed, with one run folder."""
    folder = tmp_path / "spillway-test-x"
    Stack(folder / "own").layout.make()
    (folder / RECORD).write_text(json.dumps({"pid": dead.pid, "created": dead.created}))
    return folder


@pytest.fixture
def service(left: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A service of that run folder that lives on."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"], env=os.environ | {MARK: str(left / "own")}
    )
    yield process
    process.kill()
    process.wait()


def test_what_a_killed_process_left_is_ended_and_removed(tmp_path: Path, left: Path, service: subprocess.Popen[bytes]) -> None:
    assert sweep_scratch(tmp_path) == [left]
    assert service.wait(10) == -9
    assert not left.exists()
    assert sweep_scratch(tmp_path) == []


def test_the_folder_of_a_living_process_is_left_alone(tmp_path: Path, left: Path, service: subprocess.Popen[bytes]) -> None:
    claim(left / RECORD)
    assert owner(left / RECORD) == Identity.of(os.getpid())
    assert sweep_scratch(tmp_path) == []
    assert service.poll() is None


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"pid": "x", "created": 1}'])
def test_a_folder_that_names_no_owner_is_left_alone(tmp_path: Path, left: Path, text: str | None) -> None:
    (left / RECORD).unlink()
    if text is not None:
        (left / RECORD).write_text(text)
    assert sweep_scratch(tmp_path) == []
    assert left.exists()


def test_the_folder_of_another_user_is_left_alone(tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    assert sweep_scratch(tmp_path) == []
    assert left.exists()


def test_a_link_is_not_followed(tmp_path: Path, left: Path) -> None:
    there = tmp_path / "elsewhere"
    left.rename(there)
    left.symlink_to(there)
    assert sweep_scratch(tmp_path) == []
    assert there.exists()


def test_scratch_sweeps_first_and_goes_with_its_process(
    tmp_path: Path, left: Path, service: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch("bench") as folder:
        assert not left.exists()
        assert folder.parent == tmp_path
        assert folder.name.startswith("spillway-bench-")
        assert sweep_scratch() == []
        assert folder.exists()
    assert not folder.exists()
    assert service.wait(10) == -9


def test_a_test_that_takes_too_long_fails_and_its_fixtures_still_clean_up(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(
        textwrap.dedent("""
            import pathlib, time, pytest

            @pytest.fixture
            def service():
                yield
                pathlib.Path(__file__).with_name("stopped").touch()

            def test_slow(service):
                time.sleep(60)
            """)
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(REPO / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-o", "timeout=1", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout
    assert (tmp_path / "stopped").exists()
