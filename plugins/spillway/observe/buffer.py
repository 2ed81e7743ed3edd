"""Rows on their way to Postgres: bounded, written by a thread of its own, drops counted and reported."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from spillway.store.queries import query

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

log = logging.getLogger(__name__)
Row = tuple[str, tuple[Any, ...]]
MOST_ROWS_A_WRITE = 2_000


class Buffer:
    """The newest rows win: what is dropped is the oldest."""

    def __init__(self, most: int) -> None:
        self._rows: deque[Row] = deque(maxlen=most)
        self._lock = threading.Lock()
        self._dropped = 0

    def add(self, rows: Iterable[Row]) -> None:
        with self._lock:
            for row in rows:
                if len(self._rows) == self._rows.maxlen:
                    self._dropped += 1
                self._rows.append(row)

    def take(self, most: int) -> list[Row]:
        with self._lock:
            return [self._rows.popleft() for _ in range(min(most, len(self._rows)))]

    def give_back(self, rows: list[Row]) -> None:
        """What could not be written, in front again, as far as there is room."""
        with self._lock:
            room = (self._rows.maxlen or 0) - len(self._rows)
            kept = rows[max(0, len(rows) - room) :] if room > 0 else []
            self._dropped += len(rows) - len(kept)
            self._rows.extendleft(reversed(kept))

    @property
    def dropped(self) -> int:
        """How many were dropped and not reported yet."""
        return self._dropped

    def reported(self, dropped: int) -> None:
        with self._lock:
            self._dropped -= dropped

    def __len__(self) -> int:
        return len(self._rows)


class Writer(threading.Thread):
    """Writes what is in the buffer whenever it is woken; a Postgres that is away or slow holds up nobody else."""

    def __init__(self, buffer: Buffer, connect: Callable[[], Connection], statements: dict[str, str], node: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._buffer = buffer
        self._connect = connect
        self._statements = statements
        self._node = node
        self._wake = threading.Event()
        self._ending = False
        self._conn: Connection | None = None

    def wake(self) -> None:
        self._wake.set()

    def end(self, timeout_s: float) -> None:
        self._ending = True
        self._wake.set()
        self.join(timeout_s)

    def run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self.write()
            if self._ending:
                return

    def write(self) -> None:
        while rows := self._buffer.take(MOST_ROWS_A_WRITE):
            try:
                self._insert(rows)
            except Exception as error:  # whatever the driver raises, the rows wait for the next time
                log.warning("Measurements wait for Postgres: %s", str(error).strip().splitlines()[0] if str(error) else error)
                self._buffer.give_back(rows)
                self._close()
                return

    def _insert(self, rows: list[Row]) -> None:
        from psycopg2.extras import execute_values

        if self._conn is None or self._conn.closed:
            self._conn = self._connect()
        with self._conn, self._conn.cursor() as cursor:
            for table, statement in self._statements.items():
                own = [values for name, values in rows if name == table]
                if own:
                    execute_values(cursor, statement, own, page_size=500)
            if dropped := self._buffer.dropped:
                text = f"{dropped} measurements of {self._node} were dropped while Postgres was away."
                cursor.execute(query("agent_event"), {"node": self._node, "text": text})
        self._buffer.reported(dropped)

    def _close(self) -> None:
        if self._conn is not None:
            with contextlib.suppress(Exception):
                self._conn.close()
            self._conn = None
