"""Spark's classes, prepared once, are what drivers and executors map; where there can be no archive everything runs without."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from spillway.embedded import Stack, classes, java

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java.java_home(tmp_path_factory.mktemp("java"))


def start(java_home: Path, archive: str, class_path: str) -> subprocess.CompletedProcess[str]:
    """`-Xshare:on`: an archive that cannot be used ends it, instead of being passed over."""
    command = [str(java_home / "bin" / "java"), "-Xshare:on", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [f"-XX:SharedArchiveFile={archive}", "-Xlog:class+load:file=/dev/stdout", "-cp", class_path]
    command += ["org.apache.spark.deploy.SparkSubmit", "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "JAVA_HOME": str(java_home)})


def test_the_archive_fits_the_class_path_that_drivers_have(stack: Stack, java_home: Path, tmp_path: Path) -> None:
    archive = stack.env.get("SPILLWAY_CLASS_ARCHIVE")
    if archive is None:
        assert not list(java_home.glob("lib/server/*.jsa")), "a Java that can share classes has an archive of its own"
        return
    (tmp_path / "log4j2.properties").write_text("status = error")
    ours = classes.class_path(Path(stack.env["SPILLWAY_JARS"]), Path(stack.env["SPILLWAY_SPARK_JARS"]))
    done = start(java_home, archive, f"{ours}:{tmp_path}:{stack.env['SPILLWAY_SPARK_JARS']}/*")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    loaded = [line for line in done.stdout.splitlines() if "org.apache.spark." in line and "Lambda" not in line]
    assert loaded and sum("shared objects file (top)" in line for line in loaded) > 0.9 * len(loaded)


def test_an_archive_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "java" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    said: list[str] = []
    assert classes.ensure(broken.parents[1], tmp_path, said.append) is None
    assert len(said) == 1 and not list((tmp_path / "environment").rglob("*.jsa"))
