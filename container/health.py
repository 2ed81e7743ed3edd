"""Health checks of the containers: `health.py WHAT [ARGUMENT]`. Exit code 0: healthy; else 1 and one sentence."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

STALE_S = 60


class Unhealthy(Exception):
    """One sentence."""


def get(url: str) -> Any:
    """A JSON document, never through a proxy."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise Unhealthy(f"{url} does not answer: {error}.") from error


def spark_master() -> None:
    state = get(f"{os.environ['SPILLWAY_SPARK_UI']}/json/")
    if state.get("status") != "ALIVE" or state.get("url") != os.environ["SPILLWAY_SPARK_MASTER"]:
        raise Unhealthy(f"the master is {state.get('url')} and {state.get('status')}.")


def spark_worker(page: str) -> None:
    """Up, and known to the master under the id it has now."""
    mine = get(f"{page}/json/").get("id")
    known = {w["id"] for w in get(f"{os.environ['SPILLWAY_SPARK_UI']}/json/").get("workers", []) if w.get("state") == "ALIVE"}
    if mine not in known:
        raise Unhealthy(f"the master does not know {mine}.")


def airflow(component: str) -> None:
    """As the api-server reports it, which knows the heartbeat of each."""
    status = get(f"{os.environ['SPILLWAY_AIRFLOW']}/api/v2/monitor/health").get(component, {}).get("status")
    if status != "healthy":
        raise Unhealthy(f"Airflow says that {component} is {status}.")


def agent(node: str) -> None:
    """Its measurements arrive."""
    import psycopg2

    try:
        connection = psycopg2.connect(os.environ["SPILLWAY_DSN_JOB"], connect_timeout=3, application_name="spillway-health")
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "select count(*) from spillway.node_metric where node = %s and at > now() - make_interval(secs => %s)",
                    (node, STALE_S),
                )
                row = cursor.fetchone()
        finally:
            connection.close()
    except psycopg2.Error as error:
        raise Unhealthy(f"Postgres cannot be asked for {node}: {str(error).strip()}.") from error
    if row is None or not row[0]:
        raise Unhealthy(f"{node} was not measured for {STALE_S} s.")


CHECKS: dict[str, Callable[..., None]] = {
    "spark-master": spark_master,
    "spark-worker": spark_worker,
    "airflow": airflow,
    "agent": agent,
}


def main(argv: list[str]) -> int:
    try:
        CHECKS[argv[0]](*argv[1:])
    except Unhealthy as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
