"""The person who sets a keep to get rid of a burst, and takes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillway.demo.verdict import HandKeep
from spillway.store import session, settings
from spillway.store.queries import rows

EDGE, KEEP = "union:heavy", 0.2
ENOUGH_ROWS = 16_000
"""So many rows are to meet the keep at least. Of fewer, what a fair shedder keeps is now and then off by a hundredth (three
standard deviations here)."""


@dataclass(slots=True)
class Hand:
    say: Callable[[str], None]
    pipeline: str
    decision: int | None = None

    def take(self) -> None:
        self.decision = self._set(KEEP, 600.0, "a burst, by hand")
        self.say(f"keep {KEEP:g} on {EDGE}, by hand (decision {self.decision}): from the next batch on")

    def left(self) -> int:
        """How many rows are still to meet the keep."""
        return max(0, ENOUGH_ROWS - self.kept().rows_read)

    def release(self) -> None:
        self._set(1.0, None, "the burst is over")
        self.say(f"keep 1 on {EDGE}, by hand")

    def kept(self) -> HandKeep:
        with session("read") as connection:
            under = rows(connection, "demo_decision", pipeline=self.pipeline, edge=EDGE, decision_id=self.decision)
        with_it = [b for b in under if b["with_it"]]
        return HandKeep(
            edge=EDGE,
            keep=KEEP,
            rows_read=sum(b["rows_read"] for b in with_it),
            rows_kept=sum(b["rows_kept"] for b in with_it),
            batches_until=next((n for n, b in enumerate(under, 1) if b["with_it"]), None),
        )

    def _set(self, keep: float, ttl_s: float | None, reason: str) -> int:
        with session("control") as connection:
            return settings.set_keep(connection, self.pipeline, EDGE, keep, ttl_s=ttl_s, by="demo", reason=reason).decision_id
