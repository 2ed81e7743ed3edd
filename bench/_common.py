"""What all benches share: progress on stderr, one JSON object as the last line of stdout, alternating runs, the machine."""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import psutil

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(folder) for folder in (REPO, REPO / "plugins") if str(folder) not in sys.path]

T = TypeVar("T")
_BEGAN = time.monotonic()


def _end_by_exception(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


signal.signal(signal.SIGTERM, _end_by_exception)  # so that a bench still stops what it started


def say(text: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:6.1f}s] {text}", file=sys.stderr, flush=True)


def finish(bench: str, result: Mapping[str, Any]) -> None:
    """The last line of stdout: one JSON object with the name of the bench and the machine."""
    sys.stdout.flush()
    print(json.dumps({"bench": bench, **result, "machine": machine()}, separators=(",", ":")), flush=True)


class Record:
    """What a bench of hours has measured so far, one JSON object a line, so that it can be ended and gone on with."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.lines = path, list[dict[str, Any]]()
        if path is not None and path.exists():
            self.lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]

    def add(self, measured: Mapping[str, Any]) -> None:
        line = {**measured, "commit": _commit(), "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"}
        self.lines.append(line)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def commits(self) -> list[str]:
        """Of the code that was measured."""
        return list(dict.fromkeys(line["commit"] for line in self.lines))


def _commit() -> str:
    asked = ["git", "-C", str(REPO), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def exit_code(goals: Mapping[str, Any]) -> int:
    """0 when every stated goal was reached; goals may be grouped."""
    return max((exit_code(g) if isinstance(g, Mapping) else int(not g) for g in goals.values()), default=0)


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        "load1": round(os.getloadavg()[0], 2),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def alternate(variants: Mapping[str, Callable[[int], T]], *, rounds: int, warm_up: int = 1) -> dict[str, list[T]]:
    """Runs every variant once per round, the order turning around each time, so that drift hits all alike.

    The `warm_up` rounds are run and dropped; each variant gets the number of its round.
    """
    results: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(-warm_up, rounds):
        order = list(variants) if number % 2 == 0 else list(variants)[::-1]
        for name in order:
            say(f"{'warm-up' if number < 0 else f'round {number + 1} of {rounds}'}: {name}")
            result = variants[name](number)
            if number >= 0:
                results[name].append(result)
    return results


def paired_ratios(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    """One ratio per round."""
    return [a / b for a, b in zip(top, bottom, strict=True)]


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median, least and greatest."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def statuses(decided: Iterable[tuple[datetime, str]], windows: Collection[datetime], pipelines: int = 1) -> dict[str, int]:
    """How many decisions on the windows that end then have which status, and how many are `missing`.

    A run of the DAG does not tell: it goes on for other pipelines when a gate refuses one.
    """
    found = Counter(status for end, status in decided if end in windows)
    missing = pipelines * len(windows) - found.total()
    return dict(found) | ({"missing": missing} if missing else {})


def all_published(statuses: Mapping[str, int]) -> bool:
    return set(statuses) == {"published"}


@contextmanager
def services(*names: str) -> Iterator[dict[str, str]]:
    """Embedded services of this bench's own, in a folder that goes with them; yields their SPILLWAY_* variables."""
    from spillway.embedded import Stack
    from spillway.embedded.owner import scratch

    with scratch("bench") as folder:
        stack = Stack(home=folder / "run", services=names)
        say(f"starting {', '.join(names)}")
        try:
            stack.up()
            yield stack.env
        finally:
            say("stopping the services")
            stack.clean()


def fail(text: str) -> int:
    """One sentence on stderr; the exit code to return."""
    print(text, file=sys.stderr, flush=True)
    return 1
