"""Ports on loopback: the preferred one if it is free, else a free one; a demanded one or an explanation."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import psutil

from spillway.embedded.config import HOST, cache_dir
from spillway.embedded.errors import EmbeddedError

# Below the range from which the kernel gives ports to outgoing connections, so that none of those takes a chosen one.
FREE_RANGE = range(21000, 29000)


def is_free(port: int) -> bool:
    """Whether nothing listens on the port, on loopback or on every address."""
    for address in (HOST, "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, port))
            except OSError:
                return False
    return True


def listener(port: int) -> str:
    """Who listens on a port, as far as this user may see it."""
    try:
        for c in psutil.net_connections(kind="tcp"):
            if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port:
                return f"process {c.pid} ({psutil.Process(c.pid).name()})" if c.pid else "a process of another user"
    except (psutil.Error, OSError):
        pass
    return "a process that cannot be seen from here"


class PortBook:
    """Chooses ports and holds them against other Spillway runs of this user for as long as it lives."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_dir() / "ports"
        self._locks: dict[int, IO[str]] = {}

    def _claim(self, port: int) -> bool:
        if port in self._locks:
            return False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (self._folder / str(port)).open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            return False
        if not is_free(port):
            handle.close()
            return False
        self._locks[port] = handle
        return True

    def choose(self, name: str, preferred: int, recorded: int | None = None, environ: Mapping[str, str] = os.environ) -> int:
        """The port for `name`: demanded by SPILLWAY_PORT_<NAME>, the one of the last run, the preferred one, or any free one."""
        variable = f"SPILLWAY_PORT_{name.upper()}"
        demanded = environ.get(variable)
        if demanded:
            if not demanded.isdigit() or not 0 < int(demanded) < 65536:
                raise EmbeddedError(f"{variable}={demanded} is not a port: give a number from 1 to 65535.")
            port = int(demanded)
            if not self._claim(port):
                raise EmbeddedError(
                    f"Port {port} for {name} ({variable}) is in use by {listener(port)}: "
                    f"stop it, or unset {variable} to take a free port."
                )
            return port
        for known in (recorded, preferred):
            if known and self._claim(known):
                return known
        for port in random.sample(FREE_RANGE, len(FREE_RANGE)):
            if self._claim(port):
                return port
        raise EmbeddedError(
            f"No free port for {name} between {FREE_RANGE.start} and {FREE_RANGE.stop} on {HOST}: stop something that listens."
        )

    def release(self) -> None:
        for handle in self._locks.values():
            handle.close()
        self._locks.clear()
