"""What is wrong with a topology file, where, and what would be right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    file: str
    line: int
    field: str
    """Path of the field, `operators.bill.query.min_accuracy` or `edges[2].shed`; empty for the file as a whole."""
    message: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " + (f"{self.field}: " if self.field else "")
        return f"{where}{self.message}; allowed: {self.allowed}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Problems:
    """Collects the problems of one file and finds the line of each by the path of its field."""

    file: str
    lines: dict[str, int] = field(default_factory=dict)
    found: list[Problem] = field(default_factory=list)

    def add(self, path: str, message: str, allowed: str, *, line: int | None = None) -> None:
        self.found.append(Problem(file=self.file, line=line or self.line(path), field=path, message=message, allowed=allowed))

    def line(self, path: str) -> int:
        """Line of the field; of the nearest enclosing one when the field itself was left out."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return 1

    def sorted(self) -> list[Problem]:
        return sorted(set(self.found), key=lambda p: (p.file, p.line, p.field, p.message))
