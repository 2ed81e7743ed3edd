"""The embedded services from outside: their command, and whether anything of them is left."""

from __future__ import annotations

import os
import subprocess
import sys

from spillway.embedded import Stack
from spillway.embedded.config import REPO
from spillway.embedded.processes import marked


def cli(stack: Stack, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spillway.embedded", "--home", str(stack.layout.home), *arguments]
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, cwd=REPO, timeout=200)


def nothing_runs(stack: Stack) -> bool:
    return not stack.alive() and not stack.processes() and not marked(stack.layout.home)
