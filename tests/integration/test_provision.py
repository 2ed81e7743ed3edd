"""What `init` of docker-compose.yml does to a server: roles and databases, nobody else let in, safe to do again."""

from __future__ import annotations

import psycopg2
import pytest
from spillway.store.errors import NotConfigured
from spillway.store.migrate import migrate
from spillway.store.provision import OWN, main, provision

from tests.support.database import Database, Server

pytestmark = pytest.mark.integration
DATABASES = {"provision_own": "spillway_owner", "provision_airflow": "airflow"}


def passwords(server: Server) -> dict[str, str]:
    return {role: server.secrets[role] for role in (*OWN, "airflow")}


def test_every_role_gets_in_where_it_belongs_and_nowhere_else(server: Server) -> None:
    admin = Database("postgres", server.address, server.secrets).dsn("admin")
    for _ in range(2):
        provision(admin, passwords(server), DATABASES)
    own = Database("provision_own", server.address, server.secrets)
    assert migrate(own.dsn("owner"))[0] == "0001_line.sql"
    for role in ("owner", "control", "job", "read"):
        assert own.sql(role, "select current_user, count(*) from spillway.pipeline") == [(f"spillway_{role}", 0)]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        own.sql("job", "insert into spillway.edge_setting values ('p', 'e', 1, 1)")
    address = f"postgresql://airflow:{server.secrets['airflow']}@{server.address}"
    psycopg2.connect(f"{address}/provision_airflow").close()
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        psycopg2.connect(f"{address}/provision_own")
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        Database("provision_airflow", server.address, server.secrets).connect("job")


def test_a_role_without_password_stops_it_before_anything(server: Server) -> None:
    with pytest.raises(NotConfigured, match="spillway_read have no password"):
        provision("postgresql://unused", {**passwords(server), "spillway_read": ""})


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main({}) == 2
    assert "SPILLWAY_DSN_ADMIN is not set" in capsys.readouterr().err
    given = {f"SPILLWAY_PASSWORD_{role.upper()}": "x" for role in (*OWN, "airflow")}
    assert main({**given, "SPILLWAY_DSN_ADMIN": "postgresql://postgres:x@127.0.0.1:1/postgres"}) == 1
    assert "does not answer" in capsys.readouterr().err
