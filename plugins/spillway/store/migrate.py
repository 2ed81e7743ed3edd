"""Numbered migrations of sql/migrations, each in one transaction, each once."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.store.connection import connect, first_line, translate
from spillway.store.errors import Refused, StoreError
from spillway.store.queries import SQL

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

_FILE = re.compile(r"\d{4}_[a-z0-9_]+\.sql")
_LOCK = 7_221_551_003
_TABLE = """
create table if not exists public.spillway_migration (
    name       text primary key,
    sha256     text not null,
    applied_at timestamptz not null default now()
)"""


def migrate(dsn_owner: str | None = None, *, folder: Path | None = None) -> list[str]:
    """Applies what is missing, in order; returns the names applied. Several at once wait for each other."""
    files = migration_files(folder or SQL / "migrations")
    conn = connect("owner", dsn=dsn_owner, application_name="spillway-migrate", statement_timeout_s=600.0)
    try:
        with translate():
            _lock(conn)
            applied = _applied(conn)
            _refuse_edits(files, applied)
            return [file.name for file in files if file.name not in applied and _apply(conn, file)]
    finally:
        conn.close()


def pending(conn: Connection, *, folder: Path | None = None) -> list[str]:
    """Names of migrations this database has not seen."""
    applied = _applied(conn)
    return [file.name for file in migration_files(folder or SQL / "migrations") if file.name not in applied]


def migration_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.sql"))
    if not files:
        raise StoreError(f"there are no migrations in {folder}: the installation is not complete.")
    for file in files:
        if not _FILE.fullmatch(file.name):
            raise Refused(f"{file.name} is not the name of a migration: four digits, an underscore, and a name in lower case.")
    numbers = [file.name[:4] for file in files]
    for number, file in zip(numbers, files, strict=True):
        if numbers.count(number) > 1:
            raise Refused(f"two migrations have the number {number} ({file.name} is one): give each a number of its own.")
    return files


def _lock(conn: Connection) -> None:
    with conn.cursor() as cursor:
        cursor.execute("select pg_advisory_lock(%s)", (_LOCK,))
        cursor.execute(_TABLE)
        cursor.execute("grant select on public.spillway_migration to spillway_control, spillway_job, spillway_read")
    conn.commit()


def _applied(conn: Connection) -> dict[str, str]:
    with conn.cursor() as cursor:
        cursor.execute("select name, sha256 from public.spillway_migration")
        return dict(cursor.fetchall())


def _refuse_edits(files: list[Path], applied: dict[str, str]) -> None:
    present = {file.name: _sha256(file) for file in files}
    for name, sha256 in applied.items():
        if name not in present:
            raise Refused(f"migration {name} was applied but is not in sql/migrations: this code is older than the database.")
        if present[name] != sha256:
            raise Refused(
                f"migration {name} was edited after it was applied: restore it, and put the change into a new migration."
            )
    newest = max(applied, default="")
    for file in files:
        if file.name not in applied and file.name < newest:
            raise Refused(f"migration {file.name} comes before {newest}, which is already applied: give it a higher number.")


def _apply(conn: Connection, file: Path) -> bool:
    import psycopg2

    try:
        with conn.cursor() as cursor:
            cursor.execute(file.read_text(encoding="utf-8"))
            cursor.execute("insert into public.spillway_migration (name, sha256) values (%s, %s)", (file.name, _sha256(file)))
        conn.commit()
    except psycopg2.OperationalError:
        raise
    except psycopg2.Error as error:
        conn.rollback()
        raise StoreError(f"migration {file.name} failed and was rolled back: {first_line(error)}.") from error
    return True


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
