"""What tests on a running pipeline share: the agent beside the workers, events that go on, and windows as they end."""

from __future__ import annotations

import json
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
    """Now and then some events, until told to end; waits out a broker that is away."""

    def __init__(
        self,
        line: Line,
        topic: str,
        event: Callable[[int], tuple[bytes, bytes]],
        many: int | Callable[[float, int], int],
        every_s: float = 0.5,
    ) -> None:
        """`many`: each time, or how many are due by the seconds that have passed and those that were sent."""
        super().__init__(daemon=True)
        self._line, self._topic, self._event, self._every_s = line, topic, event, every_s
        self._due = many if callable(many) else lambda *_: many
        self._ending, self.sent, self.error = threading.Event(), 0, ""

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self._ending.wait(self._every_s):
                numbers = range(self.sent, self.sent + self._due(time.monotonic() - began, self.sent))
                self._line.produce(self._topic, [self._event(n) for n in numbers])
                self.sent += len(numbers)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def finish(self) -> int:
        """Ends it, and returns how many events it wrote."""
        self._ending.set()
        self.join(90)
        assert not self.error and not self.is_alive(), self.error
        return self.sent


def numbered(keys: int, factor: int = 1) -> Callable[[int], tuple[bytes, bytes]]:
    """Events that are numbers, with one of so many keys."""
    return lambda n: (str(n % keys).encode(), json.dumps({"n": n, "key": f"k{n * factor % keys}"}).encode())


def next_window(seconds: float, settle_s: float) -> Interval:
    """The window that ends next, once it has ended and what belongs to it is stored."""
    end = (time.time() // seconds + 1) * seconds
    time.sleep(end + settle_s - time.time())
    return Interval(start=datetime.fromtimestamp(end - seconds, UTC), end=datetime.fromtimestamp(end, UTC))
