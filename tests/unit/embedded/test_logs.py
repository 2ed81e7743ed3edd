"""`make logs` says something, whatever there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from spillway.embedded.__main__ import main
from spillway.embedded.config import Layout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    logs = Layout(tmp_path).logs
    logs.mkdir()
    (logs / "kafka.log").write_text("first\nlast\n")
    (logs / "supervisor.log").write_text("")
    return tmp_path


def test_the_end_of_a_log(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(home), "logs", "-n", "1", "kafka"]) == 0
    assert capsys.readouterr().out == "last\n"


def test_an_empty_log_is_called_empty_and_the_others_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(home), "logs", "supervisor"]) == 0
    assert (
        capsys.readouterr().out == "The log of supervisor is empty. There are logs of kafka, supervisor: `make logs S=kafka`.\n"
    )


def test_an_empty_log_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (Layout(home).logs / "kafka.log").unlink()
    assert main(["--home", str(home), "logs", "supervisor"]) == 0
    assert capsys.readouterr().out == "The log of supervisor is empty, and there is no other.\n"


def test_a_log_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(home), "logs", "kafak"]) == 1
    assert capsys.readouterr().err == "There is no log called kafak: there are kafka, supervisor.\n"
