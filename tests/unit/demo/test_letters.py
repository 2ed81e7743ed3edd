"""Dead letters may come late; they are waited for, but not for ever."""

from __future__ import annotations

from spillway.demo.topics import await_letters


def test_letters_that_come_late_are_waited_for() -> None:
    seen = iter([104, 104, 109, 110])
    assert await_letters(lambda: 110, lambda: next(seen), limit_s=60.0, pause_s=0.0)
    assert next(seen, None) is None


def test_letters_that_never_come_are_not_waited_for_for_ever() -> None:
    assert not await_letters(lambda: 110, lambda: 104, limit_s=0.05, pause_s=0.01)
