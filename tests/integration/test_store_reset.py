"""A lost checkpoint on the real line: the driver says so and writes nothing, and a reset is the way back."""

from __future__ import annotations

import collections
import json
import re
import shutil
from pathlib import Path

import pytest
from spillway.embedded import Stack
from spillway.store import Refused, pipelines

from tests.support.line import Line, driver_log, until

pytestmark = [pytest.mark.integration, pytest.mark.spark]

YAML = """
pipeline: anew
trigger: 200ms
lineage: true
operators:
  pass:
    function: tests.support.operators:plain_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 1
edges:
  - {topic: anew.in, to: pass, partitions: 1}
"""


def written(line: Line) -> collections.Counter[int]:
    return collections.Counter(record["n"] for record in line.records("anew.pass.out"))


def test_a_lost_checkpoint_is_told_and_a_reset_begins_anew(stack: Stack) -> None:
    with Line(stack, YAML, every_s=1.0) as line:
        until(line.running, 90, "the application runs\n" + driver_log(stack))
        # One batch: its marker stands at the very epoch with which an emptied checkpoint begins again.
        line.produce("anew.in", [(b"k", json.dumps({"n": n, "key": "k"}).encode()) for n in range(20)])
        until(lambda: len(written(line)) == 20, 60, "the rows are written\n" + driver_log(stack))
        with line.db() as connection, pytest.raises(Refused, match=r"still runs \(application pass\)"):
            pipelines.reset(connection, "anew", "pass", "test")
        line.stop()
        shutil.rmtree(Path(line.env["SPILLWAY_CHECKPOINTS"].removeprefix("file://")) / "anew" / "pass" / "0")

        with line.db() as connection:
            pipelines.set_desired(connection, "anew", "running", "test")
        failed = "select text from spillway.event where pipeline = 'anew' and kind = 'failed'"
        until(lambda: line.sql(failed), 90, "the driver refuses\n" + driver_log(stack))
        [text, *_] = line.sql(failed)[0]
        told = r"operator pass at .*/anew/pass/0 is empty, but batch \d+ was reported.*`spillway reset anew pass`"
        assert re.search(told, text), text
        line.stop()
        assert written(line) == dict.fromkeys(range(20), 1), "nothing was written from the wrong checkpoint"

        with line.db() as connection:
            assert pipelines.reset(connection, "anew", "pass", "test") == 1
            pipelines.set_desired(connection, "anew", "running", "test")
        line.produce("anew.in", [(b"k", json.dumps({"n": 20, "key": "k"}).encode())])
        until(lambda: written(line)[20], 90, "it reads from the start\n" + driver_log(stack))
        assert written(line) == {**dict.fromkeys(range(20), 2), 20: 1}, "everything once more, as the command says"
