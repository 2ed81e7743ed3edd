"""A light check of a Spark schema in DDL (`trip_id bigint not null, zone string`) that needs no Spark.

It knows the grammar of column lists and the names of Spark's types; what passes here can still be refused by Spark, but
the mistakes people make (a missing comma, a type of another database, a column twice) are found while the file is checked.
"""

from __future__ import annotations

import re

_NUMBERS = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")
SIMPLE = frozenset((*_NUMBERS, *_TIMES, "boolean", "string", "binary", "variant"))
SIZED = {"char": 1, "character": 1, "varchar": 1, "decimal": 2, "dec": 2, "numeric": 2}
ALLOWED = (
    "columns as `name type [not null]`, separated by commas, with Spark's types (bigint, string, double, timestamp, array<…>, …)"
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*)|(\d+)|('(?:[^'\\]|\\.|'')*')|([<>(),:]))")


class DdlError(ValueError):
    """One clause that says what is wrong."""


def columns(ddl: str) -> tuple[str, ...]:
    """Names of the columns; raises DdlError with one clause that says what is wrong.

    >>> columns("trip_id bigint not null, tags array<string>")
    ('trip_id', 'tags')
    """
    parser = _Parser(ddl)
    names = parser.column_list(end=None)
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise DdlError(f"column {name} is declared twice")
        seen.add(name.lower())
    return tuple(names)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise DdlError(f"{text[position:].strip()[:20]!r} is not understood")
            self.tokens.append(match[0].strip())
            position = match.end()
        self.index = 0

    def peek(self) -> str | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def next(self) -> str | None:
        token = self.peek()
        self.index += 1
        return token

    def expect(self, token: str, after: str) -> None:
        if (found := self.next()) != token:
            raise DdlError(f"expected {token!r} after {after}, found {_shown(found)}")

    def column_list(self, end: str | None) -> list[str]:
        names = []
        while True:
            names.append(self.column())
            token = self.peek()
            if token == end:
                return names
            if token != ",":
                raise DdlError(f"expected a comma after column {names[-1]}, found {_shown(token)}")
            self.next()

    def column(self) -> str:
        token = self.next()
        if token is None or not (token[0] == "`" or token[0].isalpha() or token[0] == "_"):
            raise DdlError(f"expected a column name, found {_shown(token)}")
        name = token.strip("`")
        if self.peek() == ":":
            self.next()
        self.type(name)
        if _is(self.peek(), "not"):
            self.next()
            if not _is(self.next(), "null"):
                raise DdlError(f"`not` of column {name} is not followed by `null`")
        if _is(self.peek(), "comment"):
            self.next()
            if not (self.next() or "").startswith("'"):
                raise DdlError(f"the comment of column {name} is not in single quotes")
        return name

    def type(self, column: str) -> None:
        token = self.next()
        kind = (token or "").lower()
        if token is None or not (token[0].isalpha()):
            raise DdlError(f"column {column} has no type")
        if kind in SIMPLE:
            return
        if kind in SIZED:
            self.size(kind, column)
        elif kind == "array":
            self.expect("<", "array")
            self.type(column)
            self.expect(">", f"the element type of column {column}")
        elif kind == "map":
            self.expect("<", "map")
            self.type(column)
            self.expect(",", f"the key type of column {column}")
            self.type(column)
            self.expect(">", f"the value type of column {column}")
        elif kind == "struct":
            self.expect("<", "struct")
            self.column_list(end=">")
            self.expect(">", f"the fields of column {column}")
        else:
            raise DdlError(f"column {column} has the unknown type {token}")

    def size(self, kind: str, column: str) -> None:
        if self.peek() != "(":
            if SIZED[kind] == 1:
                raise DdlError(f"column {column} needs a length, as in {kind}(20)")
            return
        self.next()
        numbers = [self.next()]
        while self.peek() == ",":
            self.next()
            numbers.append(self.next())
        if len(numbers) > SIZED[kind] or not all((n or "").isdigit() for n in numbers):
            raise DdlError(f"column {column} has a bad size for {kind}")
        self.expect(")", f"the size of column {column}")


def _is(token: str | None, word: str) -> bool:
    return token is not None and token.lower() == word


def _shown(token: str | None) -> str:
    return "the end" if token is None else repr(token)
