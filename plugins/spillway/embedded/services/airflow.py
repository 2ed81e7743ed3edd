"""The four Airflow services, their metadata in a database of the same Postgres server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from spillway.embedded.config import HOST, REPO, stack
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.services.base import Context, Launch, Service, get_json, listens
from spillway.embedded.state import write_atomic

_migrating = threading.Lock()


def environment(context: Context) -> dict[str, str]:
    """Airflow's settings. The keys are the same in all four services, else they refuse each other's tokens."""
    home, url = context.layout.airflow, f"http://{HOST}:{context.ports['airflow']}"
    user, secrets = stack()["airflow"]["user"], context.secrets
    spark = {
        "conn_type": "spark",
        "host": f"spark://{HOST}",
        "port": context.ports["spark_master"],
        "extra": {"deploy-mode": "client"},
    }
    return {
        **context.service_env("control"),
        **stack()["airflow"]["environment"],
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPO / "plugins"),
        "AIRFLOW__CORE__FERNET_KEY": secrets["airflow_fernet"],
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{user}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(context.ports["airflow"]),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": secrets["airflow_secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets["airflow_jwt"] * 2,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": context.dsn("airflow", "airflow").replace(
            "postgresql://", "postgresql+psycopg2://"
        ),
        "AIRFLOW_CONN_SPILLWAY_CONTROL": context.dsn("spillway_control").replace("postgresql://", "postgres://"),
        "AIRFLOW_CONN_SPILLWAY_SPARK": json.dumps(spark),
    }


def program() -> str:
    return str(Path(sys.executable).with_name("airflow"))


def migrated(context: Context) -> bool:
    """Whether this version of Airflow has already made its tables in this database."""
    import psycopg2

    stamp = context.layout.data / "airflow-version"
    if not stamp.exists() or stamp.read_text() != version("apache-airflow"):
        return False
    connection = psycopg2.connect(context.dsn("airflow", "airflow"), connect_timeout=5)
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "select to_regclass('public.alembic_version') is not null and to_regclass('public.dag_run') is not null"
            )
            row = cursor.fetchone()
            return bool(row and row[0])
    finally:
        connection.close()


def prepare(context: Context) -> None:
    """The login and the tables; whichever of the services comes first does it for all."""
    with _migrating:
        user = stack()["airflow"]["user"]
        write_atomic(context.layout.airflow / "passwords.json", json.dumps({user: context.secrets["airflow_admin"]}))
        if migrated(context):
            return
        log_path = context.layout.log("airflow-migrate")
        with log_path.open("ab") as log:
            code = subprocess.run(
                [program(), "db", "migrate"], env=environment(context), cwd=context.layout.airflow,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            ).returncode  # fmt: skip
        if code != 0:
            raise EmbeddedError(f"Airflow cannot make its tables (`airflow db migrate` ended with {code}): see {log_path}.")
        write_atomic(context.layout.data / "airflow-version", version("apache-airflow"))


def scheduler_environment(context: Context) -> dict[str, str]:
    """The scheduler's tasks clean up Airflow's own old runs: only they get the address of its database. They are forks of it, so
    it imports ahead what they need (container/airflow)."""
    metadata = context.dsn("airflow", "airflow").replace("postgresql://", "postgres://")
    env = environment(context)
    path = f"{env['PYTHONPATH']}:{REPO / 'container' / 'airflow'}"
    return {**env, "AIRFLOW_CONN_AIRFLOW_METADATA": metadata, "PYTHONPATH": path}


def command(*arguments: str, env: Callable[[Context], dict[str, str]] = environment) -> Callable[[Context], Launch]:
    def launch(context: Context) -> Launch:
        return Launch(command=[program(), *arguments], env=env(context), cwd=context.layout.airflow)

    return launch


def api_launch(context: Context) -> Launch:
    return command("api-server", "--host", HOST, "--port", str(context.ports["airflow"]))(context)


def health(context: Context) -> dict[str, dict[str, str | None]]:
    return get_json(f"http://{HOST}:{context.ports['airflow']}/api/v2/monitor/health") or {}


def api_healthy(context: Context, pid: int) -> str | None:
    if not health(context):
        return "not answering yet"
    if not listens(pid, context.ports["airflow"]):
        return f"another program answers on port {context.ports['airflow']}"
    return None


def heartbeat(component: str, field: str) -> Callable[[Context, int], str | None]:
    """Healthy once Airflow reports a heartbeat that is younger than the process."""

    def check(context: Context, pid: int) -> str | None:
        row = health(context).get(component)
        if row is None:
            return "the api-server does not answer yet"
        try:
            beat = datetime.fromisoformat(row.get(field) or "1970-01-01T00:00:00+00:00").timestamp()
            young = beat >= psutil.Process(pid).create_time()
        except (ValueError, psutil.Error):
            young = False
        return None if row.get("status") == "healthy" and young else "no heartbeat yet"

    return check


_TIMEOUT = stack()["airflow"]["start_timeout_s"]
SERVICES = (
    Service(
        name="airflow-api",
        port="airflow",
        needs=("postgres",),
        prepare=prepare,
        launch=api_launch,
        healthy=api_healthy,
        start_timeout_s=_TIMEOUT,
        stop_timeout_s=3,
        stop_stage=1,
    ),
    Service(
        name="airflow-scheduler",
        needs=("postgres", "airflow-api"),  # its tasks talk to the api-server from the first moment
        prepare=prepare,
        launch=command("scheduler", "--skip-serve-logs", env=scheduler_environment),
        healthy=heartbeat("scheduler", "latest_scheduler_heartbeat"),
        start_timeout_s=_TIMEOUT,
        stop_timeout_s=stack()["airflow"]["stop_timeout_s"],  # lets running tasks finish
    ),
    Service(
        name="airflow-dag-processor",
        needs=("postgres",),
        prepare=prepare,
        launch=command("dag-processor"),
        healthy=heartbeat("dag_processor", "latest_dag_processor_heartbeat"),
        start_timeout_s=_TIMEOUT,
        stop_timeout_s=10,
    ),
    Service(
        name="airflow-triggerer",
        needs=("postgres",),
        prepare=prepare,
        launch=command("triggerer", "--skip-serve-logs"),
        healthy=heartbeat("triggerer", "latest_triggerer_heartbeat"),
        start_timeout_s=_TIMEOUT,
        stop_timeout_s=3,  # nothing waits in it
    ),
)
