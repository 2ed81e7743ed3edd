"""Connections to Postgres, one role each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spillway.store.environment import dsn as dsn_of
from spillway.store.errors import Refused, Unavailable

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


def connect(
    role: str,
    *,
    dsn: str | None = None,
    application_name: str = "spillway",
    connect_timeout_s: int = 5,
    statement_timeout_s: float = 60.0,
    autocommit: bool = False,
) -> Connection:
    """A connection as `owner`, `control`, `job` or `read`; a session is in UTC."""
    import psycopg2

    address = dsn or dsn_of(role)
    try:
        conn = psycopg2.connect(
            address,
            connect_timeout=connect_timeout_s,
            application_name=application_name,
            options=f"-c timezone=UTC -c statement_timeout={int(statement_timeout_s * 1000)}",
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
    except psycopg2.Error as error:
        raise Unavailable(_why(error, address, role)) from error
    conn.autocommit = autocommit
    return conn


@contextmanager
def session(role: str, **options: Any) -> Iterator[Connection]:
    """A connection that is closed at the end; commits if nothing was raised."""
    conn = connect(role, **options)
    try:
        with translate():
            yield conn
            if not conn.autocommit:
                conn.commit()
    finally:
        conn.close()


@contextmanager
def translate() -> Iterator[None]:
    """Errors of the server as one sentence."""
    import psycopg2
    from psycopg2 import errors

    try:
        yield
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction, errors.UndefinedColumn) as error:
        raise Refused("the database lacks a part of Spillway's schema: run `spillway migrate`.") from error
    except errors.InsufficientPrivilege as error:
        raise Refused(f"the database does not allow it: {first_line(error)}.") from error
    except errors.QueryCanceled as error:
        raise Unavailable(f"Postgres gave up a statement: {first_line(error)}.") from error
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        raise Unavailable(f"the connection to Postgres was lost: {first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _why(error: Exception, address: str, role: str) -> str:
    from psycopg2 import ProgrammingError
    from psycopg2.extensions import parse_dsn

    try:
        parts = parse_dsn(address)
    except ProgrammingError:
        return f"SPILLWAY_DSN_{role.upper()} is not a connection string of libpq: give postgresql://user:password@host:port/database."
    where = f"{parts.get('host', 'localhost')}:{parts.get('port', '5432')}"
    text = str(error)
    if "password authentication failed" in text or "no pg_hba.conf entry" in text:
        return f"Postgres at {where} does not let {parts.get('user', role)} in: check SPILLWAY_DSN_{role.upper()}."
    if "does not exist" in text:
        return f"Postgres at {where} answers, but {_missing(text)}: run `make up`, or check SPILLWAY_DSN_{role.upper()}."
    if "starting up" in text:
        return f"Postgres at {where} is still starting: try again in a moment."
    return f"Postgres at {where} does not answer: start it with `make up`, or check SPILLWAY_DSN_{role.upper()}."


def _missing(text: str) -> str:
    line = next(line for line in text.splitlines() if "does not exist" in line)
    return line.split("FATAL:")[-1].strip()
