"""stack.toml and the folders of one run."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spillway.embedded.errors import EmbeddedError

REPO = Path(__file__).resolve().parents[3]
HOST = "127.0.0.1"
MADE = "made for this run\n"


@cache
def stack() -> dict[str, Any]:
    """The parsed stack.toml."""
    path = REPO / "stack.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise EmbeddedError(
            f"{path} cannot be read ({e.strerror}): the embedded services run from a clone of the repository."
        ) from e


def package_dir(name: str) -> Path:
    """Where a package is installed, without the cost of importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise EmbeddedError(f"The Python package {name} is not installed in {sys.prefix}: run `make setup`.")
    return Path(found.origin).parent


def default_home() -> Path:
    """The run folder: $SPILLWAY_HOME or .spillway in the clone."""
    given = os.environ.get("SPILLWAY_HOME")
    return Path(given).expanduser().absolute() if given else REPO / ".spillway"


def cache_dir() -> Path:
    """Where downloads are kept for every clone of this user."""
    given = os.environ.get("SPILLWAY_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "spillway"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files below one SPILLWAY_HOME."""

    home: Path

    @property
    def marker(self) -> Path:
        """Says that the folder is a run folder; its text, whether the folder itself was made for it."""
        return self.home / ".spillway-home"

    @property
    def owner(self) -> Path:
        return self.run / "owner.json"

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def state(self) -> Path:
        return self.run / "state.json"

    @property
    def secrets(self) -> Path:
        return self.data / "secrets.json"

    @property
    def lock(self) -> Path:
        return self.run / "supervisor.lock"

    @property
    def requests(self) -> Path:
        return self.run / "requests"

    @property
    def env(self) -> Path:
        return self.home / "env"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def checkpoints(self) -> Path:
        return self.data / "checkpoints"

    @property
    def airflow(self) -> Path:
        return self.home / "airflow"

    def log(self, service: str) -> Path:
        return self.logs / f"{service}.log"

    @property
    def key(self) -> str:
        """A short name of this run folder, unique on the machine."""
        return hashlib.sha256(str(self.home).encode()).hexdigest()[:12]

    def check(self) -> None:
        """Refuse a folder that holds things and that no run has made its own."""
        try:
            foreign = not self.marker.exists() and self.home.exists() and next(self.home.iterdir(), None) is not None
        except OSError as e:
            raise self._unusable(e) from e
        if foreign:
            raise EmbeddedError(
                f"{self.home} holds files and is not a run folder of Spillway: set SPILLWAY_HOME to a new or an empty folder."
            )

    def make(self) -> None:
        """Create the folders. A home made here can be passed through by others, because as root Postgres runs as another user."""
        self.check()
        try:
            made = not self.home.exists()
            if made:
                self.home.mkdir(parents=True, exist_ok=True)
                self.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
            with contextlib.suppress(FileExistsError), self.marker.open("x", encoding="utf-8") as marker:
                marker.write(MADE if made else "")
            for folder in (self.run, self.requests, self.logs, self.airflow):
                folder.mkdir(mode=0o700, exist_ok=True)
            self.data.mkdir(exist_ok=True)
            self.data.chmod(0o711 if os.geteuid() == 0 else 0o700)
            self.checkpoints.mkdir(mode=0o700, exist_ok=True)
        except OSError as e:
            raise self._unusable(e) from e

    def remove(self) -> None:
        """Remove what a run made; what somebody else put into the folder stays, and so does a folder that was there before."""
        if not self.marker.exists():
            return
        made = self.marker.read_text(encoding="utf-8") == MADE
        for folder in (self.run, self.logs, self.data, self.airflow, self.home / "drivers"):
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                raise EmbeddedError(f"{folder} cannot be removed completely: check who owns what is in it.")
        for file in (self.env, *self.home.glob(".env.*"), self.marker):
            file.unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):
                self.home.rmdir()

    def _unusable(self, error: OSError) -> EmbeddedError:
        return EmbeddedError(
            f"The run folder {self.home} cannot be used ({error.strerror}): set SPILLWAY_HOME to a folder you may write."
        )
