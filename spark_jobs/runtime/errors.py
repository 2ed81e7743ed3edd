"""What went wrong, as it is told."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """
    >>> first_line(ValueError("no such file\\n\\tat a.b(C.scala:1)")), first_line(KeyError())
    ('no such file', 'KeyError')
    """
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
