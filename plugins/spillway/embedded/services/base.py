"""What the supervisor needs to know of a service, and what a service may know of the run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from spillway.embedded.config import HOST, REPO, Layout, package_dir, stack
from spillway.embedded.processes import MARK

# What a service may inherit from the person's shell; everything else is set here, so that two machines behave alike.
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TERM",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One run: folders, ports, secrets, Java, jars."""

    layout: Layout
    ports: Mapping[str, int]
    secrets: Mapping[str, str]
    java_home: Path
    jars: Mapping[str, Path]
    archive: Path | None = None
    """Of Spark's classes."""
    extra_env: Mapping[str, str] = field(default_factory=dict)

    def dsn(self, role: str, database: str = "spillway") -> str:
        return f"postgresql://{role}:{self.secrets[role]}@{HOST}:{self.ports['postgres']}/{database}"

    def public_env(self) -> dict[str, str]:
        """Addresses, without a secret."""
        at = {
            "kafka": f"{HOST}:{self.ports['kafka']}",
            "spark_master": f"spark://{HOST}:{self.ports['spark_master']}",
            "spark_rest": f"http://{HOST}:{self.ports['spark_rest']}",
            "spark_ui": f"http://{HOST}:{self.ports['spark_ui']}",
            "checkpoints": self.layout.checkpoints.as_uri(),
            "jars": str(self.jars["connector"]),
            "airflow": f"http://{HOST}:{self.ports['airflow']}",
        }
        env = {k: str(v).format(**at) for k, v in stack()["environment"].items()}
        if self.archive is not None:
            env |= {"SPILLWAY_CLASS_ARCHIVE": str(self.archive), "SPILLWAY_SPARK_JARS": str(package_dir("pyspark") / "jars")}
        return env

    def client_env(self) -> dict[str, str]:
        """What a person's program gets (`$SPILLWAY_HOME/env`): addresses and the four roles."""
        env = {"SPILLWAY_HOME": str(self.layout.home), **self.public_env()}
        for role in ("owner", "control", "job", "read"):
            env[f"SPILLWAY_DSN_{role.upper()}"] = self.dsn(f"spillway_{role}")
        return env

    def service_env(self, *roles: str) -> dict[str, str]:
        """What a service gets: addresses, its own roles only, and the mark by which it is found again."""
        env = {k: os.environ[k] for k in INHERITED if k in os.environ}
        env.update(self.extra_env)
        env.update(self.public_env())
        for role in roles:
            env[f"SPILLWAY_DSN_{role.upper()}"] = self.dsn(f"spillway_{role}")
        venv_bin = str(Path(sys.executable).parent)
        env.update(
            {
                MARK: str(self.layout.home),
                "SPILLWAY_HOME": str(self.layout.home),
                "JAVA_HOME": str(self.java_home),
                "PATH": f"{venv_bin}:{env.get('PATH', os.defpath)}",
                "PYTHONPATH": f"{REPO / 'plugins'}:{REPO}",
                "PYTHONUNBUFFERED": "1",
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPT_NOENV": "1",  # setproctitle would write over the mark
                "no_proxy": "127.0.0.1,localhost",
                "NO_PROXY": "127.0.0.1,localhost",
            }
        )
        return env


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a process."""

    command: list[str]
    env: dict[str, str]
    cwd: Path
    user: tuple[int, int] | None = None
    cpus: tuple[int, ...] = ()
    nice: int = 0
    """How much less urgent it is than the others."""


def nothing(_: Context) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process under the supervisor. The functions are given the context; `healthy` says why not yet, or None."""

    name: str
    launch: Callable[[Context], Launch]
    healthy: Callable[[Context, int], str | None]
    needs: tuple[str, ...] = ()
    port: str | None = None
    prepare: Callable[[Context], None] = nothing
    ready: Callable[[Context], None] = nothing
    start_timeout_s: float = 90
    stop_timeout_s: float = 20
    stop_stage: int = 0  # lower ones are stopped first
    stop_signal: signal.Signals = signal.SIGTERM


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get_json(url: str, timeout_s: float = 5) -> Any:
    """A JSON document from loopback, never through a proxy; None if there is no answer."""
    try:
        with _direct.open(url, timeout=timeout_s) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=2):
        return True
    return False


def listens(pid: int, port: int) -> bool:
    """Whether this process or one of its children is what listens on the port."""
    try:
        root = psutil.Process(pid)
        for p in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in p.net_connections(kind="tcp")):
                    return True
    except psutil.Error:
        pass
    return False
