"""The services in the order in which they are shown; a group name stands for its members."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from spillway.embedded.errors import EmbeddedError
from spillway.embedded.services import agent, airflow, kafka, postgres, spark
from spillway.embedded.services.base import Service

_AGENT = (agent.SERVICE,) if importlib.util.find_spec("spillway.observe.agent") else ()
SERVICES: dict[str, Service] = {
    s.name: s for s in (postgres.SERVICE, kafka.SERVICE, spark.MASTER, *spark.WORKERS, *_AGENT, *airflow.SERVICES)
}
GROUPS: dict[str, tuple[str, ...]] = {
    "spark": ("spark-master", *(w.name for w in spark.WORKERS)),
    "airflow": tuple(s.name for s in airflow.SERVICES),
}


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Service names for service and group names, with what they need, in starting order."""
    wanted: set[str] = set()

    def add(name: str) -> None:
        if name in GROUPS:
            for member in GROUPS[name]:
                add(member)
        elif name in SERVICES:
            wanted.add(name)
            for need in SERVICES[name].needs:
                add(need)
        else:
            known = ", ".join([*GROUPS, *SERVICES])
            raise EmbeddedError(f"There is no service called {name}: the services and groups are {known}.")

    for name in names:
        add(name)
    return tuple(name for name in SERVICES if name in wanted)


def members(name: str) -> tuple[str, ...]:
    """The services a name stands for, without what they need."""
    if name in GROUPS:
        return GROUPS[name]
    expand([name])
    return (name,)
