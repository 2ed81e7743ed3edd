"""The agent that measures CPU, memory and network beside the workers."""

from __future__ import annotations

import sys

import psutil

from spillway.embedded.config import stack
from spillway.embedded.services.base import Context, Launch, Service
from spillway.embedded.services.spark import cores_of


def launch(context: Context) -> Launch:
    """`SPILLWAY_NODES` says which cores belong to which node; a node without cores of its own has the whole machine."""
    nodes = ",".join(f"{n}={'+'.join(map(str, cores_of(n)))}" for n in stack()["nodes"])
    env = context.service_env("job") | {"SPILLWAY_NODES": nodes}
    return Launch(command=[sys.executable, "-m", "spillway.observe.agent"], env=env, cwd=context.layout.run)


def healthy(_: Context, pid: int) -> str | None:
    """It has no port: alive for a second is what can be seen from outside."""
    import time

    return None if time.time() - psutil.Process(pid).create_time() > 1 else "just started"


SERVICE = Service(name="agent", needs=("postgres",), launch=launch, healthy=healthy, start_timeout_s=30, stop_timeout_s=5)
