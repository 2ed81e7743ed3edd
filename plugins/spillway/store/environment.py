"""Where the services are: SPILLWAY_* variables, or the `env` file of the run folder for those that are not set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spillway.store.errors import NotConfigured

ROLES = ("owner", "control", "job", "read")
_CLONE = Path(__file__).resolve().parents[3]


def home(environ: Mapping[str, str] | None = None) -> Path:
    """The run folder: SPILLWAY_HOME, else `.spillway` of the clone this code lies in, else of the current folder."""
    environ = os.environ if environ is None else environ
    if given := environ.get("SPILLWAY_HOME"):
        return Path(given).expanduser().absolute()
    return (_CLONE if (_CLONE / "sql").is_dir() else Path.cwd()) / ".spillway"


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """All SPILLWAY_* variables; the process's own win over the file."""
    environ = os.environ if environ is None else environ
    file = home(environ) / "env"
    own = {k: v for k, v in environ.items() if k.startswith("SPILLWAY_") and v}
    return {"SPILLWAY_HOME": str(home(environ)), **read_env_file(file), **own}


def read_env_file(file: Path) -> dict[str, str]:
    """KEY=value lines; empty when there is no such file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise NotConfigured(f"{file} cannot be read ({reason}): make it readable, or set the SPILLWAY_* variables.") from error
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.isidentifier():
            raise NotConfigured(f"{file}:{number} is not KEY=value: run `make up` to write the file anew.")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        values[key] = value
    return values


def require(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of one variable, or one sentence that says how to get it."""
    values = environment(environ)
    if value := values.get(name):
        return value
    raise NotConfigured(f"{name} is not set and {home(environ) / 'env'} does not give it: run `make up`, or set the variable.")


def dsn(role: str, environ: Mapping[str, str] | None = None) -> str:
    if role not in ROLES:
        raise NotConfigured(f"there is no role {role}: roles are {', '.join(ROLES)}.")
    return require(f"SPILLWAY_DSN_{role.upper()}", environ)
