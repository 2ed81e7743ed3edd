"""Before a query is started again on more executors than it ran on, those are there and warm.

A query that starts again has its state loaded wherever Spark puts its tasks. An executor that has just come would load Spark's
classes and start its Python workers inside that batch, and everybody would wait for it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger("spillway.crew")

PATIENCE_S = 60.0
"""So long a restart waits for executors. Then it is made with those that are there: they may not be what it was ordered for."""
FIRST_S = 30.0
"""Executors that come so soon after the first look are those that the driver was started with."""
_SAME_S = 5.0
"""A restart that was not asked about for so long is another one."""


class Crew:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = math.nan
        self._there: tuple[str, ...] = ()
        self._known: set[str] = set()
        """They have run the queries since those started, or were made warm."""
        self._missing = 0
        self._asked = self._last = -math.inf
        self._warming: threading.Thread | None = None

    def look(self, there: Sequence[str], wanted: int) -> None:
        """The executors that are registered, oldest first, and how many there should be."""
        if math.isnan(self._began):
            self._began = self._clock()
        self._there, self._missing = tuple(there), max(0, wanted - len(there))
        if self._clock() - self._began < FIRST_S:
            self._known |= set(there)

    def ready(self, warm_up: Callable[[], None]) -> bool:
        """Whether a restart that is due may begin; asked again until it may. `warm_up` plays on whoever is new, on a thread of
        its own."""
        now = self._clock()
        if now - self._last > _SAME_S:
            self._asked = now
        self._last = now
        cold = set(self._there) - self._known
        if not self._missing and not cold:
            return True
        if now - self._asked > PATIENCE_S:
            log.warning("a restart does not wait any longer: %d executors are missing, %d are cold", self._missing, len(cold))
            self._known |= cold
            return True
        if not self._missing and (self._warming is None or not self._warming.is_alive()):
            self._warming = threading.Thread(target=self._warm, args=(cold, warm_up), name="warm-up", daemon=True)
            self._warming.start()
        return False

    def _warm(self, cold: set[str], warm_up: Callable[[], None]) -> None:
        try:
            warm_up()
        except Exception as error:
            log.warning("new executors stay cold: %s", error)
        self._known |= cold
