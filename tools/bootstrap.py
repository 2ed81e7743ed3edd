"""Makes .venv from the lock file: `python3 tools/bootstrap.py`. Standard library only; any Python from 3.8 on can run it.

A second run with the same lock does nothing and needs no network.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
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


def digest():
    # type: () -> str
    """Of all that decides what the environment holds."""
    h = hashlib.sha256()
    for path in (LOCK, REPO / "pyproject.toml", Path(__file__)):
        h.update(path.read_bytes())
    h.update(str(VENV).encode())
    return h.hexdigest()


def version_of(python):
    # type: (str) -> tuple
    """(3, 11) for an interpreter that can make environments, else ()."""
    try:
        done = subprocess.run([python, "-I", "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.match(r"(\d+)\.(\d+)", done.stdout.decode("ascii", "replace"))
    return (int(found.group(1)), int(found.group(2))) if done.returncode == 0 and found else ()


def find_python():
    # type: () -> str
    """$SPILLWAY_PYTHON, the Python running this, or one on the PATH."""
    demanded = os.environ.get("SPILLWAY_PYTHON")
    if demanded:
        version = version_of(demanded)
        if version in WANTED:
            return demanded
        is_ = "Python %d.%d" % version if version else "no Python that runs and has the modules venv and ensurepip"
        raise Failure("SPILLWAY_PYTHON=%s is %s: give a Python 3.11, 3.12 or 3.13." % (demanded, is_))
    names = [sys.executable] + ["python%d.%d" % v for v in WANTED] + ["python3", "python"]
    for name in names:
        path = name if os.path.isabs(name) else shutil.which(name)
        if path and version_of(path) in WANTED:
            return path
    raise Failure(
        "Spillway needs Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip, and the PATH has none "
        "(this is %d.%d): install one, or set SPILLWAY_PYTHON." % sys.version_info[:2]
    )


def run(what, command):
    # type: (str, list) -> None
    """Run a step, show that it lives, and say in one sentence why it failed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env.setdefault("UV_HTTP_TIMEOUT", "180")
    began = time.time()
    print("[setup] %s" % what, flush=True)
    process = subprocess.Popen(
        command, cwd=str(REPO), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = []  # type: list

    def read():
        # type: () -> None
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
                print("[setup]   %3.0f s  %s" % (told - began, lines[-1][:110] if lines else ""), flush=True)
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join(5)
    if process.returncode != 0:
        raise Failure(explain(what, process.returncode, "\n".join(lines)))
    print("[setup]   done in %.0f s" % (time.time() - began), flush=True)


def explain(what, code, text):
    # type: (str, int, str) -> str
    """The sentence for a failed step; the end of its output goes before it."""
    low = text.lower()
    print("\n".join(text.splitlines()[-15:]), file=sys.stderr)
    if "no space left" in low:
        return "The disk filled up while %s: free about %d MB and run again." % (what, NEED_MB)
    if "hash mismatch" in low or "hashes are required" in low or "do not match" in low:
        return "A download while %s is not the file the lock names (its hash differs): run again, or check the proxy or mirror." % what
    network = ("connection", "resolve", "timed out", "timeout", "network", "could not connect", "dns", "unreachable", "ssl", "tls")
    if any(word in low for word in network):
        return "The package index cannot be reached while %s: check the network (or the proxy and PIP_/UV_ settings) and run again." % what
    return "%s failed with code %d: the lines above say why." % (what[:1].upper() + what[1:], code)


def make():
    # type: () -> None
    free = shutil.disk_usage(str(REPO)).free // 2**20
    if free < NEED_MB:
        raise Failure("%s has %d MB free and the environment needs %d: free some space and run again." % (REPO, free, NEED_MB))
    python = find_python()
    inner = VENV / "bin" / "python"
    if version_of(str(inner)) not in WANTED:
        run("making .venv with %s" % python, [python, "-m", "venv", "--clear", str(VENV)])
    STAMP.unlink() if STAMP.exists() else None
    pin = re.search(r"^uv==(\S+)", LOCK.read_text(encoding="utf-8"), re.M)
    if pin is None:
        raise Failure("%s does not pin uv: run `make lock`." % LOCK)
    uv = str(VENV / "bin" / "uv")
    have = subprocess.run([uv, "--version"], stdout=subprocess.PIPE).stdout.decode() if os.path.exists(uv) else ""
    if pin.group(1) not in have.split():
        run("installing uv %s" % pin.group(1), [str(inner), "-m", "pip", "install", "--quiet", "uv==" + pin.group(1)])
    into = ["--python", str(inner)]
    run(
        "installing the locked packages (1.4 GB, a few minutes at the first time)",
        [uv, "pip", "sync", "--require-hashes", "--compile-bytecode", "--allow-empty-requirements"] + into + [str(LOCK)],
    )
    run("installing spillway itself", [uv, "pip", "install", "--no-deps", "--no-build-isolation", "--offline"] + into + ["-e", str(REPO)])
    check(inner)
    STAMP.write_text(digest())


def check(inner):
    # type: (Path) -> None
    """pyspark and pyspark-client own the same files; make sure they are of the locked version."""
    pin = re.search(r"^pyspark==(\S+)", LOCK.read_text(encoding="utf-8"), re.M)
    want = pin.group(1) if pin else ""
    code = "import pyspark, os; print(pyspark.__version__, os.path.exists(os.path.join(os.path.dirname(pyspark.__file__), 'jars')))"
    done = subprocess.run([str(inner), "-I", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = done.stdout.decode().split()
    if said != [want, "True"]:
        raise Failure(
            "PySpark in .venv is %s and not the complete %s: delete .venv and run again." % (" ".join(said) or "broken", want)
        )


def main():
    # type: () -> int
    try:
        if not LOCK.exists():
            raise Failure("%s is missing: this is not a complete clone." % LOCK)
        if STAMP.exists() and STAMP.read_text() == digest():
            return 0
        began = time.time()
        make()
        print("[setup] ready after %.0f s" % (time.time() - began), flush=True)
        return 0
    except Failure as e:
        print(e, file=sys.stderr)
    except OSError as e:
        print("%s cannot be set up (%s): check the folder's owner and the disk." % (VENV, e), file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted; run again to go on.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
