"""Roles and databases on a Postgres server, by its administrator: `python -m spillway.store.provision`. Safe to run again.

SPILLWAY_DSN_ADMIN is the administrator's address; SPILLWAY_PASSWORD_<ROLE> gives each role its password.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from spillway.store.connection import connect, first_line
from spillway.store.environment import ROLES
from spillway.store.errors import NotConfigured, StoreError
from spillway.store.queries import SQL

OWN = tuple(f"spillway_{role}" for role in ROLES)
DATABASES: Mapping[str, str] = {"spillway": "spillway_owner", "airflow": "airflow"}
"""Database → its owner."""


def provision(admin: str, passwords: Mapping[str, str], databases: Mapping[str, str] = DATABASES) -> None:
    """Makes what is missing and gives every role its password; nobody else may connect to the databases."""
    from psycopg2 import sql

    roles = tuple(dict.fromkeys((*OWN, *databases.values())))
    if missing := [role for role in roles if not passwords.get(role)]:
        raise NotConfigured(f"{', '.join(missing)} have no password: set SPILLWAY_PASSWORD_<ROLE> for each.")
    conn = connect("admin", dsn=admin, application_name="spillway-provision", autocommit=True)
    try:
        with conn.cursor() as cursor:
            cursor.execute((SQL / "roles.sql").read_text(encoding="utf-8"))
            for role in roles:
                cursor.execute("select 1 from pg_roles where rolname = %s", (role,))
                if cursor.fetchone() is None:
                    cursor.execute(
                        sql.SQL("create role {} login nosuperuser nocreatedb nocreaterole").format(sql.Identifier(role))
                    )
                cursor.execute(sql.SQL("alter role {} password %s").format(sql.Identifier(role)), (passwords[role],))
            for database, owner in databases.items():
                names = {"database": sql.Identifier(database), "owner": sql.Identifier(owner)}
                cursor.execute("select 1 from pg_database where datname = %s", (database,))
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("create database {database} owner {owner}").format(**names))
                cursor.execute(sql.SQL("revoke all on database {database} from public").format(**names))
                if owner == "spillway_owner":
                    others = sql.SQL(", ").join(sql.Identifier(role) for role in OWN if role != owner)
                    cursor.execute(sql.SQL("grant connect on database {database} to {others}").format(**names, others=others))
    finally:
        conn.close()


def main(environ: Mapping[str, str] = os.environ) -> int:
    import psycopg2

    passwords = {role: environ.get(f"SPILLWAY_PASSWORD_{role.upper()}", "") for role in (*OWN, *DATABASES.values())}
    try:
        if not environ.get("SPILLWAY_DSN_ADMIN"):
            raise NotConfigured("SPILLWAY_DSN_ADMIN is not set: give the address of the server's administrator.")
        provision(environ["SPILLWAY_DSN_ADMIN"], passwords)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, NotConfigured) else 1
    except psycopg2.Error as error:
        print(f"the server does not let its administrator make roles and databases: {first_line(error)}.", file=sys.stderr)
        return 1
    print(f"roles {', '.join(passwords)} and databases {', '.join(DATABASES)} are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
