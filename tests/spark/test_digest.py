"""Handles and checksums of state, and copies of a checkpoint that hold just what is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.offline import seam
from spark_jobs.runtime.checkpoint import Checkpoint
from spark_jobs.runtime.clone import CloneFailed, clone
from spark_jobs.runtime.digest import digest, digested, handles
from spark_jobs.runtime.muting import muted_until, write_aligned
from spark_jobs.runtime.repartition import repartition
from tests.support.stateful import Counted

pytestmark = pytest.mark.spark


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Counted:
    made = Counted(spark, tmp_path, buckets=4)
    made.feed(6)
    made.run()
    return made


def test_every_bucket_has_a_handle_with_its_rows_and_a_checksum(counted: Counted) -> None:
    found = digested(counted.spark, counted.location, 5)
    assert [h.bucket for h in found] == [0, 1, 2, 3]
    assert {h.version for h in found} == {6}
    assert all(h.bytes > 0 and h.location.endswith(f"/checkpoint/state/0/{h.bucket}") for h in found)
    assert sum(h.rows or 0 for h in found) == len(counted.expected())
    assert found == digested(counted.spark, counted.location, 5)
    assert [(h.rows, h.checksum) for h in found] != [(h.rows, h.checksum) for h in digested(counted.spark, counted.location, 4)]
    assert [h.rows for h in handles(counted.checkpoint, 5)] == [None] * 4


ELSEWHERE = """
import json, sys
from pyspark.sql import SparkSession
from spark_jobs.runtime.digest import digest
from spark_jobs.runtime.session import operator_session
first = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark = operator_session(first, 1, sys.argv[1])
print(json.dumps(sorted(digest(spark, sys.argv[1], int(sys.argv[2])).items())))
"""


def test_state_with_snapshots_is_counted_in_a_process_that_ran_no_query(counted: Counted) -> None:
    """As a job beside the driver is: who loads a snapshot reports that to a coordinator, which comes with a first query."""
    batch = repartition(counted.spark, counted.location, 8)
    assert list(Path(counted.location.removeprefix("file:")).glob("state/0/*/*.zip")), "what is rewritten is a snapshot"
    here = digest(counted.spark, counted.location, batch)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", ELSEWHERE, counted.location, str(batch)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {int(b): tuple(found) for b, found in json.loads(done.stdout.splitlines()[-1])} == here


def test_a_change_of_one_value_changes_the_checksum(counted: Counted) -> None:
    """The first file once more only raises counts: all its keys are known."""
    shutil.copyfile(counted.source / "00000.json", counted.source / "again.json")
    counted.run()
    before, after = digest(counted.spark, counted.location, 5), digest(counted.spark, counted.location, 6)
    assert sum(rows for rows, _ in before.values()) == sum(rows for rows, _ in after.values())
    assert sum(checksum for _, checksum in before.values()) != sum(checksum for _, checksum in after.values())


def test_where_state_before_and_after_a_change_is_compared(counted: Counted, tmp_path: Path) -> None:
    assert seam(counted.checkpoint, counted.checkpoint, None) == (5, 5)
    repartition(counted.spark, counted.location, 8)
    counted.feed()
    counted.run()
    assert seam(counted.checkpoint, counted.checkpoint, 5) == (5, 6), "batch 6 is the repartition"
    assert seam(counted.checkpoint, counted.checkpoint, 7) == (7, 7)
    for told in (4, 5, 6, 7, None):
        assert seam(counted.checkpoint, counted.checkpoint, told, 8) == (5, 6), "whatever batch was told of"
    with pytest.raises(RuntimeError, match="does not show when it was given 16 buckets"):
        seam(counted.checkpoint, counted.checkpoint, 7, 16)
    other = Checkpoint(counted.spark, f"file:{tmp_path}/other")
    with pytest.raises(RuntimeError, match="has not taken over"):
        seam(counted.checkpoint, other, None)
    write_aligned(other, 11)
    assert muted_until(other) == 11
    assert seam(counted.checkpoint, other, None) == (7, 11)


@pytest.mark.parametrize("back", [0, 3])
def test_a_query_goes_on_from_a_copy_of_its_checkpoint(counted: Counted, tmp_path: Path, back: int) -> None:
    target = Checkpoint(counted.spark, f"file:{tmp_path}/copy")
    assert clone(counted.checkpoint, target, back=back) == 5 - back
    assert target.committed() == [4 - back, 5 - back]
    assert digest(counted.spark, target.location, 5 - back) == digest(counted.spark, counted.location, 5 - back)
    ids = {c.read_text("metadata") for c in (counted.checkpoint, target)}
    assert len(ids) == 2, "two queries must not have one identity"
    counted.feed(2)
    counted.run(target.location)
    assert counted.counts(target.location) == counted.expected()
    counted.run()
    assert counted.counts() == counted.expected(), "the original is untouched"


def test_a_copy_begins_where_the_log_still_knows_the_way(counted: Counted, tmp_path: Path) -> None:
    assert clone(counted.checkpoint, Checkpoint(counted.spark, f"file:{tmp_path}/far"), back=50) == 0
    with pytest.raises(CloneFailed, match="no committed batch yet"):
        clone(Checkpoint(counted.spark, f"file:{tmp_path}/none"), Checkpoint(counted.spark, f"file:{tmp_path}/nowhere"))


def test_a_file_that_is_gone_fails_the_copy(counted: Counted, tmp_path: Path) -> None:
    folder = Path(counted.location.removeprefix("file:")) / "state" / "0" / "2"
    for file in folder.glob("*6.changelog*"):
        file.unlink()
    for file in folder.glob("*6.zip*"):
        file.unlink()
    with pytest.raises(CloneFailed, match=r"has no 6\.changelog"):
        clone(counted.checkpoint, Checkpoint(counted.spark, f"file:{tmp_path}/copy"))
