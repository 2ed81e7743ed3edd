"""The driver's connection to Postgres: it may be slow or away at any time, and nothing here may wait long for it."""

from __future__ import annotations

import os
from typing import Any

import psycopg2
import psycopg2.extensions
from spillway.store.queries import query

Connection = psycopg2.extensions.connection


DRIVER = ("JOB",)
ROLES = ("JOB", "CONTROL")
"""For a job that Airflow submits, which runs where only Airflow's own role is known."""


def connect(name: str, *, timeout_s: float = 5.0, roles: tuple[str, ...] = DRIVER) -> Connection:
    """An autocommit connection as the first of the roles whose address is known; raises `psycopg2.OperationalError` within a few
    seconds when there is none."""
    dsn = next((found for role in roles if (found := os.environ.get(f"SPILLWAY_DSN_{role}"))), None)
    if not dsn:
        wanted = " or ".join(f"SPILLWAY_DSN_{role}" for role in roles)
        raise RuntimeError(f"{wanted} is not set: this program needs the address of Spillway's Postgres as that role")
    connection = psycopg2.connect(
        dsn,
        connect_timeout=3,
        application_name=name,
        options=f"-c statement_timeout={int(timeout_s * 1000)}",
        tcp_user_timeout=int(timeout_s * 1000),
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
    )
    connection.autocommit = True
    return connection


def run(connection: Connection, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Runs a named query and returns its rows (none for a statement without result)."""
    with connection.cursor() as cursor:
        cursor.execute(query(name), parameters)
        return cursor.fetchall() if cursor.description else []
