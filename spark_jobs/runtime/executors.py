"""Rows and CPU time per executor of each operator, from the driver's REST API.

The API is slow on a loaded machine, so one finished job per operator is looked at once a cycle; its shares are applied to all
rows the operator read meanwhile.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("spillway.executors")

COLUMNS = ["pipeline", "application", "operator", "executor", "at", "rows", "cpu_ms", "window_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRows:
    """Rows of the table executor_rows, in the order of `COLUMNS`."""

    rows: tuple[tuple[Any, ...], ...]

    @property
    def count(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One executor's part of an operator's last job."""

    executor: str
    rows: int
    cpu_ms: float


def newest_job(jobs: Iterable[dict[str, Any]], group: str) -> dict[str, Any] | None:
    """The last job of a query (its job group is the query's run id) that succeeded and whose stages all ran."""
    found = [j for j in jobs if j.get("jobGroup") == group and j.get("status") == "SUCCEEDED" and not j.get("numSkippedStages")]
    return max(found, key=lambda j: int(j["jobId"]), default=None)


def shares(stages: Iterable[dict[str, Any]]) -> list[Share]:
    """Rows read and CPU time per executor, summed over a job's stages. A stage tells its CPU time as a whole: split by task time.

    >>> stage = {"executorCpuTime": 3_000_000, "executorSummary": {
    ...     "0": {"inputRecords": 10, "taskTime": 20}, "1": {"inputRecords": 30, "taskTime": 40}}}
    >>> shares([stage])
    [Share(executor='0', rows=10, cpu_ms=1.0), Share(executor='1', rows=30, cpu_ms=2.0)]
    """
    rows: dict[str, int] = {}
    cpu: dict[str, float] = {}
    for stage in stages:
        summary = stage.get("executorSummary") or {}
        busy = sum(float(e.get("taskTime", 0)) for e in summary.values())
        for executor, part in summary.items():
            rows[executor] = rows.get(executor, 0) + int(part.get("inputRecords", 0))
            if busy:
                share = float(part.get("taskTime", 0)) / busy
                cpu[executor] = cpu.get(executor, 0.0) + share * float(stage.get("executorCpuTime", 0)) / 1e6
    return [Share(executor=e, rows=rows[e], cpu_ms=cpu.get(e, 0.0)) for e in sorted(rows)]


def scaled(found: list[Share], rows_in_window: int) -> list[Share]:
    """The shares of one job, applied to all rows of the window. Nothing read in the job: nothing is known.

    >>> scaled([Share(executor="0", rows=10, cpu_ms=1.0), Share(executor="1", rows=30, cpu_ms=3.0)], 400)
    [Share(executor='0', rows=100, cpu_ms=10.0), Share(executor='1', rows=300, cpu_ms=30.0)]
    """
    total = sum(s.rows for s in found)
    if not total:
        return []
    factor = rows_in_window / total
    return [Share(executor=s.executor, rows=round(s.rows * factor), cpu_ms=s.cpu_ms * factor) for s in found]


class ExecutorReader:
    """Asked every now and then by the driver; answers at most once a cycle, never raises."""

    def __init__(
        self, ui: str | None, app: str, key: tuple[str, str], every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`key`: pipeline and application."""
        self._base = f"{ui}/api/v1/applications/{app}" if ui else None
        self._key, self._every_s, self._clock = key, every_s, clock
        self._asked = clock()
        self._rows: dict[str, int] = {}

    def read(self, operator: str, rows: int) -> None:
        """An operator read so many rows more."""
        self._rows[operator] = self._rows.get(operator, 0) + rows

    def due(self) -> bool:
        return self._base is not None and self._clock() - self._asked >= self._every_s and any(self._rows.values())

    def collect(self, groups: dict[str, str]) -> ExecutorRows:
        """What was read since the last call; `groups`: operator → run id of its query."""
        window_s, self._asked = self._clock() - self._asked, self._clock()
        rows, self._rows = self._rows, {}
        at = datetime.now(UTC)
        found: list[tuple[Any, ...]] = []
        try:
            jobs = self._get("/jobs")
            for operator, group in groups.items():
                job = newest_job(jobs, group) if rows.get(operator) else None
                if job is None:
                    continue
                stages = [attempt for stage in job["stageIds"] for attempt in self._get(f"/stages/{stage}")]
                found += [
                    (*self._key, operator, s.executor, at, s.rows, s.cpu_ms, window_s)
                    for s in scaled(shares(stages), rows[operator])
                ]
        except (OSError, ValueError, KeyError) as error:
            log.warning("the driver's REST API did not tell its executors' rows: %s", error)
        return ExecutorRows(rows=tuple(found))

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._base}{path}", timeout=5) as answer:
            return json.load(answer)
