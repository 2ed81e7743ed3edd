"""A YAML file as plain values plus the line of every field; what cannot be read becomes problems, not exceptions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from spillway.topology.problem import Problems

MAX_BYTES = 1_000_000
MAX_VALUES = 50_000
_UNREADABLE = object()
_TAG = "tag:yaml.org,2002:"
_A_FILE = "a mapping of fields in YAML, encoded in UTF-8"


def read_text(path: str | Path, problems: Problems) -> str | None:
    """The text of the file, or None with the reason in `problems`."""
    file = Path(path)
    try:
        if file.is_dir():
            problems.add("", "is a directory", "the path of a YAML file")
            return None
        with file.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        problems.add("", "no such file", "the path of a YAML file")
        return None
    except OSError as error:
        problems.add("", f"cannot be read ({error.strerror})", "a readable YAML file")
        return None
    if len(raw) > MAX_BYTES:
        problems.add("", f"is larger than {MAX_BYTES} bytes", "a small file")
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.add("", f"byte 0x{raw[error.start]:02x} is not UTF-8", _A_FILE, line=line)
        return None


def read_document(text: str, problems: Problems) -> dict[str, Any] | None:
    """The top-level mapping of the file; fills `problems.lines`."""
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problems.add("", *_explain(text, line, error), line=line)
        return None
    except (YAMLError, ValueError, RecursionError) as error:
        line = next((n for n, row in enumerate(text.splitlines(), 1) if not _printable(row)), 1)
        reason = "nests too deeply" if isinstance(error, RecursionError) else "has a character YAML does not allow"
        problems.add("", f"the file {reason}", _A_FILE, line=line)
        return None
    if root is None:
        problems.add("", "the file is empty", _A_FILE)
        return None
    if not isinstance(root, MappingNode):
        problems.add("", f"the file is {_name_of(root)}", _A_FILE, line=root.start_mark.line + 1)
        return None
    walk = _Walk(problems)
    return walk.mapping(root, "")


def _explain(text: str, line: int, error: MarkedYAMLError) -> tuple[str, str]:
    rows = text.splitlines()
    row = rows[line - 1] if line <= len(rows) else ""
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return "a tab indents this line", "spaces: YAML does not allow tabs for indentation"
    what = ", ".join(part for part in (error.context, error.problem) if part)
    if "found another document" in what:
        return "a second document begins here", "one document per file, without `---` in the middle"
    return f"not valid YAML: {what}", "YAML 1.2"


def _printable(row: str) -> bool:
    return re.search("[^\t\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", row) is None


class _Walk:
    """Node graph to plain values; keeps lines, refuses duplicates, odd tags and documents that unfold without end."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.values = 0
        self.open: set[int] = set()

    def mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if _tag(key) == "merge":
                merged |= self.merge(value, path, key.start_mark.line + 1)
        for key, value in node.value:
            line = key.start_mark.line + 1
            if _tag(key) == "merge":
                continue
            if not isinstance(key, ScalarNode) or _tag(key) != "str":
                text = key.value if isinstance(key, ScalarNode) else _name_of(key)
                self.problems.add(path, f"the field name {text} is not a text", "names as text, quoted if need be", line=line)
                continue
            inner = f"{path}.{key.value}" if path else str(key.value)
            if key.value in result:
                first = self.problems.line(inner)
                self.problems.add(inner, f"is given twice, first in line {first}", "each field once", line=line)
                continue
            self.problems.lines[inner] = line
            if (read := self.value(value, inner)) is not _UNREADABLE:
                result[key.value] = read
        return merged | result

    def merge(self, node: Node, path: str, line: int) -> dict[str, Any]:
        parts = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in reversed(parts):
            if not isinstance(part, MappingNode):
                self.problems.add(path, "`<<` does not merge a mapping", "`<<: *anchor` of a mapping", line=line)
            elif isinstance(value := self.value(part, path), dict):
                merged |= value
        return merged

    def value(self, node: Node, path: str) -> Any:
        self.values += 1
        if id(node) in self.open:
            self.problems.add(path, "an alias refers to the value it is part of", "aliases of values that are complete")
            return _UNREADABLE
        if self.values > MAX_VALUES:
            if self.values == MAX_VALUES + 1:
                self.problems.add(path, f"aliases unfold to more than {MAX_VALUES} values", "a small file")
            return _UNREADABLE
        self.open.add(id(node))
        try:
            if isinstance(node, MappingNode) and _tag(node) == "map":
                return self.mapping(node, path)
            if isinstance(node, SequenceNode) and _tag(node) == "seq":
                return self.sequence(node, path)
            return self.scalar(node, path)
        finally:
            self.open.discard(id(node))

    def sequence(self, node: SequenceNode, path: str) -> list[Any]:
        result = []
        for number, item in enumerate(node.value):
            inner = f"{path}[{number}]"
            self.problems.lines[inner] = item.start_mark.line + 1
            if (read := self.value(item, inner)) is not _UNREADABLE:
                result.append(read)
        return result

    def scalar(self, node: Node, path: str) -> Any:
        kind, text = _tag(node), node.value
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        try:
            if kind == "int":
                return _integer(text.replace("_", ""))
            if kind == "float":
                return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            kind = "str"
        if kind in ("str", "timestamp"):
            if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
                self.problems.add(path, "has a character that cannot be stored", "text without \\0 and lone surrogates")
                return _UNREADABLE
            return text
        self.problems.add(path, f"the tag {node.tag} is not known here", "plain values without tags")
        return _UNREADABLE


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lower()
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)
    return sign * int(digits[2:] if base != 10 else digits, base)


def _tag(node: Node) -> str:
    return str(node.tag).removeprefix(_TAG)


def _name_of(node: Node) -> str:
    if isinstance(node, SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, MappingNode) else "a single value"
