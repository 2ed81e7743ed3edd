"""Writes .env from .env.example, with a random secret for every empty value: `python3 container/make_env.py`."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


def fill(example: str) -> str:
    """The text of .env: lines with an empty value get one, all others stay."""
    lines = []
    for line in example.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#") and not value:
            made = (
                base64.urlsafe_b64encode(secrets.token_bytes(32)).decode() if name.endswith("_KEY") else secrets.token_urlsafe(48)
            )
            line = f"{name}={made}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(folder: Path = REPO) -> int:
    target = folder / ".env"
    text = fill((folder / ".env.example").read_text(encoding="utf-8"))
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(
            f"{target} is already there: new secrets would not fit the databases it made; delete it only with their volumes.",
            file=sys.stderr,
        )
        return 1
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{target} is written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
