"""Becomes another program after confining itself to CPU cores, lowering its priority or giving up root.

Standard library only, started with -I -S.
"""

import os
import sys


def main(argv: list[str]) -> None:
    split = argv.index("--")
    options, command = argv[:split], argv[split + 1 :]
    # Found while still root: the next user may not be able to read this Python's own library.
    folders = os.get_exec_path()
    places = [] if "/" in command[0] else [f"{folder}/{command[0]}" for folder in folders]
    program = next((p for p in places if os.access(p, os.X_OK)), command[0])
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name == "--cpus":
            os.sched_setaffinity(0, {int(c) for c in value.split(",")})
        elif name == "--nice":
            os.nice(int(value))
        elif name == "--user":
            uid, gid = map(int, value.split(":"))
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            os.umask(0o077)
    try:
        os.execve(program, command, os.environ)
    except OSError as e:
        sys.exit(f"{program} does not run: {e.strerror}")


main(sys.argv[1:])
