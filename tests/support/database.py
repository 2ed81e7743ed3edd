"""Databases on a real Postgres with the four roles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2
import pytest
from spillway.embedded import Stack
from spillway.embedded.state import load_secrets
from spillway.store import connect
from spillway.store.environment import ROLES
from spillway.store.migrate import migrate

_numbers = itertools.count(1)
EMPTIED = """
do $$
declare
    one regclass;
    has boolean;
    filled text[] := '{}';
begin
    for one in select c.oid::regclass from pg_class c
               where c.relnamespace = 'spillway'::regnamespace and c.relkind = 'r' and c.relname <> 'partitioned_table' loop
        execute format('select exists (select from %s)', one) into has;
        if has then filled := filled || one::text; end if;
    end loop;
    if filled <> '{}' then
        execute format('truncate %s cascade', array_to_string(filled, ', '));
    end if;
    perform setval(c.oid::regclass, 1, false) from pg_class c
    where c.relnamespace = 'spillway'::regnamespace and c.relkind = 'S';
end $$"""
"""Truncating what is empty costs as much as what is not: new files for hundreds of partitions and their indexes."""


@dataclass(frozen=True)
class Database:
    name: str
    address: str
    secrets: dict[str, str]

    def dsn(self, role: str) -> str:
        user = "postgres" if role == "admin" else f"spillway_{role}"
        return f"postgresql://{user}:{quote(self.secrets['postgres' if role == 'admin' else user])}@{self.address}/{self.name}"

    def connect(self, role: str) -> Any:
        return psycopg2.connect(self.dsn(role), connect_timeout=5)

    def sql(self, role: str, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        connection = self.connect(role)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(text, parameters or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def environ(self) -> dict[str, str]:
        return {f"SPILLWAY_DSN_{role.upper()}": self.dsn(role) for role in ROLES}


@dataclass(frozen=True)
class Server:
    address: str
    secrets: dict[str, str]

    def create(self) -> Database:
        name = f"store_test_{next(_numbers)}"
        self.admin(f"create database {name} owner spillway_owner")
        return Database(name, self.address, self.secrets)

    def admin(self, *statements: str) -> None:
        conn = Database("postgres", self.address, self.secrets).connect("admin")
        conn.autocommit = True
        try:
            with conn.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            conn.close()


@pytest.fixture(scope="session")
def server(run_root: Path) -> Iterator[Server]:
    """A Postgres of its own, so that no other test sees what is done to it."""
    stack = Stack(run_root / "store", services=("postgres",))
    try:
        stack.up()
        server = Server(f"127.0.0.1:{stack.state()['ports']['postgres']}", load_secrets(stack.layout))
        server.admin("alter system set fsync = off", "select pg_reload_conf()")  # no row here has to survive a power cut
        yield server
    finally:
        stack.clean()


@pytest.fixture
def empty(server: Server) -> Database:
    """A database without Spillway's schema."""
    return server.create()


@pytest.fixture(scope="session")
def migrated(server: Server) -> Database:
    """A database with the schema, for tests that leave no rows."""
    database = server.create()
    migrate(database.dsn("owner"))
    return database


@pytest.fixture
def database(migrated: Database) -> Database:
    """The migrated database without a row of an earlier test."""
    migrated.sql("owner", EMPTIED)
    return migrated


@pytest.fixture
def control(database: Database) -> Iterator[Any]:
    conn = connect("control", dsn=database.dsn("control"))
    yield conn
    conn.close()
