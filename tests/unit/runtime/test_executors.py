"""Rows per executor, from what the driver's REST API says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from spark_jobs.runtime.executors import COLUMNS, ExecutorReader, newest_job, scaled, shares

JOBS: list[dict[str, Any]] = [
    {"jobId": 3, "jobGroup": "run-a", "status": "SUCCEEDED", "stageIds": [5, 6]},
    {"jobId": 4, "jobGroup": "run-a", "status": "RUNNING", "stageIds": [7]},
    {"jobId": 2, "jobGroup": "run-a", "status": "SUCCEEDED", "stageIds": [4]},
    {"jobId": 9, "jobGroup": "run-b", "status": "SUCCEEDED", "stageIds": [8], "numSkippedStages": 1},
]
STAGES: dict[str, list[dict[str, Any]]] = {
    "5": [
        {
            "executorCpuTime": 4e6,
            "executorSummary": {"0": {"inputRecords": 1, "taskTime": 1}, "1": {"inputRecords": 3, "taskTime": 3}},
        }
    ],
    "6": [{"executorCpuTime": 2e6, "executorSummary": {"1": {"inputRecords": 0, "taskTime": 9}}}],
}


@pytest.fixture
def api() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = JOBS if self.path.endswith("/jobs") else STAGES.get(self.path.rsplit("/", 1)[1])
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_the_newest_finished_job_of_the_query_counts() -> None:
    assert (newest_job(JOBS, "run-a") or {})["jobId"] == 3
    assert newest_job(JOBS, "run-b") is None, "a job that skipped stages does not tell all its rows"
    assert newest_job(JOBS, "run-c") is None


def test_shares_of_one_job_are_applied_to_the_window(api: str) -> None:
    now = [0.0]
    reader = ExecutorReader(api, "app-1", ("p", "front"), every_s=15.0, clock=lambda: now[0])
    reader.read("a", 400)
    assert not reader.due()
    now[0] = 20.0
    assert reader.due()
    rows = [dict(zip(COLUMNS, r, strict=True)) for r in reader.collect({"a": "run-a", "b": "run-b"}).rows]
    assert [(r["operator"], r["executor"], r["rows"], r["window_s"]) for r in rows] == [
        ("a", "0", 100, 20.0),
        ("a", "1", 300, 20.0),
    ]
    assert [r["cpu_ms"] for r in rows] == [100.0, 500.0]
    assert not reader.due(), "nothing was read since"


def test_an_api_that_does_not_answer_costs_nothing_but_the_window() -> None:
    now = [0.0]
    reader = ExecutorReader("http://127.0.0.1:9", "app-1", ("p", "front"), every_s=1.0, clock=lambda: now[0])
    reader.read("a", 10)
    now[0] = 2.0
    assert reader.collect({"a": "run-a"}).rows == ()
    assert scaled(shares([]), 10) == []
    assert not ExecutorReader(None, "app-1", ("p", "front"), every_s=0.0).due()
