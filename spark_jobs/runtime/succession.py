"""What a driver that rehearses beside the running one says of itself, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.runtime.database import Connection, run


class Stage(StrEnum):
    STARTING = "starting"
    CLONING = "cloning"
    REPARTITIONING = "repartitioning"
    REHEARSING = "rehearsing"
    CATCHING_UP = "catching_up"
    READY = "ready"
    TAKING_OVER = "taking_over"
    RUNNING = "running"
    FAILED = "failed"
    GONE = "gone"


class Told(StrEnum):
    REHEARSE = "rehearse"
    TAKE_OVER = "take_over"
    WITHDRAW = "withdraw"


@dataclass(slots=True)
class Succession:
    """Written by the driver, except what it is told, which the control thread writes."""

    plan: int
    stage: Stage = Stage.STARTING
    batches: int = 0
    behind_rows: int | None = None
    detail: str = ""
    told: Told = Told.REHEARSE
    checkpoint: int | None = None
    """The number of the checkpoint that is gone on from, as it was told last."""
    given_up: bool = False
    """Whoever carries out the plan has said that this one will never take over. Nothing else says so for certain."""

    def say(self, connection: Connection, key: dict[str, str | int], spark_app: str | None) -> None:
        run(
            connection,
            "job_successor",
            **key,
            plan=self.plan,
            state=self.stage.value,
            spark_app=spark_app,
            batches=self.batches,
            behind_rows=self.behind_rows,
            detail=self.detail.replace("\0", "")[:500],
        )

    def read(self, connection: Connection, key: dict[str, str | int]) -> bool:
        """True when something else is told than before. What was told to take over is past being withdrawn."""
        found = run(connection, "job_successor_told", **key, plan=self.plan)
        told = Told.WITHDRAW
        if found:
            desired, newest, is_open, self.checkpoint = found[0]
            self.given_up = desired == Told.WITHDRAW
            told = heard(desired, newest, is_open, int(key["generation"]))
        changed, self.told = told is not self.told, told
        return changed


def heard(desired: str, newest: int, is_open: bool, generation: int) -> Told:
    """What the rows mean for the successor that would be `generation`.

    >>> heard("rehearse", 3, True, 4), heard("take_over", 4, True, 4), heard("take_over", 5, True, 4)
    (<Told.REHEARSE: 'rehearse'>, <Told.TAKE_OVER: 'take_over'>, <Told.WITHDRAW: 'withdraw'>)
    >>> heard("rehearse", 3, False, 4)
    <Told.WITHDRAW: 'withdraw'>
    """
    if newest > generation or desired == Told.WITHDRAW:
        return Told.WITHDRAW
    if desired == Told.TAKE_OVER:
        return Told.TAKE_OVER
    return Told.REHEARSE if is_open else Told.WITHDRAW
