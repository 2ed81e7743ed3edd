"""Files that Spark makes on a local disk cost no process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spillway.act.launch.conf import LOCAL_FILES
from spillway.embedded import jars
from spillway.embedded.java import java_home

pytestmark = pytest.mark.spark

MAKES = """
import json, pathlib, sys
from pyspark.sql import SparkSession
conf = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
path = spark._jvm.org.apache.hadoop.fs.Path("file://" + sys.argv[2])
files = path.getFileSystem(spark._jsc.hadoopConfiguration())
made = path.suffix("/a/b")
stream = files.create(made, True)
stream.write(bytearray(b"text"))
stream.close()
files.rename(made, path.suffix("/a/c"))
status = [f for f in files.listStatus(path.suffix("/a"))]
print(json.dumps([[f.getPath().getName(), f.getLen(), f.getPermission().toString()] for f in status]))
"""
FORKED = '#!/bin/sh\necho "$@" >> "$FORKS"\nexec /bin/chmod "$@"\n'


def forks(folder: Path, conf: dict[str, str]) -> list[str]:
    """What `chmod` was asked for while a file was made, found to be as it should be, and moved."""
    tools, log = folder / "tools", folder / "forks"
    tools.mkdir()
    (tools / "chmod").write_text(FORKED)
    (tools / "chmod").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "FORKS": str(log), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", MAKES, json.dumps(conf), str(folder / "files")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [["c", 4, "rw-r--r--"]]
    assert (folder / "files" / "a" / ".c.crc").exists(), "with its checksum beside it"
    return [line for line in log.read_text().splitlines() if "/files" in line] if log.exists() else []


def test_no_process_is_started_for_a_file(tmp_path: Path) -> None:
    connectors = jars.ensure("connector", java_home(tmp_path) / "bin" / "java")
    assert forks(tmp_path, {"spark.driver.extraClassPath": f"{connectors}/*", **LOCAL_FILES}) == []


def test_the_class_of_hadoop_starts_one_for_each(tmp_path: Path) -> None:
    """Once it does not, ours is not needed any more."""
    assert len(forks(tmp_path, {})) >= 2
