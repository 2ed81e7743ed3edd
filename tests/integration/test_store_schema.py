"""Migrations, rights of the roles, partitions and notifications on a real Postgres."""

from __future__ import annotations

import re
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import errors
from spillway.store import Refused, StoreError, Unavailable, connect, session
from spillway.store.migrate import migrate, pending
from spillway.store.pipelines import names
from spillway.store.queries import SQL, query

from tests.support.database import Database, Server

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the migrations that a test may edit."""
    return Path(shutil.copytree(SQL / "migrations", tmp_path / "migrations"))


# ---- migrations ----


def test_migrate_twice(empty: Database) -> None:
    files = sorted(f.name for f in (SQL / "migrations").glob("*.sql"))
    assert migrate(empty.dsn("owner")) == files
    assert migrate(empty.dsn("owner")) == []
    assert [r[0] for r in empty.sql("read", "select name from public.spillway_migration order by name")] == files


def test_migrate_at_the_same_time(empty: Database) -> None:
    done: list[list[str]] = []
    threads = [threading.Thread(target=lambda: done.append(migrate(empty.dsn("owner")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(len(d) > 0 for d in done) == [False, False, False, True]


def test_edited_migration_is_refused(empty: Database, folder: Path) -> None:
    migrate(empty.dsn("owner"), folder=folder)
    with (folder / "0001_line.sql").open("a") as file:
        file.write("-- afterthought\n")
    with pytest.raises(Refused) as raised:
        migrate(empty.dsn("owner"), folder=folder)
    assert str(raised.value) == (
        "migration 0001_line.sql was edited after it was applied: restore it, and put the change into a new migration."
    )


def test_new_migration_is_applied_and_a_late_or_missing_one_refused(empty: Database, folder: Path) -> None:
    migrate(empty.dsn("owner"), folder=folder)
    (folder / "9001_more.sql").write_text("create table spillway.more (x integer);\n")
    with connect("read", dsn=empty.dsn("read")) as conn:
        assert pending(conn, folder=folder) == ["9001_more.sql"]
    assert migrate(empty.dsn("owner"), folder=folder) == ["9001_more.sql"]
    (folder / "9000_late.sql").write_text("select 1;\n")
    with pytest.raises(
        Refused, match=r"9000_late\.sql comes before 9001_more\.sql, which is already applied: give it a higher number"
    ):
        migrate(empty.dsn("owner"), folder=folder)
    (folder / "9000_late.sql").unlink()
    (folder / "9001_more.sql").unlink()
    with pytest.raises(Refused, match=r"9001_more\.sql was applied but is not in sql/migrations"):
        migrate(empty.dsn("owner"), folder=folder)


def test_failing_migration_leaves_nothing(empty: Database, folder: Path) -> None:
    (folder / "9001_broken.sql").write_text("create table spillway.half (x integer); select 1/0;\n")
    with pytest.raises(StoreError, match=r"9001_broken\.sql failed and was rolled back: division by zero"):
        migrate(empty.dsn("owner"), folder=folder)
    assert empty.sql("owner", "select to_regclass('spillway.half'), to_regclass('spillway.pipeline') is not null") == [
        (None, True)
    ]
    (folder / "9001_broken.sql").write_text("create table spillway.half (x integer);\n")
    assert migrate(empty.dsn("owner"), folder=folder) == ["9001_broken.sql"], "what failed may be repaired"


@pytest.mark.parametrize(
    ("name", "words"),
    [("2_x.sql", "2_x.sql is not the name of a migration"), ("0001_twin.sql", "two migrations have the number 0001")],
)
def test_bad_names_of_migrations(empty: Database, folder: Path, name: str, words: str) -> None:
    (folder / name).write_text("select 1;\n")
    with pytest.raises(Refused, match=words):
        migrate(empty.dsn("owner"), folder=folder)


def test_database_without_the_schema_says_so(empty: Database) -> None:
    with pytest.raises(Refused, match="run `spillway migrate`"), session("control", dsn=empty.dsn("control")) as conn:
        names(conn)


def test_wrong_password_and_wrong_database(server: Server, migrated: Database) -> None:
    wrong = Database(migrated.name, server.address, {**server.secrets, "spillway_read": "wrong"})
    with pytest.raises(Unavailable, match=r"does not let spillway_read in: check SPILLWAY_DSN_READ\."):
        connect("read", dsn=wrong.dsn("read"))
    with pytest.raises(Unavailable, match=r"answers, but database \"nowhere\" does not exist: run `make up`"):
        connect("read", dsn=Database("nowhere", server.address, server.secrets).dsn("read"))
    with pytest.raises(Unavailable, match="SPILLWAY_DSN_READ is not a connection string of libpq"):
        connect("read", dsn="what://is this")


def test_every_named_query_is_good_sql(migrated: Database) -> None:
    """Prepares each query: its names and syntax are right, and it is one statement."""
    files = sorted((SQL / "queries").glob("*.sql"))
    assert files
    conn = migrated.connect("owner")
    conn.autocommit = True
    for number, file in enumerate(files):
        text = query(file.stem)
        parameters = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        for index, name in enumerate(parameters, 1):
            text = text.replace(f"%({name})s", f"${index}")
        if many := re.search(r"\(([^()]*)\)\s*values %s", text):  # filled by execute_values
            text = text.replace("values %s", f"values ({', '.join(['null'] * len(many[1].split(',')))})")
        with conn.cursor() as cursor:
            cursor.execute(f"prepare q{number} as {text}")
    with conn.cursor() as cursor:
        cursor.execute("select count(*) from pg_prepared_statements")
        assert cursor.fetchone() == (len(files),)
    conn.close()


# ---- who may do what ----

READABLE = ("pipeline", "application", "edge_setting", "lease", "heartbeat", "event", "batch_metric", "setting_history")


@pytest.mark.parametrize("role", ["control", "job", "read"])
def test_every_role_reads(migrated: Database, role: str) -> None:
    for table in READABLE:
        assert migrated.sql(role, f"select count(*) from spillway.{table}")[0][0] >= 0


FORBIDDEN = [
    ("job", "insert into spillway.edge_setting (pipeline, edge, keep, decision_id, issued_by) values ('p', 'e', 1, 1, 'x')"),
    ("job", "update spillway.edge_setting set keep = 0"),
    ("job", "delete from spillway.edge_setting"),
    (
        "job",
        "insert into spillway.pipeline_version (pipeline, version, spec) values ('p', 1, '{}')",
    ),
    ("job", "update spillway.pipeline set desired = 'running'"),
    ("job", "update spillway.application set generation = generation + 1"),
    ("job", "update spillway.operator_state set checkpoint = checkpoint + 1"),
    ("job", "update spillway.operator_state set launched_at = null"),
    ("read", "update spillway.operator_state set checkpoint = checkpoint + 1"),
    ("job", "insert into spillway.topic_claim values ('t', 'p')"),
    ("job", "delete from spillway.event"),
    ("job", "delete from spillway.heartbeat"),
    ("job", "select nextval('spillway.decision_id')"),
    ("job", "select spillway.drop_partitions(current_date)"),
    ("job", "select spillway.ensure_partitions(current_date, 1)"),
    ("job", "insert into spillway.setting_history (pipeline, edge, keep, decision_id, issued_by) values ('p', 'e', 1, 1, 'x')"),
    ("job", "create table spillway.mine (x int)"),
    ("job", "drop table spillway.batch_metric"),
    ("control", "drop table spillway.pipeline"),
    ("control", "drop table spillway.batch_metric"),
    ("control", "truncate spillway.event"),
    ("control", "delete from spillway.event"),
    ("control", "alter table spillway.pipeline add column x int"),
    ("control", "create table spillway.mine (x int)"),
    ("control", "drop schema spillway cascade"),
    ("control", "insert into spillway.batch_metric (pipeline) values ('p')"),
    (
        "control",
        "insert into spillway.setting_history (pipeline, edge, keep, decision_id, issued_by) values ('p', 'e', 1, 1, 'x')",
    ),
    ("control", "delete from public.spillway_migration"),
    ("read", "insert into spillway.event (actor, kind, text) values ('x', 'x', 'x')"),
    ("read", "update spillway.pipeline set desired = 'running'"),
    ("read", "delete from spillway.heartbeat"),
    ("read", "insert into spillway.edge_setting (pipeline, edge, keep, decision_id, issued_by) values ('p', 'e', 1, 1, 'x')"),
    ("read", "insert into spillway.batch_metric (pipeline) values ('p')"),
    ("read", "insert into spillway.lease (pipeline, application, generation, holder) values ('p', 'a', 1, 'x')"),
    ("read", "select nextval('spillway.decision_id')"),
    ("read", "select spillway.ensure_partitions(current_date, 1)"),
    ("read", "create table spillway.mine (x int)"),
    ("read", "create table public.mine (x int)"),
]


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN, ids=[f"{r}: {s[:48]}" for r, s in FORBIDDEN])
def test_role_may_not(migrated: Database, role: str, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        migrated.sql(role, statement)


def test_no_role_may_write_a_table_beyond_its_list(migrated: Database) -> None:
    """The rights as granted, so that a new migration that grants more is seen."""
    rows = migrated.sql(
        "owner",
        "select grantee, privilege_type, table_name from information_schema.table_privileges "
        "where table_schema = 'spillway' and privilege_type <> 'SELECT' and grantee <> 'spillway_owner'",
    )
    written: dict[str, set[str]] = {}
    for grantee, privilege, table in rows:
        assert privilege in ("INSERT", "UPDATE", "DELETE")
        written.setdefault(grantee, set()).add(table)
    assert "spillway_read" not in written
    declared = {"pipeline_version", "pipeline", "topic_claim", "application", "edge_setting"}
    assert not written["spillway_job"] & declared


# ---- partitions ----


def days_of(database: Database, table: str) -> list[str]:
    rows = database.sql(
        "read",
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = %s::regclass order by 1",
        f"spillway.{table}",
    )
    return [r[0].removeprefix(f"{table}_") for r in rows]


def put_topic_metric(database: Database, at: datetime) -> None:
    database.sql("job", "insert into spillway.topic_metric (topic, partition, at, end_offset) values ('t', 0, %s, 1)", at)


def where_is(database: Database, at: datetime) -> list[str]:
    return [r[0] for r in database.sql("read", "select tableoid::regclass::text from spillway.topic_metric where at = %s", at)]


def test_partitions_are_made_once_and_take_what_the_default_caught(database: Database) -> None:
    later = (datetime.now(UTC) + timedelta(days=40)).replace(hour=23, minute=59, second=59, microsecond=0)
    put_topic_metric(database, later)
    put_topic_metric(database, later + timedelta(seconds=1))
    assert where_is(database, later) == ["spillway.topic_metric_default"]
    tables = database.sql("read", "select count(*) from spillway.partitioned_table")[0][0]
    assert database.sql("control", "select spillway.ensure_partitions(%s, 1)", later.date()) == [(tables,)]
    assert database.sql("control", "select spillway.ensure_partitions(%s, 1)", later.date()) == [(0,)]
    assert where_is(database, later) == [f"spillway.topic_metric_{later:%Y%m%d}"]
    assert where_is(database, later + timedelta(seconds=1)) == ["spillway.topic_metric_default"], (
        "midnight belongs to the next day"
    )


def test_old_partitions_go_with_what_the_default_caught(database: Database) -> None:
    today = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    old, older = today - timedelta(days=10), today - timedelta(days=30)
    database.sql("control", "select spillway.ensure_partitions(%s, 1)", old.date())
    for at in (today, old, older):
        put_topic_metric(database, at)
    database.sql(
        "job",
        "insert into spillway.event (actor, kind, text, at) values ('x', 'x', 'old', %s), ('x', 'x', 'new', %s)",
        old,
        today,
    )
    assert f"{old:%Y%m%d}" in days_of(database, "topic_metric")
    tables = database.sql("read", "select count(*) from spillway.partitioned_table")[0][0]
    assert database.sql("control", "select spillway.drop_partitions(%s)", (today - timedelta(days=7)).date()) == [(tables,)]
    assert database.sql("read", "select at from spillway.topic_metric") == [(today,)]
    assert f"{old:%Y%m%d}" not in days_of(database, "topic_metric")
    assert database.sql("read", "select text from spillway.event") == [("new",)]


def test_a_job_can_write_while_partitions_are_made(database: Database) -> None:
    """A row on its way into the default partition is neither lost nor doubled."""
    day = (datetime.now(UTC) + timedelta(days=50)).replace(hour=1)
    writer = database.connect("job")
    with writer.cursor() as cursor:
        cursor.execute("insert into spillway.topic_metric (topic, partition, at, end_offset) values ('t', 0, %s, 1)", (day,))
    maker = threading.Thread(target=database.sql, args=("control", "select spillway.ensure_partitions(%s, 1)", day.date()))
    maker.start()
    maker.join(0.5)
    assert maker.is_alive(), "it waits for the open transaction"
    writer.commit()
    writer.close()
    maker.join(30)
    assert where_is(database, day) == [f"spillway.topic_metric_{day:%Y%m%d}"]


def test_statement_timeout_is_one_sentence(migrated: Database) -> None:
    with (
        pytest.raises(Unavailable, match="Postgres gave up a statement: canceling statement due to statement timeout"),
        session("read", dsn=migrated.dsn("read"), statement_timeout_s=0.1) as conn,
        conn.cursor() as cursor,
    ):
        cursor.execute("select pg_sleep(5)")


def test_a_lost_connection_is_one_sentence(migrated: Database) -> None:
    with (
        pytest.raises(Unavailable, match="the connection to Postgres was lost"),
        session("read", dsn=migrated.dsn("read")) as conn,
    ):
        migrated.sql("admin", "select pg_terminate_backend(%s)", conn.info.backend_pid)
        with conn.cursor() as cursor:
            cursor.execute("select 1")


def test_sessions_are_in_utc_and_named(migrated: Database) -> None:
    with connect("read", dsn=migrated.dsn("read"), application_name="probe") as conn, conn.cursor() as cursor:
        cursor.execute("select current_setting('timezone'), current_setting('application_name')")
        assert cursor.fetchone() == ("UTC", "probe")
    assert isinstance(conn, psycopg2.extensions.connection)
