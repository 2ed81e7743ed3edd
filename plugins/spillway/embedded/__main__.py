"""`python -m spillway.embedded up|down|status|logs|stop|start|restart|clean`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from spillway.embedded.config import default_home
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.services import SERVICES
from spillway.embedded.stack import Stack

ALL = ("postgres", "kafka", "spark", *(s for s in ("agent",) if s in SERVICES), "airflow")


class Follow:
    """Prints what changes while services start or stop: one line a change, with seconds since the beginning.

    While they stop, how they were before is no change.
    """

    def __init__(self, stream: Any = sys.stdout, *, stopping: bool = False) -> None:
        self.began, self.seen, self.said, self.stream = time.monotonic(), dict[str, str](), "", stream
        self.silent = stopping

    def _line(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.1f}s] {text}", file=self.stream, flush=True)

    def __call__(self, state: dict[str, Any]) -> None:
        if (message := state.get("message") or "") != self.said and state.get("phase") != "failed":
            self.said = message
            if message:
                self._line(message)
        for name, row in (state.get("services") or {}).items():
            changed = row["health"] != self.seen.get(name) and (name in self.seen or row["health"] not in ("waiting", "stopped"))
            if changed and not (self.silent and row["health"] == "healthy"):
                port = f" on port {row['port']}" if row["health"] == "healthy" and row["port"] else ""
                self._line(f"{name} {row['health']}{port}")
            self.seen[name] = row["health"]


def up(stack: Stack) -> int:
    stack.up(Follow())
    env, running = stack.env, stack.state()["services"]
    if "airflow-api" in running:
        user, password = stack.airflow_login
        print(f"Airflow  {env['SPILLWAY_AIRFLOW']}  user {user}  password {password}")
    if "spark-master" in running:
        print(f"Spark    {env['SPILLWAY_SPARK_UI']}  (master {env['SPILLWAY_SPARK_MASTER']})")
    if "kafka" in running:
        print(f"Kafka    {env['SPILLWAY_KAFKA']}")
    if "postgres" in running:
        print(f"Postgres port {running['postgres']['port']}, roles in {stack.layout.env}")
    return 0


def down(stack: Stack) -> int:
    stack.down(Follow(stopping=True))
    print("Nothing of this run is left running.")
    return 0


def status(stack: Stack) -> int:
    state = stack.state()
    if not state["alive"]:
        print("The services are down: start them with `make up`.")
        return 3
    print(f"{'service':<24}{'health':<12}{'pid':>8}{'port':>7}{'restarts':>10}  {'for':>7}")
    for name, row in state["services"].items():
        print(
            f"{name:<24}{row['health']:<12}{row['pid'] or '-':>8}{row['port'] or '-':>7}{row['restarts']:>10}"
            f"  {time.time() - row['since']:>6.0f}s  {row['reason']}"
        )
    return 0 if all(r["health"] in ("healthy", "stopped") for r in state["services"].values()) else 1


def logs(stack: Stack, name: str, lines: int, follow: bool) -> int:
    path = stack.layout.log(name)
    known = sorted(p.stem for p in stack.layout.logs.glob("*.log"))
    if not path.exists():
        raise EmbeddedError(f"There is no log called {name}: there are {', '.join(known) or 'none yet'}.")
    if text := stack.log_tail(name, lines):
        print(text)
    elif others := [other for other in known if other != name]:
        print(f"The log of {name} is empty. There are logs of {', '.join(known)}: `make logs S={others[0]}`.")
    else:
        print(f"The log of {name} is empty, and there is no other.")
    sys.stdout.flush()
    if follow:
        os.execvp("tail", ["tail", "-n", "0", "-F", str(path)])
    return 0


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spillway.embedded", description=__doc__)
    parser.add_argument("--home", type=Path, default=None, help="run folder (default $SPILLWAY_HOME or .spillway in the clone)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    start_up = verbs.add_parser("up", help="start the services and wait until they are healthy")
    start_up.add_argument("--services", default=",".join(ALL), help="which, separated by commas (default: all)")
    verbs.add_parser("down", help="stop the services and leave no process")
    verbs.add_parser("status", help="show the services")
    verbs.add_parser("clean", help="stop the services and remove their data")
    show = verbs.add_parser("logs", help="show the end of a service's log")
    show.add_argument("name")
    show.add_argument("-n", "--lines", type=int, default=50)
    show.add_argument("-f", "--follow", action="store_true")
    for verb in ("stop", "start", "restart"):
        verbs.add_parser(verb, help=f"{verb} one service or group").add_argument("name")
    a = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    stack = Stack(a.home or default_home(), a.services.split(",") if a.verb == "up" else ALL)
    try:
        if a.verb == "up":
            return up(stack)
        if a.verb == "down":
            return down(stack)
        if a.verb == "status":
            return status(stack)
        if a.verb == "logs":
            return logs(stack, a.name, a.lines, a.follow)
        if a.verb == "clean":
            stack.clean()
            return 0
        getattr(stack, a.verb)(a.name)
        return 0
    except EmbeddedError as e:
        failed = next((n for n, r in (stack.state().get("services") or {}).items() if r.get("reason") == str(e)), None)
        if failed and (text := stack.log_tail(failed)):
            print(f"--- the end of {stack.layout.log(failed)}\n{text}\n---", file=sys.stderr)
        print(e, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            print("Interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
