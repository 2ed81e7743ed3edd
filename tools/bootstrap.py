"""Makes .venv from the lock file: `python3 tools/bootstrap.py`. Standard library only; any Python from 3.8 on can run it.

A second run with the same lock does nothing and needs no network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
VENV = REPO / ".venv"
STAMP = VENV / ".spillway-stamp"
LOCK = REPO / "requirements-dev.txt"
WANTED = ((3, 11), (3, 12), (3, 13))
NEED_MB = 4000
PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


class Failure(Exception):
    """One sentence for the person."""


def digest() -> str:
    """Of all that decides what the environment holds."""
    h = hashlib.sha256()
    for path in (LOCK, REPO / "pyproject.toml", Path(__file__)):
        h.update(path.read_bytes())
    h.update(str(VENV).encode())
    return h.hexdigest()


def version_of(python: str) -> tuple[int, ...]:
    """(3, 11) for an interpreter that can make environments, else ()."""
    try:
        done = subprocess.run([python, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.match(r"(\d+)\.(\d+)", done.stdout.decode("ascii", "replace"))
    return (int(found.group(1)), int(found.group(2))) if done.returncode == 0 and found else ()


def find_python() -> str:
    """$SPILLWAY_PYTHON, the Python running this, or one on the PATH."""
    demanded = os.environ.get("SPILLWAY_PYTHON")
    if demanded:
        version = version_of(demanded)
        if version in WANTED:
            return demanded
        is_ = "Python {}.{}".format(*version) if version else "no Python that runs and has the modules venv and ensurepip"
        raise Failure(f"SPILLWAY_PYTHON={demanded} is {is_}: give a Python 3.11, 3.12 or 3.13.")
    names = [sys.executable] + [f"python{major}.{minor}" for major, minor in WANTED] + ["python3", "python"]
    for name in names:
        path = shutil.which(name)
        if path and version_of(path) in WANTED:
            return path
    raise Failure(
        "Spillway needs Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip, and the PATH has none "
        f"(this is {sys.version_info[0]}.{sys.version_info[1]}): install one, or set SPILLWAY_PYTHON."
    )


def run(what: str, command: list[str]) -> None:
    """Run a step, show that it lives, and say in one sentence why it failed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    env.setdefault("UV_SYSTEM_CERTS", "true")  # behind a company's proxy the machine knows whom to trust
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env.setdefault("UV_HTTP_TIMEOUT", "180")
    began = time.time()
    print(f"[setup] {what}", flush=True)
    process = subprocess.Popen(
        command, cwd=str(REPO), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            if line:
                lines.append(line)

    reader = threading.Thread(target=read)
    reader.daemon = True
    reader.start()
    told = began
    try:
        while process.poll() is None:
            time.sleep(0.1)
            if time.time() - told > 10:
                told = time.time()
                print("[setup]   {:3.0f} s  {}".format(told - began, lines[-1][:110] if lines else ""), flush=True)
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join(5)
    if process.returncode != 0:
        raise Failure(explain(what, process.returncode, "\n".join(lines)))
    print(f"[setup]   done in {time.time() - began:.0f} s", flush=True)


def explain(what: str, code: int, text: str) -> str:
    """The sentence for a failed step; the end of its output goes before it."""
    low = text.lower()
    print("\n".join(text.splitlines()[-15:]), file=sys.stderr)
    if "no space left" in low:
        return f"The disk filled up while {what}: free about {NEED_MB} MB and run again."
    if "hash mismatch" in low or "hashes are required" in low or "do not match" in low:
        return (
            f"A download while {what} is not the file the lock names (its hash differs): run again, or check the proxy or mirror."
        )
    network = (
        "connection",
        "resolve",
        "timed out",
        "timeout",
        "network",
        "could not connect",
        "dns",
        "unreachable",
        "ssl",
        "tls",
    )
    if any(word in low for word in network):
        return f"The package index cannot be reached while {what}: check the network or the proxy and run again."
    return f"{what[:1].upper() + what[1:]} failed with code {code}: the lines above say why."


def make() -> None:
    free = shutil.disk_usage(str(REPO)).free // 2**20
    if free < NEED_MB:
        raise Failure(f"{REPO} has {free} MB free and the environment needs {NEED_MB}: free some space and run again.")
    python = find_python()
    inner = VENV / "bin" / "python"
    if version_of(str(inner)) not in WANTED:
        run(f"making .venv with {python}", [python, "-m", "venv", "--clear", str(VENV)])
    if STAMP.exists():
        STAMP.unlink()
    pin = re.search(r"^uv==(\S+)", LOCK.read_text(encoding="utf-8"), re.M)
    if pin is None:
        raise Failure(f"{LOCK} does not pin uv: run `make lock`.")
    uv = str(VENV / "bin" / "uv")
    have = subprocess.run([uv, "--version"], stdout=subprocess.PIPE).stdout.decode() if Path(uv).exists() else ""
    if pin.group(1) not in have.split():
        with tempfile.TemporaryDirectory() as folder:
            only = Path(folder) / "uv.txt"
            only.write_text(locked("uv"), encoding="utf-8")
            pip = [str(inner), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(only)]
            run(f"installing uv {pin.group(1)}", pip)
    into = ["--python", str(inner)]
    run(
        "installing the locked packages (1.4 GB, a few minutes at the first time)",
        [uv, "pip", "sync", "--require-hashes", "--compile-bytecode", "--allow-empty-requirements", *into, str(LOCK)],
    )
    run(
        "installing spillway itself",
        [uv, "pip", "install", "--no-deps", "--no-build-isolation", "--offline", *into, "-e", str(REPO)],
    )
    check(inner)
    STAMP.write_text(digest())


def locked(name: str) -> str:
    """A package's lines of the lock: its version and hashes."""
    found = re.search(rf"^{name}==.*\n(?:[ \t]+--hash.*\n)+", LOCK.read_text(encoding="utf-8"), re.M)
    if found is None:
        raise Failure(f"{LOCK} has no hashes for {name}: run `make lock`.")
    return found.group(0)


def check(inner: Path) -> None:
    """pyspark and pyspark-client own the same files; make sure they are of the locked version."""
    pin = re.search(r"^pyspark==(\S+)", LOCK.read_text(encoding="utf-8"), re.M)
    want = pin.group(1) if pin else ""
    code = (
        "import pyspark, os; print(pyspark.__version__, os.path.exists(os.path.join(os.path.dirname(pyspark.__file__), 'jars')))"
    )
    done = subprocess.run([str(inner), "-I", "-c", code], capture_output=True)
    said = done.stdout.decode().split()
    if said != [want, "True"]:
        raise Failure(
            "PySpark in .venv is {} and not the complete {}: delete .venv and run again.".format(" ".join(said) or "broken", want)
        )


def main() -> int:
    try:
        if not LOCK.exists():
            raise Failure(f"{LOCK} is missing: this is not a complete clone.")
        if STAMP.exists() and STAMP.read_text() == digest():
            return 0
        began = time.time()
        make()
        print(f"[setup] ready after {time.time() - began:.0f} s", flush=True)
        return 0
    except Failure as e:
        print(e, file=sys.stderr)
    except OSError as e:
        print(f"{VENV} cannot be set up ({e}): check the folder's owner and the disk.", file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted; run again to go on.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
