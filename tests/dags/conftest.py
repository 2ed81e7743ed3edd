from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_process import REPO, call, environment, migrate
from tests.support.database import Database, Server, database, migrated, server

__all__ = ["database", "migrated", "server"]


@pytest.fixture(scope="session")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("airflow_parse")
    return call(environment(home, f"sqlite:///{home}/none.db"), "parse", str(REPO / "dags"))


def address(server: Server, name: str) -> str:
    return f"postgresql+psycopg2://airflow:{server.secrets['airflow']}@{server.address}/{name}"


@pytest.fixture(scope="session")
def template(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with Airflow's tables, to be copied: making them takes a quarter of a minute."""
    name = "airflow_template"
    server.admin(f"create database {name} owner airflow")
    migrate(environment(tmp_path_factory.mktemp("template"), address(server, name)))
    return name


@pytest.fixture(scope="session")
def metadata(server: Server, template: str) -> str:
    """A database of its own for Airflow; it goes with its server."""
    name = "airflow_metadata"
    server.admin(f"create database {name} template {template} owner airflow")
    return address(server, name)


@pytest.fixture(scope="session")
def airflow(stack: Any, metadata: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow that is set up for the embedded services."""
    return environment(
        tmp_path_factory.mktemp("airflow_test"),
        metadata,
        **stack.env,
        AIRFLOW_CONN_SPILLWAY_CONTROL=stack.env["SPILLWAY_DSN_CONTROL"].replace("postgresql://", "postgres://"),
        AIRFLOW_CONN_AIRFLOW_METADATA=metadata.replace("postgresql+psycopg2://", "postgres://"),
    )


@pytest.fixture
def airflow_on(server: Server, template: str, database: Database, tmp_path: Path) -> Iterator[Callable[..., dict[str, str]]]:
    """Makes environments of an Airflow on a Postgres without other services."""
    name = f"airflow_{database.name}"
    server.admin(f"create database {name} template {template} owner airflow")

    def env(**more: str) -> dict[str, str]:
        return environment(
            tmp_path,
            address(server, name),
            AIRFLOW_CONN_SPILLWAY_CONTROL=database.dsn("control").replace("postgresql://", "postgres://"),
            **more,
        )

    yield env
    server.admin(f"drop database {name} with (force)")
