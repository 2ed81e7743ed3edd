"""Becomes another program after confining itself to CPU cores or giving up root; standard library only, started with -I -S."""

import os
import sys


def main(argv: list[str]) -> None:
    split = argv.index("--")
    options, command = argv[:split], argv[split + 1 :]
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name == "--cpus":
            os.sched_setaffinity(0, {int(c) for c in value.split(",")})
        elif name == "--user":
            uid, gid = map(int, value.split(":"))
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            os.umask(0o077)
    os.execvpe(command[0], command, os.environ)


main(sys.argv[1:])
