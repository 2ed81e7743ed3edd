"""Local launches with a stand-in for spark-submit, so that only the process handling is looked at."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil
import pytest
from spillway.act.launch import DriverStatus, LaunchRefused, LaunchSpec
from spillway.act.launch.conf import Cluster
from spillway.act.launch.local import LocalLauncher

SPEC = LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="unit-test")
SLEEPER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"


def launcher(tmp_path, code):
    return LocalLauncher(Cluster(master="local[1]"), folder=tmp_path, app="run.py", command=(sys.executable, "-c", code))


def until(what, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("code", "status"), [("pass", DriverStatus.FINISHED), ("raise SystemExit(3)", DriverStatus.FAILED)])
def test_the_exit_code_tells_finished_from_failed(tmp_path, code, status):
    driver = launcher(tmp_path, code)
    handle = driver.submit(SPEC)
    until(lambda: driver.status(handle) is not DriverStatus.RUNNING)
    assert driver.status(handle) is status


def test_a_kill_takes_the_whole_group(tmp_path):
    driver = launcher(tmp_path, SLEEPER)
    handle = driver.submit(SPEC)
    family = psutil.Process(int(handle.split("@")[0]))
    until(lambda: len(family.children(recursive=True)) == 2)
    members = [family, *family.children(recursive=True)]
    assert driver.status(handle) is DriverStatus.RUNNING
    assert [(f.handle, f.name) for f in driver.find("unit-test").found] == [(handle, "spillway:taxi:heavy:4")]
    assert driver.find("another-store").found == ()
    driver.kill(handle)
    assert driver.status(handle) is DriverStatus.FAILED
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in members))
    assert driver.find("unit-test").found == ()
    driver.kill(handle)


def test_a_driver_killed_from_outside_has_failed(tmp_path):
    driver = launcher(tmp_path, "import time; time.sleep(60)")
    handle = driver.submit(SPEC)
    until(lambda: psutil.Process(int(handle.split("@")[0])).children())
    [child] = psutil.Process(int(handle.split("@")[0])).children()
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: driver.status(handle) is DriverStatus.FAILED)


def test_a_process_that_inherited_the_pid_is_not_the_driver(tmp_path):
    driver = launcher(tmp_path, "pass")
    assert driver.status(f"{os.getpid()}@1.00@spillway:taxi:heavy:4") is DriverStatus.FAILED
    driver.kill(f"{os.getpid()}@1.00@spillway:taxi:heavy:4")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchRefused, match="could not be started on this machine"):
        launcher(tmp_path / "file" / "below", "pass").submit(SPEC)
