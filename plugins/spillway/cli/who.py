"""Who is at the keyboard, for the record."""

from __future__ import annotations

import getpass


def me() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):
        return "cli:unknown"
