"""What a person sees while services start and stop."""

from __future__ import annotations

import io
import re
from typing import Any

from spillway.embedded.__main__ import Follow


def rows(**health: str) -> dict[str, Any]:
    return {"services": {name: {"health": value, "port": 5432} for name, value in health.items()}}


def said(follow: Follow, *states: dict[str, Any]) -> list[str]:
    for state in states:
        follow(state)
    return [re.sub(r"^\[ *[\d.]+s\] ", "", line) for line in follow.stream.getvalue().splitlines()]


def test_a_start_is_told_once_a_change() -> None:
    up = said(Follow(io.StringIO()), rows(a="waiting"), rows(a="starting"), rows(a="starting"), rows(a="healthy"))
    assert up == ["a starting", "a healthy on port 5432"]


def test_a_stop_tells_what_stops_and_not_how_things_were() -> None:
    stop = said(Follow(io.StringIO(), stopping=True), rows(a="healthy", b="stopped"), rows(a="stopping"), rows(a="stopped"))
    assert stop == ["a stopping", "a stopped"]
