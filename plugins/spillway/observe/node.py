"""CPU, load, memory and network of the nodes that this machine plays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    node: str
    cores: int
    cpu_pct: float
    load1: float
    mem_used: int
    mem_total: int
    net_rx_bps: float
    net_tx_bps: float
    window_s: float


def parse_nodes(environment: Mapping[str, str], cores: int) -> dict[str, frozenset[int]]:
    """Node names with the cores they are confined to.

    `SPILLWAY_NODES` lists several nodes on one machine; elsewhere `SPILLWAY_NODE` is the one and has all of it.

    >>> nodes = parse_nodes({"SPILLWAY_NODES": "n1=0,n2=1+3,n3="}, 4)
    >>> {name: sorted(own) for name, own in nodes.items()}
    {'n1': [0], 'n2': [1, 3], 'n3': [0, 1, 2, 3]}
    >>> len(parse_nodes({"SPILLWAY_NODE": "worker-7"}, 64)["worker-7"])
    64
    """
    several = environment.get("SPILLWAY_NODES", "").strip()
    if not several:
        name = environment.get("SPILLWAY_NODE", "").strip()
        if not name:
            raise ValueError(
                "SPILLWAY_NODE is not set: name the node this agent runs on (or SPILLWAY_NODES=n1=0,n2=1 for several)."
            )
        return {name: frozenset(range(cores))}
    nodes = {}
    for part in several.split(","):
        name, _, own = part.strip().partition("=")
        try:
            nodes[name] = frozenset(int(core) for core in own.split("+")) if own else frozenset(range(cores))
        except ValueError:
            name = ""
        if not name:
            raise ValueError(f"SPILLWAY_NODES has '{part}': write name=core, or name=core+core, separated by commas.")
        if max(nodes[name]) >= cores:
            raise ValueError(f"SPILLWAY_NODES has '{part}', but this machine has the cores 0 to {cores - 1}.")
    return nodes


class Nodes:
    """Times are those of a monotonic clock, taken right before the call: counters and window must span the same time."""

    def __init__(self, nodes: Mapping[str, frozenset[int]], now_s: float) -> None:
        self._nodes = nodes
        self._at_s = now_s
        self._busy = _busy_s()
        self._net = psutil.net_io_counters()

    def measure(self, now_s: float) -> list[NodeSample]:
        """Since the last call. Network is the machine's: nodes that share one show the same."""
        busy, before = _busy_s(), self._busy
        net, sent = psutil.net_io_counters(), self._net
        window_s = now_s - self._at_s
        self._busy, self._net, self._at_s = busy, net, now_s
        memory, load = psutil.virtual_memory(), os.getloadavg()[0]
        return [
            NodeSample(
                node=name,
                cores=len(own),
                cpu_pct=100.0 * sum(max(0.0, busy[core] - before[core]) for core in own) / window_s,
                load1=load,
                mem_used=memory.total - memory.available,
                mem_total=memory.total,
                net_rx_bps=max(0, net.bytes_recv - sent.bytes_recv) * 8 / window_s,
                net_tx_bps=max(0, net.bytes_sent - sent.bytes_sent) * 8 / window_s,
                window_s=window_s,
            )
            for name, own in self._nodes.items()
        ]


def _busy_s() -> list[float]:
    return [_busy(times) for times in psutil.cpu_times(percpu=True)]


def _busy(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice already
    return float(sum(times) - idle - guest)
