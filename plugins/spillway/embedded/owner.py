"""Who a run belongs to: one process, by pid and start time. What it did not live to stop is stopped by whoever comes next."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spillway.embedded.errors import EmbeddedError
from spillway.embedded.processes import Identity
from spillway.embedded.state import write_atomic

RECORD = ".spillway-owner"


def claim(path: Path) -> None:
    """Record this process as the owner."""
    me = Identity.of(os.getpid())
    write_atomic(path, json.dumps({"pid": me.pid, "created": me.created}))


def owner(path: Path) -> Identity | None:
    """The recorded owner, alive or not."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Identity(int(found["pid"]), float(found["created"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A folder for run folders that lives as long as this process: `spillway-<kind>-…` in the folder for temporary files.

    Its path is short enough for all that lies below, and open to the user Postgres runs as.
    """
    sweep_scratch()
    folder = Path(tempfile.mkdtemp(prefix=f"spillway-{kind}-"))
    try:
        claim(folder / RECORD)
        folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_scratch(where: Path | None = None) -> list[Path]:
    """Stop the services of, and remove, every such folder of this user whose owner is gone; returns which."""
    from spillway.embedded.stack import Stack

    swept = []
    for folder in sorted((where or Path(tempfile.gettempdir())).glob("spillway-*")):
        if not _abandoned(folder):
            continue
        with contextlib.suppress(EmbeddedError, OSError):  # the record stays, so that the next one tries again
            for home in folder.iterdir():
                if (stack := Stack(home)).layout.marker.exists():
                    stack.clean()
            shutil.rmtree(folder)
            swept.append(folder)
    return swept


def _abandoned(folder: Path) -> bool:
    """Whether the folder is this user's and its owner is no more."""
    try:
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    found = owner(folder / RECORD)
    return found is not None and found.process() is None
