"""Where the services are: variables, the env file, and the sentence when neither says."""

from __future__ import annotations

from pathlib import Path

import pytest
from spillway.store.environment import dsn, environment, home, require
from spillway.store.errors import NotConfigured


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "env").write_text(text)
    return folder


def test_the_file_fills_what_is_not_set(tmp_path: Path) -> None:
    run = write(
        tmp_path / "run", "# written by the supervisor\n\nSPILLWAY_KAFKA=127.0.0.1:9\nSPILLWAY_DSN_JOB='postgresql://a=b'\n"
    )
    given = {"SPILLWAY_HOME": str(run), "SPILLWAY_KAFKA": "elsewhere:1", "OTHER": "x", "SPILLWAY_NODE": ""}
    values = environment(given)
    assert values == {"SPILLWAY_HOME": str(run), "SPILLWAY_KAFKA": "elsewhere:1", "SPILLWAY_DSN_JOB": "postgresql://a=b"}
    assert dsn("job", given) == "postgresql://a=b"


def test_home_is_that_of_the_clone_wherever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / ".spillway", "SPILLWAY_KAFKA=another run\n")
    monkeypatch.chdir(tmp_path)
    assert home({}) == Path(__file__).resolve().parents[3] / ".spillway"
    assert home({"SPILLWAY_HOME": "here"}) == tmp_path / "here"


def test_home_without_a_clone_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.store.environment._CLONE", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ".spillway", "SPILLWAY_KAFKA=x\n")
    assert require("SPILLWAY_KAFKA", {}) == "x"


def test_missing_variable(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured) as raised:
        require("SPILLWAY_KAFKA", {"SPILLWAY_HOME": str(tmp_path)})
    assert str(raised.value) == (
        f"SPILLWAY_KAFKA is not set and {tmp_path}/env does not give it: run `make up`, or set the variable."
    )


def test_broken_file(tmp_path: Path) -> None:
    run = write(tmp_path, "SPILLWAY_KAFKA=x\nwhat is this\n")
    with pytest.raises(NotConfigured, match=r"env:2 is not KEY=value: run `make up` to write the file anew\."):
        environment({"SPILLWAY_HOME": str(run)})


def test_unknown_role() -> None:
    with pytest.raises(NotConfigured, match="there is no role admin: roles are owner, control, job, read"):
        dsn("admin", {})
