"""How a driver is started, watched and ended, whatever cluster it runs on.

| launcher | cluster | file |
|---|---|---|
| `standalone` | Spark standalone, the master's REST submission | standalone.py |
| `kubernetes`, `yarn` | `spark-submit` in cluster mode through the Airflow Spark provider | submit.py |
| `local` | a detached process on this machine, for tests and single-machine use | local.py |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from spillway.decide.streams import DriverStatus

__all__ = [
    "DriverStatus",
    "Found",
    "LaunchRefused",
    "LaunchSpec",
    "Launcher",
    "LauncherUnreachable",
    "Sighting",
    "launcher_from",
    "parse_name",
]

NAME = re.compile(r"^spillway:(?P<pipeline>[^:]+):(?P<application>[^:]+):(?P<generation>\d+)$")


class LauncherUnreachable(RuntimeError):
    """The cluster did not answer, or is not the one it should be: what runs there is not known."""


class LaunchRefused(RuntimeError):
    """The cluster answered and will not run this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything a launcher needs to know of one generation of one application."""

    pipeline: str
    application: str
    generation: int
    store: str
    """Identity of the Spillway store, so that two installations on one cluster leave each other's drivers alone."""
    node: str | None = None
    executors: int = 1
    max_executors: int = 1
    slots: int = 1
    driver_memory_mb: int = 512
    executor_memory_mb: int = 512
    conf: Mapping[str, str] = field(default_factory=dict)
    successor: int | None = None
    """The plan for which it is launched beside the driver that runs: it rehearses first, and takes over when told."""

    @property
    def name(self) -> str:
        """
        >>> LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="s").name
        'spillway:taxi:heavy:4'
        """
        return f"spillway:{self.pipeline}:{self.application}:{self.generation}"

    @property
    def arguments(self) -> list[str]:
        """
        >>> LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="s", successor=7).arguments[4:]
        ['--generation', '4', '--successor', '7']
        """
        plan = [] if self.successor is None else ["--successor", str(self.successor)]
        return ["--pipeline", self.pipeline, "--application", self.application, "--generation", str(self.generation), *plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    handle: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Live drivers of one store; `unidentified` counts submissions whose name the cluster cannot tell yet."""

    found: tuple[Found, ...] = ()
    unidentified: int = 0


class Launcher(Protocol):
    name: str

    def submit(self, spec: LaunchSpec) -> str:
        """Hand the driver to the cluster and return its handle; LaunchRefused or LauncherUnreachable otherwise."""

    def status(self, handle: str) -> DriverStatus:
        """Never raises: a cluster that does not answer is UNREACHABLE."""

    def kill(self, handle: str) -> None:
        """Ask for the end of a driver; one that is gone already is no error."""

    def find(self, store: str) -> Sighting:
        """All live drivers of a store, by their names, whoever recorded them; LauncherUnreachable when that cannot be told."""


def parse_name(name: str) -> tuple[str, str, int] | None:
    """
    >>> parse_name("spillway:taxi:heavy:4")
    ('taxi', 'heavy', 4)
    >>> parse_name("someone else's job")
    """
    match = NAME.match(name)
    return (match["pipeline"], match["application"], int(match["generation"])) if match else None


def program() -> str:
    """The driver program of this installation; the same path on every machine of it."""
    import spillway

    return str(Path(spillway.__file__).resolve().parents[2] / "spark_jobs" / "run.py")


def launcher_from(environment: Mapping[str, str]) -> Launcher:
    """The launcher an installation is set up for: `SPILLWAY_LAUNCHER`, by default the standalone master's."""
    kind = environment.get("SPILLWAY_LAUNCHER", "standalone")
    if kind == "standalone":
        from spillway.act.launch.standalone import StandaloneLauncher

        return StandaloneLauncher.from_environment(environment)
    if kind == "local":
        from spillway.act.launch.local import LocalLauncher

        return LocalLauncher.from_environment(environment)
    if kind in ("kubernetes", "yarn"):
        from spillway.act.launch.submit import submit_launcher

        return submit_launcher(kind, environment)
    raise ValueError(f"SPILLWAY_LAUNCHER is '{kind}': use one of standalone, kubernetes, yarn, local.")
