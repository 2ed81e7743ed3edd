from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from spillway.act.housekeeping import remove_logs

NOW = datetime(2026, 5, 10, tzinfo=UTC)


def log(folder, name, *, days_old):
    file = folder / name / "attempt=1.log"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    when = (NOW - timedelta(days=days_old)).timestamp()
    for path in (file, file.parent, file.parent.parent):
        os.utime(path, (when, when))
    return file


def test_old_logs_go_with_their_folders_and_young_ones_stay(tmp_path):
    old = log(tmp_path, "dag_id=a/run_id=1/task_id=t", days_old=4)
    young = log(tmp_path, "dag_id=a/run_id=2/task_id=t", days_old=2)
    empty = tmp_path / "dag_id=a" / "run_id=3"
    empty.mkdir()
    assert remove_logs(tmp_path, NOW - timedelta(days=3)) == 1
    assert young.exists()
    assert not old.parent.parent.exists()
    assert empty.exists(), "a folder somebody just made is about to be used"


def test_links_are_not_followed(tmp_path):
    target = log(tmp_path / "elsewhere", "x/y", days_old=9)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "latest").symlink_to(target)
    (logs / "folder").symlink_to(target.parent)
    assert remove_logs(logs, NOW - timedelta(days=3)) == 0
    assert target.exists()


def test_no_folder_no_work(tmp_path):
    assert remove_logs(tmp_path / "missing", NOW) == 0
