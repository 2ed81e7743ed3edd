"""What benches on the whole line share: all embedded services with Airflow, and a pipeline on them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from _common import REPO, say
from spillway.act.launch.standalone import StandaloneLauncher
from spillway.act.live import resident
from spillway.act.streams import converge
from spillway.demo.line import Line
from spillway.embedded import Stack
from spillway.embedded.__main__ import ALL
from spillway.embedded.owner import scratch
from spillway.policy import Policy
from spillway.store import session
from spillway.store.connection import connect

from tests.support import airflow_rest

POLICY, ELASTIC = REPO / "policies" / "responsive.yaml", REPO / "policies" / "elastic.yaml"
"""The second one is that of the demo."""


@contextlib.contextmanager
def on_airflow(file: Path, policy_file: Path = POLICY, **tunables: Any) -> Iterator[tuple[Stack, Line, Policy]]:
    """All services of this bench's own, with these tunables, and a pipeline on them that is not started yet."""
    with changeable_policy(tunables, policy_file) as policy, scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=ALL)
        say(f"starting {', '.join(ALL)}")
        try:
            stack.up()
            os.environ.update(stack.env)
            yield stack, Line(file, stack.env["SPILLWAY_KAFKA"], say, "bench"), policy
        finally:
            say("stopping the services")
            stack.clean()


@contextlib.contextmanager
def changeable_policy(tunables: Mapping[str, Any] = MappingProxyType({}), given_file: Path = POLICY) -> Iterator[Policy]:
    """A policy in a file named in the environment: every process of the run has it, and reads it anew when it was changed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(given_file.read_text(encoding="utf-8"), encoding="utf-8")
        given = {"SPILLWAY_POLICY": str(file), **{f"SPILLWAY_POLICY_{n.upper()}": str(value) for n, value in tunables.items()}}
        os.environ.update(given)
        try:
            yield Policy.load()
        finally:
            for name in given:
                os.environ.pop(name, None)


def change_policy(**tunables: Any) -> Policy:
    """From the next step of a cycle on; not for what is read once, such as the length of a cycle."""
    file = Path(os.environ["SPILLWAY_POLICY"])
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.split(":")[0] not in tunables]
    whole = Path(f"{file}.new")
    whole.write_text("\n".join([*lines, *(f"{name}: {value}" for name, value in tunables.items()), ""]), encoding="utf-8")
    whole.replace(file)
    return Policy.load()


@contextlib.contextmanager
def on_cluster(**tunables: Any) -> Iterator[tuple[Stack, Policy]]:
    """Everything but Airflow; threads of this process do what the tasks of spillway_streams and spillway_qod do, by the same
    functions."""
    stop = threading.Event()
    with changeable_policy(tunables) as policy, scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=[s for s in ALL if s != "airflow"])
        say("starting the services")
        try:
            stack.up()
            os.environ.update(stack.env)
            for body in (_converge, _cycles):
                threading.Thread(target=body, args=(policy, stop), daemon=True).start()
            yield stack, policy
        finally:
            stop.set()
            say("stopping the services")
            stack.clean()


def _converge(policy: Policy, stop: threading.Event) -> None:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    while not stop.wait(3.0):
        try:
            with session("control") as connection:
                converge(connection, StandaloneLauncher.from_environment(environment), policy)
        except Exception as error:
            say(f"converge: {type(error).__name__}: {error}")


def _cycles(policy: Policy, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            until = datetime.now(UTC) + timedelta(seconds=policy.qod_cycle_s)
            resident(lambda: connect("control"), policy, until)
        except Exception as error:
            say(f"cycle: {type(error).__name__}: {error}")
            stop.wait(1.0)


class Airflow(airflow_rest.Airflow):
    def ended(self, dag: str, since: datetime) -> list[dict[str, Any]]:
        """Runs that began since then and have ended."""
        asked = {"order_by": "-run_after", "limit": 100, "start_date_gte": since.isoformat()}
        runs = self.call("GET", f"/dags/{dag}/dagRuns", params=asked)["dag_runs"]
        return [r for r in runs if r["end_date"]]


class Cpu:
    """CPU of services since it was made, with all they started; what ended meanwhile is counted by its parent."""

    def __init__(self, stack: Stack, *prefixes: str) -> None:
        self._stack, self._prefixes = stack, prefixes
        self._began, self._before = time.monotonic(), self._times()

    def _times(self) -> dict[tuple[int, float], float]:
        roots = [pid for name, pid in self._stack.pids().items() if name.startswith(self._prefixes)]
        found: dict[tuple[int, float], float] = {}
        for root in roots:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(root)
                for member in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        t = member.cpu_times()
                        found[member.pid, member.create_time()] = t.user + t.system + t.children_user + t.children_system
        return found

    def pct(self) -> float:
        """In percent of a core."""
        took = time.monotonic() - self._began
        return 100 * sum(max(0.0, used - self._before.get(key, 0.0)) for key, used in self._times().items()) / took


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
