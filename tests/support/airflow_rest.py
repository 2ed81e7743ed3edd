"""Airflow's REST API, as an operator's own scripts would use it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import requests
from spillway.embedded import Stack


class Airflow:
    def __init__(self, stack: Stack) -> None:
        self._url = stack.env["SPILLWAY_AIRFLOW"]
        user, password = stack.airflow_login
        login = requests.post(f"{self._url}/auth/token", json={"username": user, "password": password}, timeout=20)
        login.raise_for_status()
        self._headers = {"Authorization": f"Bearer {login.json()['access_token']}"}

    def call(self, method: str, path: str, **more: Any) -> Any:
        answer = requests.request(method, f"{self._url}/api/v2{path}", headers=self._headers, timeout=20, **more)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def runs(self, dag: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The newest first; of one type, or of all."""
        found = self.call("GET", f"/dags/{dag}/dagRuns", params={"order_by": "-run_after", "limit": 100})["dag_runs"]
        return [r for r in found if kind is None or r["run_type"] == kind]

    def trigger(self, dag: str) -> str:
        return str(self.call("POST", f"/dags/{dag}/dagRuns", json={"logical_date": None})["dag_run_id"])

    def pause(self, *dags: str, paused: bool = True) -> None:
        """Those a test does not look at only take CPU from it."""
        for dag in dags:
            self.call("PATCH", f"/dags/{dag}", json={"is_paused": paused})

    def anonymous(self, path: str) -> int:
        return requests.get(f"{self._url}{path}", timeout=20).status_code


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
