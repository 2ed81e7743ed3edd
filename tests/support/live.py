"""What tests on a running pipeline share: the agent beside the workers, events that go on, and windows as they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from spillway.embedded import Stack
from spillway.model.window import Interval

from tests.support.line import Line


@pytest.fixture
def agent(stack: Stack) -> Iterator[None]:
    """The agent beside the workers, as long as the test takes."""
    stack.start("agent")
    yield
    stack.stop("agent")


class Feed(threading.Thread):
    """Every half second some events, until told to stop."""

    def __init__(
        self, line: Line, topic: str, event: Callable[[int], tuple[bytes, bytes]], many: Callable[[float, int], int]
    ) -> None:
        """`many`: how many are due, by the seconds that have passed and those that were sent."""
        super().__init__(daemon=True)
        self._line, self._topic, self._event, self._many = line, topic, event, many
        self.stopping = threading.Event()

    def run(self) -> None:
        sent, began = 0, time.monotonic()
        while not self.stopping.wait(0.5):
            numbers = range(sent, sent + self._many(time.monotonic() - began, sent))
            self._line.produce(self._topic, [self._event(n) for n in numbers])
            sent += len(numbers)


def next_window(seconds: float, settle_s: float) -> Interval:
    """The window that ends next, once it has ended and what belongs to it is stored."""
    end = (time.time() // seconds + 1) * seconds
    time.sleep(end + settle_s - time.time())
    return Interval(start=datetime.fromtimestamp(end - seconds, UTC), end=datetime.fromtimestamp(end, UTC))
