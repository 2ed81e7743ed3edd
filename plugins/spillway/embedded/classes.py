"""The classes of Spark, read and checked once, and mapped by every driver and executor that starts afterwards.

Half of what a Spark process computes until its first batch is the loading of some twelve thousand classes. Java can leave them
behind in a file (application class-data sharing) that holds for one Java, one list of jars and the places where they lie; hence
the file lies in the Python environment that has the jars. Where it cannot be made, everything only starts more slowly.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from spillway.embedded.config import HOST, REPO, package_dir

TRAINING = REPO / "spark_jobs" / "training.py"
LIMIT_S = 240.0


def class_path(connectors: Path, spark_jars: Path) -> str:
    """What a class path has to begin with for the archive to be used."""
    return f"{connectors}/*:{spark_jars}/*"


def archive_name(java_home: Path, jars: Mapping[Path, tuple[int, int]]) -> str:
    """Of the archive for these jars, by size and time of change.

    >>> first, again, changed = (archive_name(Path("/java"), {Path("/a.jar"): (1, when)}) for when in (2, 2, 3))
    >>> first == again, first == changed
    (True, False)
    """
    told = repr((str(java_home), TRAINING.read_text(encoding="utf-8"), sorted((str(p), *told) for p, told in jars.items())))
    return f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def ensure(java_home: Path, connectors: Path, say: Callable[[str], None] = lambda _: None) -> Path | None:
    """The archive, made if needed; None where there can be none."""
    jars = {
        p: (p.stat().st_size, p.stat().st_mtime_ns) for folder in (connectors, spark_jars()) for p in sorted(folder.glob("*.jar"))
    }
    root = Path(sys.prefix) / "share" / "spillway"
    try:
        root.mkdir(parents=True, exist_ok=True)
        final = root / archive_name(java_home.resolve(), jars)
        with (root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not final.exists():
                say("preparing Spark's classes, once: everything starts more quickly afterwards")
                for old in root.glob("spark-*"):
                    old.unlink()
                _make(final, java_home, connectors)
    except (OSError, subprocess.SubprocessError):
        return None
    return final if final.stat().st_size else None


def spark_jars() -> Path:
    return package_dir("pyspark") / "jars"


def _make(final: Path, java_home: Path, connectors: Path) -> None:
    """Plays a small query; what it loaded is left behind. An empty file says that this Java cannot do it."""
    with tempfile.TemporaryDirectory(prefix="spillway-classes-") as folder:
        scratch = Path(folder)
        (scratch / "conf").mkdir()
        env = {
            **{k: os.environ[k] for k in ("PATH", "HOME", "LANG", "TMPDIR") if k in os.environ},
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(package_dir("pyspark")),
            "SPARK_CONF_DIR": str(scratch / "conf"),
            "SPARK_SCALA_VERSION": "2.13",  # the only one of Spark 4
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        made = scratch / "classes.jsa"
        submit = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--driver-memory", "512m"]
        submit += ["--conf", "spark.ui.port=0", str(TRAINING), str(scratch)]
        command = _command(java_home / "bin" / "java", submit, env)
        at = command.index("-cp")
        command[at + 1] = class_path(connectors, spark_jars())
        command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={made}"]
        subprocess.run(command, env=env, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=True)
        part = final.with_suffix(".part")
        part.write_bytes(made.read_bytes() if made.exists() else b"")
        part.rename(final)


def _command(java: Path, submit: list[str], env: Mapping[str, str]) -> list[str]:
    """How Spark itself would start it: the launcher prints the arguments, each ended by a zero byte, after one empty line."""
    launcher = [str(java), "-Xmx128m", "-cp", f"{spark_jars()}/*", "org.apache.spark.launcher.Main", *submit]
    done = subprocess.run(launcher, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=True)
    return [part.decode() for part in done.stdout.split(b"\0\n", 1)[-1].split(b"\0") if part]
