"""docker-compose.yml, the Dockerfile and .env.example say the same as stack.toml and the embedded mode; every check can fail."""

from __future__ import annotations

import copy
import dataclasses
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from container import make_env
from tests.unit.house.compose_checks import CHECKS, House

REPO = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def house() -> House:
    text = (REPO / "docker-compose.yml").read_text(encoding="utf-8")
    return House(
        compose=YAML(typ="safe").load(text),
        text=text,
        stack=tomllib.loads((REPO / "stack.toml").read_text(encoding="utf-8")),
        example=(REPO / ".env.example").read_text(encoding="utf-8"),
        dockerfile=(REPO / "Dockerfile").read_text(encoding="utf-8"),
        requirements=(REPO / "requirements.txt").read_text(encoding="utf-8"),
        release=tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
    )


def problems(house: House, only: str | None = None) -> dict[str, list[str]]:
    checks = [check for check in CHECKS if only in (None, check.__name__)]
    return {check.__name__: found for check in checks if (found := list(check(house)))}


def test_it_agrees_with_the_stack(house: House) -> None:
    assert problems(house) == {}


def changed(house: House, change: Callable[[dict[str, Any]], Any]) -> House:
    mutated = copy.deepcopy(house.compose)
    change(mutated["services"])
    return dataclasses.replace(house, compose=mutated)


def env(services: dict[str, Any], name: str) -> dict[str, str]:
    found: dict[str, str] = services[name]["environment"]
    return found


BROKEN: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("schema", "dependz_on", lambda s: s["kafka"].update(dependz_on=["postgres"])),
    ("schema", "restart", lambda s: s["kafka"].update(restart=7)),
    ("parts", "kafka", lambda s: s.pop("airflow-triggerer")),
    ("parts", "agent", lambda s: s.pop("agent-n2")),
    ("health", "airflow-triggerer has no health check", lambda s: s["airflow-triggerer"].pop("healthcheck")),
    ("health", "kafka has no health check", lambda s: s["kafka"]["healthcheck"].update(disable=True)),
    ("health", "lacks ['timeout']", lambda s: s["postgres"]["healthcheck"].pop("timeout")),
    ("health", "init runs once", lambda s: s["init"].update(restart="always")),
    ("health", "wait for init", lambda s: s["airflow-dag-processor"]["depends_on"].update(init={"condition": "service_started"})),
    ("health", "cli does not wait for init", lambda s: s["cli"].pop("depends_on")),
    ("health", "stop_grace_period", lambda s: s["kafka"].pop("stop_grace_period")),
    ("loopback", "beyond loopback", lambda s: s["airflow-api-server"].update(ports=["8080:8080"])),
    ("loopback", "beyond loopback", lambda s: s["postgres"].update(ports=["0.0.0.0:5433:5432"])),
    ("loopback", "stack.toml says ['9092']", lambda s: s["kafka"].update(ports=["127.0.0.1:9094:29092"])),
    ("loopback", "agent-n1 publishes", lambda s: s["agent-n1"].update(ports=["127.0.0.1:1:1"])),
    ("loopback", "host's network", lambda s: s["agent-n1"].update(network_mode="host")),
    ("versions", "not pinned", lambda s: s["kafka"].update(image="apache/kafka:latest")),
    ("versions", "not pinned", lambda s: s["postgres"].update(image="postgres")),
    ("versions", "stack.toml says 18", lambda s: s["postgres"].update(image="postgres:17.6")),
    ("versions", "stack.toml says 4.3.1", lambda s: s["kafka"].update(image="apache/kafka:4.3.0")),
    ("versions", "the project is", lambda s: s["agent-n1"].update(image="spillway:0.0.9")),
    ("settings", "max_connections", lambda s: s["postgres"]["command"].remove("-cmax_connections=100")),
    ("settings", "KAFKA_AUTO_CREATE_TOPICS_ENABLE", lambda s: env(s, "kafka").update(KAFKA_AUTO_CREATE_TOPICS_ENABLE="true")),
    ("settings", "heap", lambda s: env(s, "kafka").update(KAFKA_HEAP_OPTS="-Xmx1g")),
    ("settings", "spark.deploy.maxExecutorRetries", lambda s: env(s, "spark-master").update(SPARK_MASTER_OPTS="-Da=b")),
    ("settings", "spark.worker.resource.n2.amount", lambda s: env(s, "spark-worker-n2").update(
        SPARK_WORKER_OPTS=env(s, "spark-worker-n1")["SPARK_WORKER_OPTS"])),
    ("settings", "--cores", lambda s: s["spark-worker-n1"]["command"].__setitem__(
        s["spark-worker-n1"]["command"].index("--cores") + 1, "2")),
    ("settings", "tagged as node n1", lambda s: env(s, "spark-worker-n1").update(SPILLWAY_NODE="n2")),
    ("settings", "does not see the processes", lambda s: s["agent-n2"].pop("pid")),
    ("environment", "SPILLWAY_KAFKA is", lambda s: env(s, "spark-worker-n2").update(SPILLWAY_KAFKA="kafka:9093")),
    ("environment", "which the embedded mode sets", lambda s: env(s, "airflow-scheduler").pop("AIRFLOW__API_AUTH__JWT_SECRET")),
    ("environment", "stack.toml says LocalExecutor", lambda s: env(s, "init").update(AIRFLOW__CORE__EXECUTOR="CeleryExecutor")),
    ("environment", "airflow-scheduler: PYTHONPATH is None", lambda s: env(s, "airflow-scheduler").pop("PYTHONPATH")),
    ("folders", "spark-master mounts", lambda s: s["spark-master"]["volumes"].remove("./sql:/opt/spillway/sql:ro")),
    ("folders", "cli mounts", lambda s: s["cli"]["volumes"].append(".:/everything")),
    ("folders", "declared or used", lambda s: s["kafka"].update(volumes=["elsewhere:/var/lib/kafka/data"])),
    ("secrets", "may not see SPILLWAY_DSN_OWNER", lambda s: env(s, "airflow-scheduler").update(
        SPILLWAY_DSN_OWNER="postgresql://x:${SPILLWAY_OWNER_PASSWORD:?}@postgres/spillway")),
    ("secrets", "may not see SPILLWAY_DSN_CONTROL", lambda s: env(s, "spark-worker-n1").update(
        SPILLWAY_DSN_CONTROL="postgresql://x:${SPILLWAY_CONTROL_PASSWORD:?}@postgres/spillway")),
    ("secrets", "not taken from a required variable", lambda s: env(s, "postgres").update(POSTGRES_PASSWORD="postgres")),
]  # fmt: skip


@pytest.mark.parametrize(("check", "says", "change"), BROKEN, ids=[f"{c}-{i}" for i, (c, *_) in enumerate(BROKEN)])
def test_each_check_can_fail(house: House, check: str, says: str, change: Callable[[dict[str, Any]], Any]) -> None:
    found = problems(changed(house, change), check)
    assert says in " ".join(found.get(check, [])), found


@pytest.mark.parametrize(
    ("field", "old", "new", "check", "says"),
    [
        ("text", "${AIRFLOW_JWT_SECRET:?see .env.example}", "${AIRFLOW_JWT_SECRET}", "secrets", "may be unset without a word"),
        ("text", "${AIRFLOW_JWT_SECRET:?see .env.example}", "${NEW_SECRET:?}", "secrets", "NEW_SECRET is not in .env.example"),
        ("example", "AIRFLOW_JWT_SECRET=", "AIRFLOW_JWT_SECRET=hunter2", "secrets", "gives a value"),
        ("example", "SPILLWAY_CORE_N2=1", "OTHER=1", "secrets", "OTHER is in .env.example and not used"),
        ("dockerfile", "openjdk-17", "openjdk-11", "versions", "Java 17"),
        ("dockerfile", "python:3.11.14-slim", "python:3.10.1-slim", "versions", "Python is 3.10"),
        ("dockerfile", "--require-hashes", "", "versions", "without hashes"),
        ("dockerfile", "COPY sql sql", "", "folders", "does not copy sql"),
        ("dockerfile", "jars.ensure('connector'", "download('connector'", "folders", "by sha256"),
        ("requirements", "pyspark==4.2.0 ", "pyspark==4.1.0 ", "versions", "pin pyspark 4.2.0"),
    ],
)
def test_the_files_around_it_can_fail_too(house: House, field: str, old: str, new: str, check: str, says: str) -> None:
    before = getattr(house, field)
    assert old in before
    found = problems(dataclasses.replace(house, **{field: before.replace(old, new)}), check)
    assert says in " ".join(found.get(check, [])), found


def compose(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    """`docker compose`, or None where the plugin is missing. `config` needs no engine."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return None
    return subprocess.run(
        [docker, "compose", "--project-directory", str(REPO), *arguments], capture_output=True, text=True, cwd="/"
    )


def test_docker_compose_accepts_it(house: House, tmp_path: Path) -> None:
    """Where the plugin is missing, the schema of the Compose specification has accepted it above."""
    good, empty = tmp_path / "good", tmp_path / "empty"
    good.write_text(make_env.fill(house.example))
    empty.write_text(house.example)
    file = ("-f", str(REPO / "docker-compose.yml"))
    if (done := compose(*file, "--env-file", str(good), "--profile", "tools", "config", "--quiet")) is None:
        assert problems(house).get("schema", []) == []
        return
    assert done.returncode == 0, done.stderr
    refused = compose(*file, "--env-file", str(empty), "config", "--quiet")
    assert refused is not None and refused.returncode != 0 and "see .env.example" in refused.stderr


def test_spark_logs_alike() -> None:
    from spillway.embedded.services.spark import LOG4J

    assert (REPO / "container" / "spark" / "log4j2.properties").read_text(encoding="utf-8") == LOG4J
