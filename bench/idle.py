"""What the embedded services cost while nothing happens: CPU and memory without a pipeline, and with an idle one on top.

make bench NAME=idle
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

import psutil
from _common import REPO, exit_code, finish, say
from spillway.embedded import Stack
from spillway.embedded.__main__ import ALL
from spillway.embedded.owner import scratch
from spillway.inject.player import play
from spillway.inject.profiles import Constant
from spillway.inject.scenario import load
from spillway.store import pipelines, session
from spillway.store.status import status
from spillway.topology import check_files

LIMIT_SERVICES, LIMIT_PIPELINE, LIMIT_MEMORY_GB = 35.0, 55.0, 8.0


def kind(process: psutil.Process, services: dict[int, str]) -> str:
    """The service a process belongs to; drivers and executors by themselves."""
    line = " ".join(process.cmdline())
    if "CoarseGrainedExecutorBackend" in line or "pyspark.daemon" in line:
        return "executors"
    if "spark_jobs/run.py" in line:
        return "drivers"
    for pid in (process.pid, *(p.pid for p in process.parents())):
        if pid in services:
            return services[pid]
    return "supervisor"


def measure(stack: Stack, seconds: float) -> dict[str, Any]:
    """CPU in per cent of one core and proportional memory, by service. What ended meanwhile is counted by its parent."""
    services = {pid: name for name, pid in stack.pids().items()}

    def times() -> dict[tuple[int, float], tuple[str, float]]:
        found = {}
        for process in stack.processes():
            with contextlib.suppress(psutil.Error):
                t = process.cpu_times()
                used = t.user + t.system + t.children_user + t.children_system
                found[process.pid, process.create_time()] = (kind(process, services), used)
        return found

    before, began = times(), time.monotonic()
    time.sleep(seconds)
    after, took = times(), time.monotonic() - began
    cpu: dict[str, float] = defaultdict(float)
    for key, (name, used) in after.items():
        cpu[name] += 100 * (used - before.get(key, (name, 0.0))[1]) / took
    memory = 0.0
    for process in stack.processes():
        with contextlib.suppress(psutil.Error):
            memory += process.memory_full_info().pss / 2**30
    by_service = {name: round(value, 1) for name, value in sorted(cpu.items(), key=lambda i: -i[1])}
    return {"cpu_pct": round(sum(cpu.values()), 1), "memory_gb": round(memory, 2), "by_service": by_service}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0, help="length of each measured window")
    args = parser.parse_args()
    with scratch("idle") as folder:
        stack = Stack(home=folder / "run", services=ALL)
        try:
            say("starting all services")
            stack.up()
            os.environ.update(stack.env)
            say("letting them settle")
            time.sleep(30)
            services = measure(stack, args.seconds)
            say(f"services: {services}")
            checked = check_files([REPO / "pipelines" / "taxi.yaml"])
            with session("control") as connection:
                pipelines.apply(connection, checked.pipelines[0], checked.files[0].source, "bench")
                pipelines.set_desired(connection, "taxi", "running", "bench")
            say("starting the taxi pipeline")
            deadline = time.monotonic() + 180
            while time.monotonic() < deadline:
                with session("read") as connection:
                    if status(connection, "taxi")[0].settled:
                        break
                time.sleep(2)
            scenario = load(REPO / "scenarios" / "rush_hour.yaml")
            few = tuple(replace(t, rate=Constant(100)) for t in scenario.topics)
            say("warming it up")
            play(replace(scenario, duration_s=60.0, topics=few, pipelines=()), stack.env["SPILLWAY_KAFKA"])
            time.sleep(30)
            both = measure(stack, args.seconds)
            say(f"with an idle pipeline: {both}")
        finally:
            say("stopping")
            stack.clean()
    return conclude(services, both)


def conclude(services: dict[str, Any], both: dict[str, Any]) -> int:
    added = round(both["cpu_pct"] - services["cpu_pct"], 1)
    goals = {
        "services_at_most_35_pct": services["cpu_pct"] <= LIMIT_SERVICES,
        "idle_pipeline_at_most_55_pct": added <= LIMIT_PIPELINE,
        "memory_at_most_8_gb": both["memory_gb"] <= LIMIT_MEMORY_GB,
    }
    finish("idle", {"services": services, "with_idle_pipeline": both, "pipeline_adds_cpu_pct": added, "goals": goals})
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
