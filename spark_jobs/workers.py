"""The daemon that makes an executor's Python workers: Spark's own, with less garbage collection between two tasks.

A worker stays for the tasks to come, and Spark lets it collect its garbage after each of them. That looks at every object of
every module it has imported, tens of milliseconds with pyarrow and pandas, which is more than a sink takes for a thousand rows.
So what has survived a collection is left out of the next ones, except now and then. See ADR 29.
"""

from __future__ import annotations

import gc
from typing import Any

from pyspark import daemon

WHOLE = 200
"""In one collection of so many everything is looked at: what has survived may be garbage by then."""


class Collector:
    """Stands in for the module `gc` where the daemon calls `collect`."""

    def __init__(self) -> None:
        self._calls = 0

    def collect(self) -> int:
        if self._calls % WHOLE == 0:
            gc.unfreeze()
        self._calls += 1
        found = gc.collect()
        gc.freeze()
        return found


def main() -> None:
    spark_daemon: Any = daemon
    spark_daemon.gc = Collector()
    spark_daemon.manager()


if __name__ == "__main__":
    main()
