"""Drivers and executors on this machine, from their command lines; CPU and memory of each with its Python workers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import psutil

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
DRIVERS = ("org.apache.spark.deploy.worker.DriverWrapper", "org.apache.spark.deploy.SparkSubmit")
NAME = re.compile(r"^(?:-D)?spark\.app\.name=(spillway:[^:]+:[^:]+:\d+)$")
YOUNG_S = 15.0
"""A process is looked at again until it is this old: between fork and exec it still carries its parent's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    executor: str
    """Executor id, or `driver`."""
    spark_app: str | None = None
    """Spark's application id: on the command line of executors only."""
    name: str | None = None
    """`spillway:pipeline:application:generation`: on the command line of drivers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one driver or executor took during a window."""

    role: Role
    node: str
    cpu_pct: float
    rss_bytes: int
    window_s: float


@dataclass(slots=True)
class _Tracked:
    role: Role
    node: str
    members: dict[int, psutil.Process] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)


def role_of(command: Sequence[str]) -> Role | None:
    """What a process is to Spillway, by its command line.

    >>> role_of(["java", "-cp", "x", EXECUTOR, "--executor-id", "3", "--app-id", "app-1", "--worker-url", "spark://Worker@h:1"])
    Role(executor='3', spark_app='app-1', name=None)
    >>> role_of(["java", "-Dspark.app.name=spillway:taxi:heavy:4", DRIVERS[0], "spark://Worker@h:1", "run.py"])
    Role(executor='driver', spark_app=None, name='spillway:taxi:heavy:4')
    >>> role_of(["java", "org.apache.spark.deploy.worker.Worker", "--webui-port", "0"])
    """
    if EXECUTOR in command:
        options = dict(pairwise(command))
        if "--executor-id" in options and "--app-id" in options:
            return Role(executor=options["--executor-id"], spark_app=options["--app-id"])
        return None
    if any(main in command for main in DRIVERS):
        name = next((match[1] for part in command if (match := NAME.match(part))), None)
        return Role(executor="driver", name=name) if name else None
    return None


def node_of(environment: Mapping[str, str], cores: Sequence[int], nodes: Mapping[str, frozenset[int]]) -> str | None:
    """The node a process belongs to: what its worker was told, else the node whose cores it is confined to, else the only one.

    >>> two = {"n1": frozenset({0}), "n2": frozenset({1})}
    >>> node_of({"SPILLWAY_NODE": "n2"}, [0, 1], two), node_of({}, [0], two), node_of({}, [0, 1], two)
    ('n2', 'n1', None)
    """
    told = environment.get("SPILLWAY_NODE")
    if told in nodes:
        return told
    if len(nodes) == 1:
        return next(iter(nodes))
    return next((name for name, own in nodes.items() if own.issuperset(cores)), None)


class Processes:
    """Keeps the processes it knows and looks closer only at new ones."""

    def __init__(self, nodes: Mapping[str, frozenset[int]], now_s: float) -> None:
        self._nodes = nodes
        self._at_s = now_s
        self._roots: dict[int, _Tracked] = {}
        self._root_of: dict[int, int] = {}
        self._settled: set[int] = set()

    def measure(self, now_s: float) -> list[Usage]:
        """Usage since the last call; a process that is new since then counts from its start. `now_s`: monotonic, right before."""
        window_s, self._at_s = now_s - self._at_s, now_s
        return [self._usage(tracked, window_s) for tracked in self._roots.values()]

    def rescan(self) -> None:
        """Looks for processes that came and went. Takes a moment: to be done before the clock is read for `measure`."""
        alive = set(psutil.pids())
        for pid in self._root_of.keys() - alive:
            root = self._root_of.pop(pid)
            if root in self._roots:
                self._roots[root].members.pop(pid, None)
                self._roots[root].cpu_s.pop(pid, None)
            if root == pid:
                self._roots.pop(pid, None)
        self._settled &= alive
        now = time.time()
        for pid in sorted(alive - self._settled - self._root_of.keys()):
            try:
                self._look(psutil.Process(pid), now)
            except psutil.Error:
                continue

    def _look(self, process: psutil.Process, now: float) -> None:
        with process.oneshot():
            role = role_of(process.cmdline())
            parent = process.ppid()
            born = process.create_time()
        if role is not None:
            node = node_of(_environment(process), _cores(process), self._nodes)
            if node is not None:
                self._roots[process.pid] = _Tracked(role, node)
                self._join(process, process.pid)
                return
        elif parent in self._root_of:
            self._join(process, self._root_of[parent])
            return
        if now - born > YOUNG_S:
            self._settled.add(process.pid)

    def _join(self, process: psutil.Process, root: int) -> None:
        self._root_of[process.pid] = root
        if root in self._roots:
            self._roots[root].members[process.pid] = process

    def _usage(self, tracked: _Tracked, window_s: float) -> Usage:
        used, rss = 0.0, 0
        for pid, process in tracked.members.items():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    rss += process.memory_info().rss
            except psutil.Error:
                continue
            total = times.user + times.system
            used += max(0.0, total - tracked.cpu_s.get(pid, 0.0))
            tracked.cpu_s[pid] = total
        return Usage(role=tracked.role, node=tracked.node, cpu_pct=100.0 * used / window_s, rss_bytes=rss, window_s=window_s)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # a process of somebody else
        return {}


def _cores(process: psutil.Process) -> list[int]:
    try:
        return process.cpu_affinity() or []
    except (psutil.Error, AttributeError):  # no such call on this system
        return []
