"""What an operator's query is given: where it runs, what Postgres remembers of it, and where what it says goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillway.model.settings import Effective
from spillway.model.topology import Pipeline
from spillway.policy import Policy

from spark_jobs.runtime.metrics import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where an application runs and what it may use; the same for all its operators."""

    pipeline: Pipeline
    application: str
    generation: int
    bootstrap: str
    checkpoints: str
    client_conf: dict[str, str]
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What Postgres remembers of an operator."""

    checkpoint: int
    buckets: int
    max_rows: int | None
    reported: int | None = None
    """The newest batch of this checkpoint that has metrics; None: no batch has."""
    incarnation: int = 0
    from_shadow: bool = False
    """The checkpoint was made from another one, so it cannot be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where what a query says goes."""

    buffer: Buffer
    effective: Callable[[], dict[str, Effective]]
    """The keeps in force."""
    event: Callable[[str, str, str], None]
    """Subject, kind, text."""
