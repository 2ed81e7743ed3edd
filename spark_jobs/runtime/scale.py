"""More or fewer executors under running queries.

Spark is asked for a total; what is too many is decommissioned, the newest first: it takes no more tasks and ends with those it
has. State lies in the checkpoint, so another executor loads the buckets of one that is gone with the next batch.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from pyspark.sql import SparkSession

log = logging.getLogger("spillway.scale")


class Fleet(Protocol):
    """The executors of an application, as the cluster knows them."""

    def registered(self) -> list[str]: ...
    def ask_for(self, total: int) -> None: ...
    def decommission(self, executor: str) -> None: ...


class SparkFleet:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self.fixed = str(spark.sparkContext.master).startswith("local")
        """The driver is its own executor."""

    def registered(self) -> list[str]:
        """Ids, oldest first."""
        if self.fixed:
            return ["driver"]
        found = self._context.getExecutorIds()
        return sorted((found.apply(i) for i in range(found.size())), key=int)

    def ask_for(self, total: int) -> None:
        hosts = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        if not self.fixed and not self._context.requestTotalExecutors(total, 0, hosts):
            log.warning("the cluster did not take the request for %d executors", total)

    def decommission(self, executor: str) -> None:
        why = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("fewer are wanted", self._jvm.scala.Option.empty())
        self._context.schedulerBackend().decommissionExecutor(executor, why, False, False)


class Executors:
    """Brought to what is wanted, pass by pass."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._asked: int | None = None
        self._leaving: set[str] = set()

    def count(self) -> int:
        return len(self._fleet.registered())

    def bring_to(self, wanted: int) -> int:
        """Asks for what is missing, sends away what is too many; returns how many are registered now."""
        there = self._fleet.registered()
        self._leaving &= set(there)
        if wanted != self._asked:
            if self._asked is not None:
                log.info("%d executors are wanted instead of %d", wanted, self._asked)
            self._fleet.ask_for(wanted)
            self._asked = wanted
        staying = [executor for executor in there if executor not in self._leaving]
        for executor in reversed(staying[wanted:]):
            self._fleet.decommission(executor)
            self._leaving.add(executor)
        return len(there)
