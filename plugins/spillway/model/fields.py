"""JSON of an interchange, read strictly: a field nobody knows, a wrong type or a number out of range is one sentence."""

from __future__ import annotations

import json
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from spillway.model.qod import ObservationError
from spillway.model.qod_check import MOST, MOST_COUNT, as_count, as_number, kind, shown, span

W = TypeVar("W", bound=StrEnum)


def parse(text: str | bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            name = next(n for i, (n, _) in enumerate(pairs) if n in {m for m, _ in pairs[:i]})
            raise ObservationError(f"the field {name} is given twice in one object; give it once")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ObservationError(
            f"line {error.lineno}, column {error.colno} is not valid JSON ({error.msg}); give one JSON object"
        ) from None
    except UnicodeDecodeError:
        raise ObservationError("the input is not UTF-8; give one JSON object in UTF-8") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, ObservationError):
            raise
        raise ObservationError(
            "the input is nested too deeply or has an endless number; give one JSON object as docs/algorithms.md shows it"
        ) from None


class Fields:
    """One JSON object, read field by field; `end` refuses what nobody asked for."""

    def __init__(self, raw: Any, path: str) -> None:
        self.path = path
        if not isinstance(raw, dict):
            raise ObservationError(f"{path or 'the observation'} is {kind(raw)}, but must be an object")
        self.raw: dict[str, Any] = raw
        self.known: list[str] = []

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str) -> Any:
        self.known.append(name)
        return self.raw.get(name)

    def end(self) -> None:
        for name in self.raw:
            if name not in self.known:
                close = get_close_matches(str(name), self.known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(self.known)}"
                raise ObservationError(f"{f'{self.path} has ' if self.path else ''}the unknown field {name}; {hint}")

    def number(self, name: str, *, high: float = MOST, needed: bool = False) -> Any:
        value = self.take(name)
        if value is None:
            if needed:
                raise ObservationError(f"{self.at(name)} is missing; it must be {span(high)}")
            return None
        return as_number(self.at(name), value, high)

    def whole(self, name: str) -> int | None:
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be a whole number")
        return value

    def count(self, name: str, *, low: int = 0, needed: bool = False) -> Any:
        """A whole number from `low` on, or None."""
        value = self.take(name)
        allowed = f"a whole number from {low} to {MOST_COUNT}"
        if value is None:
            if needed:
                raise ObservationError(f"{self.at(name)} is missing; it must be {allowed}")
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MOST_COUNT:
            raise ObservationError(f"{self.at(name)} is {shown(value)}, but must be {allowed}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be true or false")
        return value

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be text")
        return value

    def moment(self, name: str, *, needed: bool = False) -> Any:
        """A point in time with its offset from UTC, or None."""
        value = self.text(name)
        example = "2031-05-04T10:00:00+00:00"
        if value is None:
            if needed:
                raise ObservationError(f"{self.at(name)} is missing; it must be a time such as {example}")
            return None
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be a time such as {example}") from None
        if moment.tzinfo is None:
            raise ObservationError(f"{self.at(name)} is {value}, but must say its offset from UTC, such as {example}")
        return moment

    def word(self, name: str, words: type[W], *, needed: bool = False) -> W | None:
        """One of the words of an enum, or None."""
        value = self.text(name)
        allowed = " or ".join(words)
        if value is None:
            if needed:
                raise ObservationError(f"{self.at(name)} is missing; it must be {allowed}")
            return None
        if value not in list(words):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be {allowed}")
        return words(value)

    def name(self, name: str, *, needed: bool = True) -> Any:
        value = self.text(name)
        if value == "" or (needed and value is None):
            raise ObservationError(f"{self.at(name)} is {'empty' if value == '' else 'missing'}; it must be a name")
        return value

    def objects(self, name: str, *, needed: bool = True) -> list[Fields]:
        value = self.take(name)
        if value is None and not needed:
            return []
        if not isinstance(value, list):
            what = "missing" if value is None else kind(value)
            raise ObservationError(f"{self.at(name)} is {what}, but must be an array of objects")
        return [Fields(raw, f"{self.at(name)}[{number}]") for number, raw in enumerate(value)]

    def numbers(self, name: str) -> tuple[float, ...]:
        """An array of numbers; empty when it is absent."""
        value = self.take(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be an array of numbers")
        return tuple(as_number(f"{self.at(name)}[{place}]", number) for place, number in enumerate(value))

    def table(self, name: str, *, high: float) -> dict[str, float]:
        value = self._mapping(name)
        return {key: as_number(f"{self.at(name)}.{key}", number, high) for key, number in value.items()}

    def counts(self, name: str) -> dict[str, int]:
        value = self._mapping(name)
        return {key: as_count(f"{self.at(name)}.{key}", number) for key, number in value.items()}

    def _mapping(self, name: str) -> dict[str, Any]:
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ObservationError(f"{self.at(name)} is {kind(value)}, but must be an object")
        return value


def given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
