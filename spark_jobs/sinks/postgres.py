"""Exactly-once upserts of a micro-batch into a Postgres table: rows and marker in one transaction per writer and epoch."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink:
    """`table` has a column for every key in the JSON of `value`, and a unique constraint on `keys`."""

    writer_id: str
    table: str
    keys: tuple[str, ...]
    dsn_variable: str = "SPILLWAY_DSN_JOB"
    """Environment variable of the executors that holds the address; an address in the plan would show in the UI."""


def write_partition(sink: PostgresSink, epoch: int, partition_id: int, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes one task's rows (column value: JSON objects); returns how many it had. A replayed epoch changes nothing."""
    import psycopg2
    from psycopg2 import sql
    from psycopg2.extras import Json, execute_values

    first = next((b for b in batches if b.num_rows), None)
    if first is None:
        return 0
    dsn = os.environ.get(sink.dsn_variable)
    if not dsn:
        raise RuntimeError(f"{sink.dsn_variable} is not set on the executor: {sink.table} cannot be written")
    connection = psycopg2.connect(dsn, connect_timeout=5, application_name=sink.writer_id, tcp_user_timeout=30000)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into spillway.sink_marker as m (writer, epoch) values (%s, %s) on conflict (writer) do update "
                "set epoch = excluded.epoch, at = now() where m.epoch < excluded.epoch returning epoch",
                (f"{sink.writer_id}-p{partition_id}", epoch),
            )
            fresh, rows = cursor.fetchone() is not None, 0
            for batch in itertools.chain([first], batches):
                records = [json.loads(v) for v in batch.column("value").to_pylist()]
                rows += len(records)
                if not fresh or not records:
                    continue
                columns = sorted({name for record in records for name in record})
                # The newest of several rows with one key wins: one statement must not touch a row twice.
                latest = {tuple(record.get(k) for k in sink.keys): record for record in records}
                update = sql.SQL(", ").join(
                    sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in columns if c not in sink.keys
                )
                statement = sql.SQL("insert into {} ({}) values %s on conflict ({}) do {}").format(
                    sql.Identifier(*sink.table.split(".")),
                    sql.SQL(", ").join(map(sql.Identifier, columns)),
                    sql.SQL(", ").join(map(sql.Identifier, sink.keys)),
                    sql.SQL("update set ") + update if set(columns) - set(sink.keys) else sql.SQL("nothing"),
                )
                execute_values(
                    cursor,
                    statement,
                    [tuple(Json(v) if isinstance(v, dict | list) else v for v in map(r.get, columns)) for r in latest.values()],
                    page_size=1000,
                )
            return rows
    finally:
        connection.close()
