"""Airflow in processes of its own, because it reads its settings once, when it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]


def environment(home: Path, metadata: str, **more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SPILLWAY_"))}
    return {
        **inherited,
        "PYTHONPATH": f"{REPO / 'plugins'}:{REPO}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPO / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
        **more,
    }


def migrate(env: dict[str, str]) -> None:
    """Makes Airflow's tables."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True, timeout=120)


def call(env: dict[str, str], *arguments: str) -> Any:
    command = [sys.executable, str(REPO / "tests" / "support" / "dags.py"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
