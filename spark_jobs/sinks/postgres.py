"""Exactly-once upserts of a micro-batch into a Postgres table: rows and marker in one transaction per writer and epoch.

A task gathers its rows before it opens the transaction, so that the transaction is short and waits for nothing but Postgres.
Time-outs on the server end that of a process that stands still, which would otherwise hold its locks for as long as it sleeps.

Spark replays only the last planned batch. A marker newer than the epoch means the checkpoint was lost or restored: an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_jobs.sinks import STALE


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink:
    """`table` has every one of `columns`, and a unique constraint on `keys`."""

    writer_id: str
    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    """What is written of every row; a field that its JSON lacks is NULL."""
    dsn_variable: str = "SPILLWAY_DSN_JOB"
    """Environment variable of the executors that holds the address; an address in the plan would show in the UI."""
    idle_s: float = 30.0
    """The server ends a transaction whose client says nothing for this long: a stopped executor gives its locks back."""
    lock_s: float = 20.0
    statement_s: float = 60.0

    def __post_init__(self) -> None:
        if missing := [key for key in self.keys if key not in self.columns]:
            raise RuntimeError(
                f"{self.table} is keyed by {', '.join(missing)}, but the operator's rows only have {', '.join(self.columns)}: "
                "let its function return the key columns, or change `keys` of its output"
            )


def write_partition(sink: PostgresSink, epoch: int, partition_id: int, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes one task's rows (column value: JSON objects); returns how many it had. A replayed epoch changes nothing.

    Of several rows with one key the last stays, in the order in which Spark hands them to the task; a query that must keep the
    newest has to aggregate.
    """
    rows, latest = 0, dict[str, dict[str, Any]]()
    for batch in batches:
        rows += batch.num_rows
        for value in batch.column("value").to_pylist():
            record = storable(json.loads(value))
            latest[json.dumps([record.get(key) for key in sink.keys])] = record
    if rows:
        # By key: writers that meet in a table take their locks in one order.
        _write(sink, f"{sink.writer_id}-p{partition_id}", epoch, [latest[key] for key in sorted(latest)])
    return rows


def storable(value: Any) -> Any:
    """JSON may have the character zero in its texts, Postgres may not; a row must not stop the query for it.

    >>> storable({"a\\x00": ["b\\x00c", 1]})
    {'a': ['bc', 1]}
    """
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, list):
        return [storable(v) for v in value]
    if isinstance(value, dict):
        return {storable(k): storable(v) for k, v in value.items()}
    return value


def _write(sink: PostgresSink, writer: str, epoch: int, records: list[dict[str, Any]]) -> None:
    from psycopg2.extras import Json, execute_values

    connection = _connect(sink)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into spillway.sink_marker as m (writer, epoch) values (%s, %s) on conflict (writer) do update "
                "set epoch = excluded.epoch, at = now() where m.epoch < excluded.epoch returning epoch",
                (writer, epoch),
            )
            if cursor.fetchone() is None:
                cursor.execute("select epoch from spillway.sink_marker where writer = %s", (writer,))
                [(marker,)] = cursor.fetchall()
                if marker > epoch:
                    raise RuntimeError(STALE.format(writer=writer, epoch=epoch, marker=marker))
                return
            values = ([record.get(column) for column in sink.columns] for record in records)
            rows = (tuple(Json(v) if isinstance(v, dict | list) else v for v in row) for row in values)
            execute_values(cursor, _upsert(sink), rows, page_size=1000)
    finally:
        connection.close()


def _connect(sink: PostgresSink) -> Any:
    import psycopg2

    dsn = os.environ.get(sink.dsn_variable)
    if not dsn:
        raise RuntimeError(f"{sink.dsn_variable} is not set on the executor: {sink.table} cannot be written")
    limits = {
        "idle_in_transaction_session_timeout": sink.idle_s,
        "lock_timeout": sink.lock_s,
        "statement_timeout": sink.statement_s,
    }
    return psycopg2.connect(
        dsn,
        connect_timeout=5,
        application_name=sink.writer_id,
        tcp_user_timeout=30000,
        options=" ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items()),
    )


def _upsert(sink: PostgresSink) -> Any:
    from psycopg2 import sql

    names = [sql.Identifier(column) for column in sink.columns]
    changed = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in sink.columns if c not in sink.keys]
    return sql.SQL("insert into {} ({}) values %s on conflict ({}) do {}").format(
        sql.Identifier(*sink.table.split(".")),
        sql.SQL(", ").join(names),
        sql.SQL(", ").join(map(sql.Identifier, sink.keys)),
        sql.SQL("update set {}").format(sql.SQL(", ").join(changed)) if changed else sql.SQL("nothing"),
    )
