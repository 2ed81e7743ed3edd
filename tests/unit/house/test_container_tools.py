"""The small programs in the image: health checks, and the maker of .env."""

from __future__ import annotations

import base64
import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from container import health, make_env

EXAMPLE = "# POSTGRES_PASSWORD= is for init\nPOSTGRES_PASSWORD=\nAIRFLOW_FERNET_KEY=\n\nSPILLWAY_CORE_N1=0\n"


def test_only_empty_values_are_filled() -> None:
    first, second = make_env.fill(EXAMPLE).splitlines(), make_env.fill(EXAMPLE).splitlines()
    assert first[0] == "# POSTGRES_PASSWORD= is for init"
    assert first[3:] == ["", "SPILLWAY_CORE_N1=0"]
    assert len(base64.urlsafe_b64decode(first[2].partition("=")[2])) == 32
    assert len(first[1].partition("=")[2]) >= 64
    assert first[1] != second[1]


def test_an_env_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".env.example").write_text(EXAMPLE)
    assert make_env.main(tmp_path) == 0
    made = (tmp_path / ".env").read_text()
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert make_env.main(tmp_path) == 1
    assert (tmp_path / ".env").read_text() == made
    assert "already there" in capsys.readouterr().err


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A server whose JSON pages the test fills in; Spark's master and Airflow are both there."""
    answers: dict[str, Any] = {}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, {})).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "SPILLWAY_SPARK_UI": address,
        "SPILLWAY_SPARK_MASTER": "spark://m:7077",
        "SPILLWAY_AIRFLOW": address,
    }.items():
        monkeypatch.setenv(name, value)
    answers["address"] = address
    yield answers
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [("spark://m:7077", "ALIVE", 0), ("spark://m:7077", "STANDBY", 1), ("spark://stranger:7077", "ALIVE", 1)],
)
def test_the_master_must_be_ours_and_alive(pages: dict[str, Any], url: str, status: str, code: int) -> None:
    pages["/json/"] = {"url": url, "status": status}
    assert health.main(["spark-master"]) == code


@pytest.mark.parametrize(
    ("state", "known", "code"), [("ALIVE", "worker-1", 0), ("DEAD", "worker-1", 1), ("ALIVE", "worker-2", 1)]
)
def test_a_worker_must_be_known_to_the_master(pages: dict[str, Any], state: str, known: str, code: int) -> None:
    pages["/json/"] = {"workers": [{"id": known, "state": state}]}
    pages["/worker/json/"] = {"id": "worker-1"}
    assert health.main(["spark-worker", f"{pages['address']}/worker"]) == code


@pytest.mark.parametrize(("status", "code"), [("healthy", 0), ("unhealthy", 1), (None, 1)])
def test_airflow_says_how_its_parts_are(pages: dict[str, Any], status: str | None, code: int) -> None:
    pages["/api/v2/monitor/health"] = {"scheduler": {"status": status}}
    assert health.main(["airflow", "scheduler"]) == code


def test_nobody_there_is_a_sentence(pages: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["airflow", "scheduler"]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_an_agent_without_its_database_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SPILLWAY_DSN_JOB", "postgresql://x:y@127.0.0.1:1/spillway")
    assert health.main(["agent", "n1"]) == 1
    assert "Postgres cannot be asked for n1" in capsys.readouterr().err
