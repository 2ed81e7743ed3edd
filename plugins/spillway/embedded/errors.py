"""What the embedded services can say to a person: one sentence, no traceback."""

from __future__ import annotations


class EmbeddedError(Exception):
    """A failure with a sentence that says what is wrong, where, and what to do."""


def tail(path: str, lines: int = 15) -> str:
    """The last lines of a log, or an empty string."""
    try:
        with open(path, "rb") as f:  # noqa: PTH123
            f.seek(0, 2)
            f.seek(max(0, f.tell() - 16384))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
