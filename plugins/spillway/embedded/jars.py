"""The Java libraries: fetched once by the Ivy that PySpark ships, checked by sha256 when fetched and whenever used."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from spillway.embedded.config import cache_dir, package_dir, stack
from spillway.embedded.errors import EmbeddedError

SUMS = Path(__file__).with_name("jars.sha256")
NEED_MB = 300


@cache
def expected() -> dict[str, dict[str, str]]:
    """Set name → file name → sha256, from lines of `<sha256>  <set>/<file>`."""
    sums: dict[str, dict[str, str]] = {}
    for line in SUMS.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        group, _, file = name.partition("/")
        if file:
            sums.setdefault(group, {})[file] = digest
    return sums


def sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def verify(folder: Path, sums: Mapping[str, str]) -> None:
    """Refuse a folder in which a jar is missing, foreign or altered."""
    present = {p.name for p in folder.iterdir()}
    for name in sorted(set(sums) - present):
        raise EmbeddedError(f"{folder / name} is missing: delete {folder} and run again to fetch it.")
    for name in sorted(present - set(sums)):
        raise EmbeddedError(f"{folder / name} does not belong there: delete {folder} and run again to fetch what does.")
    for name, digest in sorted(sums.items()):
        if sha256(folder / name) != digest:
            raise EmbeddedError(f"{folder / name} is not the file it should be (sha256 differs): delete {folder} and run again.")


def ivy_fetch(java: Path, coordinate: str, transitive: bool, out: Path, ivy_cache: Path) -> None:
    """Ask Ivy for one artefact, with or without what it depends on."""
    ivy = next(iter((package_dir("pyspark") / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise EmbeddedError(
            "PySpark's folder of jars has no Ivy: its installation is damaged; delete .venv and run `make setup`."
        )
    group, artifact, version = coordinate.split(":")
    command = [str(java), "-jar", str(ivy), "-cache", str(ivy_cache), "-m2compatible"]
    command += [] if transitive else ["-notransitive"]
    command += ["-dependency", group, artifact, version, "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{out}/[artifact]-[revision].[ext]", "-warn"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not any(out.iterdir()):
        lines = [x.strip() for x in (done.stdout + done.stderr).splitlines() if x.strip(" \t:#")]
        why = next((x for x in lines if "Exception" in x or "ERROR" in x or "not found" in x or "unresolved" in x), "no answer")
        raise EmbeddedError(f"{coordinate} cannot be fetched from Maven Central ({why[:160]}): check the network and run again.")


def fetch(name: str, java: Path, root: Path, say: Callable[[str], None]) -> Path:
    """Fetch one set of jars next to its final place, check it, and rename it into place."""
    root.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(root).free // 2**20) < NEED_MB:
        raise EmbeddedError(
            f"{root} has {free} MB free and the jars need {NEED_MB}: free some space, or set SPILLWAY_CACHE elsewhere."
        )
    say(f"fetching the {name} jars from Maven Central")
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}-") as temporary:
        out, ivy_cache = Path(temporary) / "jars", Path(temporary) / "ivy"
        out.mkdir()
        for coordinate in stack()["jars"][name]:
            ivy_fetch(java, coordinate, transitive=name == "broker", out=out, ivy_cache=ivy_cache)
        verify(out, expected()[name])
        final = folder_of(name, root)
        out.rename(final)
    return final


def folder_of(name: str, root: Path) -> Path:
    """The final place carries a digest of its contents, so that versions live side by side."""
    digest = hashlib.sha256("".join(sorted(expected()[name].values())).encode()).hexdigest()[:12]
    return root / f"{name}-{digest}"


def ensure(name: str, java: Path, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of a set of jars, fetched if needed; always checked."""
    root = cache_dir() / "jars"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            final = folder_of(name, root)
            if not final.exists():
                return fetch(name, java, root, say)
    except OSError as e:
        raise EmbeddedError(
            f"The cache {root} cannot be used ({e.strerror}): set SPILLWAY_CACHE to a folder you may write."
        ) from e
    verify(final, expected()[name])
    return final
