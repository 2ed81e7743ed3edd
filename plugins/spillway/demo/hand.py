"""The person who sets the keep in the rush, and takes it back."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from spillway.store import session, settings
from spillway.store.queries import rows

EDGE, KEEP = "union:heavy", 0.4
RUSH_AT_S, RUSH_ENDS_S = 35.0, 85.0
ENOUGH_ROWS = 40_000
"""The keep stays until so many rows have met it. Of fewer, what a fair shedder keeps is now and then off by a hundredth (four
standard deviations here); and on a slow machine the rush still waits when it is over at the sources."""


@dataclass(slots=True)
class Hand:
    console: Console
    pipeline: str
    decision: int | None = None
    released: bool = False

    def turn(self, elapsed: float) -> None:
        if self.decision is None and elapsed >= RUSH_AT_S:
            self.decision = self._set(KEEP, 600.0, "rush hour, by hand")
            self.console.print(f"           keep {KEEP:g} on {EDGE}, by hand (decision {self.decision}): from the next batch on")
        elif not self.released and elapsed >= RUSH_ENDS_S and self._rows_under_it() >= ENOUGH_ROWS:
            self.release()

    def release(self) -> None:
        if not self.released:
            self._set(1.0, None, "rush hour is over")
            self.released = True
            self.console.print(f"           keep 1 on {EDGE}, by hand")

    def _set(self, keep: float, ttl_s: float | None, reason: str) -> int:
        with session("control") as connection:
            return settings.set_keep(connection, self.pipeline, EDGE, keep, ttl_s=ttl_s, by="demo", reason=reason).decision_id

    def _rows_under_it(self) -> int:
        with session("read") as connection:
            under = rows(connection, "demo_decision", pipeline=self.pipeline, edge=EDGE, decision_id=self.decision)
        return sum(b["rows_read"] for b in under if b["with_it"])
