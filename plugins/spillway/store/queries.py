"""The SQL lives in sql/: numbered migrations, and one named query per file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.store.errors import StoreError

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

SQL = Path(__file__).resolve().parents[3] / "sql"


@cache
def query(name: str) -> str:
    """Text of sql/queries/<name>.sql."""
    file = SQL / "queries" / f"{name}.sql"
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the query {name} is missing ({file}): the installation is not complete.") from error


def rows(conn: Connection, name: str, **params: Any) -> list[dict[str, Any]]:
    """Runs the named query; each row by column name."""
    with conn.cursor() as cursor:
        cursor.execute(query(name), params)
        if cursor.description is None:
            return []
        columns = [column.name for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def row(conn: Connection, name: str, **params: Any) -> dict[str, Any] | None:
    """The only row of the named query, or None."""
    found = rows(conn, name, **params)
    return found[0] if found else None


def execute(conn: Connection, name: str, **params: Any) -> int:
    """Runs the named query; how many rows it touched."""
    with conn.cursor() as cursor:
        cursor.execute(query(name), params)
        return int(cursor.rowcount)
