"""Which processes are drivers of the local launcher."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
from spillway.act.launch import local
from spillway.act.launch.local import LocalLauncher


def process(pid: int, parent: int, store: str = "here", status: str = psutil.STATUS_SLEEPING) -> SimpleNamespace:
    line = ["python", "-u", "-c", "spillway-driver", f"{local.STORE}={store}", "spark.app.name=spillway:p:main:0"]
    return SimpleNamespace(info={"pid": pid, "ppid": parent, "cmdline": line, "create_time": 12.0, "status": status})


@pytest.mark.parametrize(
    ("processes", "found"),
    [
        ([process(7, 1), process(9, 1)], [7, 9]),
        ([process(9, 7), process(7, 1)], [7]),
        ([process(7, 1, store="there"), process(9, 7)], [9]),
        ([process(7, 1, status=psutil.STATUS_ZOMBIE)], []),
    ],
    ids=["two", "one that has just forked", "of another store", "ended"],
)
def test_what_is_a_driver(monkeypatch: pytest.MonkeyPatch, processes: list[SimpleNamespace], found: list[int]) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda _: processes)
    launcher = LocalLauncher.__new__(LocalLauncher)
    assert [int(f.handle.split("@")[0]) for f in launcher.find("here").found] == found
