"""A run folder is made or recognised; nothing else is changed, and nothing but what a run made is removed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from spillway.embedded import EmbeddedError, Stack
from spillway.embedded.__main__ import main

REFUSED = r"holds files and is not a run folder of Spillway: set SPILLWAY_HOME to a new or an empty folder\."


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody's folder that looks a little like ours."""
    folder = tmp_path / "thesis"
    (folder / "run").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "data" / "chapter.tex").write_text("years of work")
    (folder / "env").write_text("mine")
    folder.chmod(0o750)
    return folder


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake here fails a test and does not start services in a folder that nobody looks at."""

    def refuse(*_: object) -> None:
        raise EmbeddedError("Services would have been started.")

    monkeypatch.setattr(Stack, "_spawn", refuse)


def everything(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): mode(p) for p in [folder, *folder.rglob("*")]}


@pytest.mark.parametrize("verb", ["up", "clean"])
def test_a_foreign_folder_is_refused_in_one_sentence(foreign: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(foreign)
    assert main(["--home", str(foreign), verb]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{foreign} " + REFUSED.replace("\\", "")
    assert everything(foreign) == before


@pytest.mark.parametrize(("verb", "code"), [("down", 0), ("status", 3)])
def test_looking_into_a_foreign_folder_leaves_nothing_and_takes_nothing(foreign: Path, verb: str, code: int) -> None:
    before = everything(foreign)
    assert main(["--home", str(foreign), verb]) == code
    assert everything(foreign) == before


def test_what_a_run_made_goes_and_so_does_its_folder(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home")
    stack.layout.make()
    stack.layout.env.write_text("X=1")
    (stack.layout.data / "postgres").mkdir()
    stack.layout.make()
    stack.clean()
    assert list(tmp_path.iterdir()) == []
    stack.clean()


def test_what_somebody_put_into_a_run_folder_stays(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home")
    stack.layout.make()
    (stack.layout.home / "notes.txt").write_text("mine")
    stack.clean()
    assert [p.name for p in stack.layout.home.iterdir()] == ["notes.txt"]
    with pytest.raises(EmbeddedError, match=REFUSED):
        stack.layout.make()


def test_an_empty_folder_is_used_as_it_is_and_left_empty(tmp_path: Path) -> None:
    home = tmp_path / "mounted"
    home.mkdir()
    home.chmod(0o755)
    stack = Stack(home)
    stack.layout.make()
    assert mode(home) == 0o755
    stack.clean()
    assert list(home.iterdir()) == []
    assert mode(home) == 0o755


def test_data_that_cannot_be_removed_are_said_and_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(tmp_path / "home")
    stack.layout.make()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(EmbeddedError, match=r"cannot be removed completely: check who owns what is in it\."):
            stack.clean()
    stack.clean()
    assert not stack.layout.home.exists()
