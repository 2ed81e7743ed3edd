"""One mapping of the file, read field by field: types, ranges, spelling. A bad field is reported and its default taken,
so that one pass finds every mistake."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from spillway.topology.problem import Problems

E = TypeVar("E", bound=StrEnum)

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
A_NAME = "a lower-case letter followed by up to 39 of a-z, 0-9 and _"
TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
A_TOPIC = "1 to 249 of A-Z, a-z, 0-9, '.', '_' and '-'"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MEMORY = re.compile(r"(\d+)(m|g)")


def suggest(name: str, known: tuple[str, ...] | list[str]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def one_of(known: tuple[str, ...] | list[str]) -> str:
    return ", ".join(known) if known else "none is declared"


def parse_duration(text: str) -> float | None:
    """Seconds of `500ms`, `2s`, `1.5m` or `1h`; None when it is not a duration."""
    match = _DURATION.fullmatch(text)
    return round(float(match[1]) * _SECONDS[match[2]], 6) if match else None


class Section:
    def __init__(self, data: Any, path: str, problems: Problems, known: tuple[str, ...]) -> None:
        self.path, self.problems = path, problems
        self.ok = isinstance(data, dict)
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        if not self.ok:
            problems.add(path, f"is {describe(data)}, not a mapping", f"a mapping with the fields {one_of(known)}")
        for name in self.data:
            if name not in known:
                problems.add(self.at(name), f"unknown field{suggest(name, known)}", one_of(known))

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return name in self.data

    def wrong(self, name: str, message: str, allowed: str) -> None:
        self.problems.add(self.at(name), message, allowed)

    def missing(self, name: str, allowed: str) -> None:
        self.wrong(name, "is missing", allowed)

    def text(self, name: str, default: str | None, allowed: str, pattern: re.Pattern[str] | None = None) -> str | None:
        if name not in self.data:
            return default
        value = self.data[name]
        if not isinstance(value, str):
            self.wrong(name, f"is {describe(value)}, not a text", allowed)
        elif pattern is not None and not pattern.fullmatch(value):
            self.wrong(name, f"{value!r} is not {allowed_kind(name)}", allowed)
        else:
            return value
        return default

    def name(self, name: str, known: tuple[str, ...]) -> str | None:
        """The name of something declared elsewhere in the file."""
        value = self.text(name, None, one_of(known))
        if value is not None and value not in known:
            self.wrong(name, f"unknown operator {value!r}{suggest(value, known)}", one_of(known))
            return None
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.number(name, default, low, high, whole=True)
        return int(value)

    def number(self, name: str, default: float, low: float, high: float, *, whole: bool = False) -> float:
        if name not in self.data:
            return default
        value = self.data[name]
        allowed = (
            f"a {'whole ' if whole else ''}number from {low:g} to {high:g}"
            if high < math.inf
            else (f"a {'whole ' if whole else ''}number from {low:g} up")
        )
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            self.wrong(name, f"is {describe(value)}, not a {'whole ' if whole else ''}number", allowed)
        elif not low <= value <= high:
            self.wrong(name, f"{value} is outside [{low:g}, {high:g}]", allowed)
        else:
            return value
        return default

    def boolean(self, name: str, default: bool) -> bool:
        value = self.data.get(name, default)
        if isinstance(value, bool):
            return value
        self.wrong(name, f"is {describe(value)}, not true or false", "true, false")
        return default

    def choice(self, name: str, kind: type[E], default: E) -> E:
        if name not in self.data:
            return default
        value = self.data[name]
        known = tuple(str(member) for member in kind)
        if isinstance(value, str) and value in known:
            return kind(value)
        what = repr(value) if isinstance(value, str) else describe(value)
        hint = suggest(value, known) if isinstance(value, str) else ""
        self.wrong(name, f"{what} is not one of the choices{hint}", one_of(known))
        return default

    def duration(self, name: str, default: float, low: str, high: str) -> float:
        if name not in self.data:
            return default
        value = self.data[name]
        allowed = f"a duration from {low} to {high}, written like 500ms, 2s or 1m"
        seconds = parse_duration(value) if isinstance(value, str) else None
        if seconds is None:
            what = repr(value) if isinstance(value, str) else describe(value)
            self.wrong(name, f"{what} is not a duration with a unit", allowed)
        elif not (parse_duration(low) or 0.0) <= seconds <= (parse_duration(high) or 0.0):
            self.wrong(name, f"{value} is outside [{low}, {high}]", allowed)
        else:
            return seconds
        return default

    def memory_mb(self, name: str, default: int) -> int:
        if name not in self.data:
            return default
        value = self.data[name]
        allowed = "memory from 256m to 1024g, written like 512m or 2g"
        match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
        megabytes = int(match[1]) * (1024 if match[2] == "g" else 1) if match else None
        if megabytes is None:
            what = repr(value) if isinstance(value, str) else describe(value)
            self.wrong(name, f"{what} is not an amount of memory with a unit", allowed)
        elif not 256 <= megabytes <= 1024 * 1024:
            self.wrong(name, f"{value} is outside [256m, 1024g]", allowed)
        else:
            return megabytes
        return default

    def mapping(self, name: str, allowed: str) -> dict[str, Any]:
        value = self.data.get(name, {})
        if isinstance(value, dict):
            return value
        self.wrong(name, f"is {describe(value)}, not a mapping", allowed)
        return {}

    def items(self, name: str, allowed: str) -> list[Any]:
        value = self.data.get(name, [])
        if isinstance(value, list):
            return value
        self.wrong(name, f"is {describe(value)}, not a list", allowed)
        return []

    def texts(self, name: str, allowed: str) -> tuple[str, ...]:
        result = []
        for number, item in enumerate(self.items(name, allowed)):
            if isinstance(item, str):
                result.append(item)
            else:
                self.wrong(f"{name}[{number}]", f"is {describe(item)}, not a text", allowed)
        return tuple(result)


def describe(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def allowed_kind(field: str) -> str:
    return _KINDS.get(field, f"a valid {field}")


_KINDS = {
    "pipeline": "a name",
    "topic": "a topic name",
    "function": "a function",
    "node": "a node tag",
    "table": "a table",
    "key": "a column name",
    "output_mode": "an output mode",
    "starting": "a place to start",
}
