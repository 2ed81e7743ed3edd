"""Whoever writes to the store and is killed in the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extensions import connection, cursor

WRITES = ("insert", "update", "delete")


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


class _Cursor(cursor):
    def execute(self, query: Any, vars: Any = None) -> None:
        lines = [line for line in str(query).splitlines() if line and not line.startswith("--")]
        first = lines[0].split()[0].lower() if lines else ""
        if first in WRITES and not (vars and "evidence" in vars):  # what is merely noted is no step
            self.connection.reached()  # type: ignore[attr-defined]
            self.connection.wrote = True  # type: ignore[attr-defined]
        super().execute(query, vars)


class _Connection(connection):
    wrote = False
    reached: Callable[[], None]

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        return super().cursor(*args, cursor_factory=_Cursor, **kwargs)

    def commit(self) -> None:
        if self.wrote:
            self.reached()
        self.wrote = False
        super().commit()

    def rollback(self) -> None:
        self.wrote = False
        super().rollback()


class Dying:
    """Connections that count what is written through them, and die before the write of a number."""

    def __init__(self, dsn: str, at: int | None = None) -> None:
        self._dsn, self._at, self.count = dsn, at, 0

    def connect(self) -> Any:
        conn = psycopg2.connect(self._dsn, connection_factory=_Connection)
        conn.reached = lambda: self._reached(conn)
        return conn

    def _reached(self, conn: Any) -> None:
        self.count += 1
        if self.count == self._at:
            conn.close()
            raise Killed(f"before write {self.count}")
