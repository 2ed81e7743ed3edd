"""What is kept on disk about a run: atomically written, readable at any moment by anybody."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from spillway.embedded.config import Layout


def write_atomic(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file so that a reader sees the old text or the new one, never half."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            os.fchmod(f.fileno(), mode)
            f.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_state(layout: Layout) -> dict[str, Any]:
    """The recorded state, or an empty one if there is none (or if it was cut off by a full disk)."""
    try:
        value = json.loads(layout.state.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_state(layout: Layout, state: dict[str, Any]) -> None:
    write_atomic(layout.state, json.dumps(state, indent=1, sort_keys=True))


def load_secrets(layout: Layout) -> dict[str, str]:
    """Random passwords and keys of this run folder, made once and kept with mode 0600."""
    names = (
        "postgres", "spillway_owner", "spillway_control", "spillway_job", "spillway_read", "airflow",
        "airflow_admin", "airflow_secret_key", "airflow_jwt",
    )  # fmt: skip
    try:
        known = json.loads(layout.secrets.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    missing = [n for n in names if n not in known]
    if "airflow_fernet" not in known:
        missing.append("airflow_fernet")
    if missing:
        for name in missing:
            known[name] = secrets.token_urlsafe(12 if name == "airflow_admin" else 48)
        if "airflow_fernet" in missing:
            import base64

            known["airflow_fernet"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        write_atomic(layout.secrets, json.dumps(known, indent=1))
    return known
