"""What benches on the whole line share: all embedded services with Airflow, and a pipeline on them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from _common import say
from spillway.demo.line import Line
from spillway.embedded import Stack
from spillway.embedded.__main__ import ALL
from spillway.embedded.owner import scratch
from spillway.policy import Policy

POLICY: Mapping[str, Any] = {"batch_rows_first": 2000}
"""As the demo has it."""


@contextlib.contextmanager
def on_airflow(file: Path, **tunables: Any) -> Iterator[tuple[Stack, Line, Policy]]:
    """All services of this bench's own, with these tunables, and a pipeline on them that is not started yet."""
    given = {f"SPILLWAY_POLICY_{name.upper()}": str(value) for name, value in {**POLICY, **tunables}.items()}
    os.environ.update(given)
    with scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=ALL)
        say(f"starting {', '.join(ALL)}")
        try:
            stack.up()
            os.environ.update(stack.env)
            yield stack, Line(file, stack.env["SPILLWAY_KAFKA"], say, "bench"), Policy.load()
        finally:
            say("stopping the services")
            stack.clean()
            for name in given:
                os.environ.pop(name, None)


class Strangers:
    """CPU that others on the machine took meanwhile, in percent of a core: what was measured has to be read with it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._began, self._busy, self._own = time.monotonic(), _busy_s(), self._own_s()

    def _own_s(self) -> float:
        total = sum(psutil.Process().cpu_times()[:2])
        for process in self._stack.processes():
            with contextlib.suppress(psutil.Error):
                t = process.cpu_times()
                total += t.user + t.system + t.children_user + t.children_system
        return total

    def cpu_pct(self) -> float:
        """Since it was made; what services' ended children took may be missing from ours."""
        took = time.monotonic() - self._began
        return round(max(0.0, 100 * ((_busy_s() - self._busy) - (self._own_s() - self._own)) / took), 1)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
