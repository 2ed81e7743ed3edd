"""A jar is used only if it is the one whose sha256 is in the repository."""

from __future__ import annotations

import hashlib
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from spillway.embedded import jars
from spillway.embedded.config import stack
from spillway.embedded.errors import EmbeddedError

GOOD = b"the right bytes"
SUMS = {"connector": {"a-1.jar": hashlib.sha256(GOOD).hexdigest()}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a set of one jar."""
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "expected", lambda: SUMS)
    monkeypatch.setitem(stack()["jars"], "connector", ["g:a:1"])
    return tmp_path / "jars"


def java(folder: Path, *, writes: bytes | None, code: int = 0, says: str = "") -> Path:
    """A `java` that does what Ivy would do with a good, a broken or no network."""
    script = folder / "java"
    body = (folder / "body").absolute()
    body.write_bytes(writes or b"")
    copy = f'cp {body} "${{out%/*}}/a-1.jar"' if writes is not None else ":"
    script.write_text(
        "#!/bin/bash\n"
        'while [ $# -gt 0 ]; do [ "$1" = -retrieve ] && out="$2"; shift; done\n'
        f"{copy}\necho '{says}' >&2\nexit {code}\n"
    )
    script.chmod(0o755)
    return script


def left_in(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir() if not p.name.endswith(".lock"))


def test_a_good_download_is_kept_and_not_fetched_again(cache: Path, tmp_path: Path) -> None:
    folder = jars.ensure("connector", java(tmp_path, writes=GOOD))
    assert [p.name for p in folder.iterdir()] == ["a-1.jar"]
    assert jars.ensure("connector", Path("/no/java/needed")) == folder


def test_a_broken_download_is_refused_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"a-1\.jar is not the file it should be \(sha256 differs\)"):
        jars.ensure("connector", java(tmp_path, writes=GOOD[:7]))
    assert left_in(cache) == []


def test_a_download_that_stops_half_way_is_not_under_its_final_name(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"g:a:1 cannot be fetched from Maven Central \(java\.net\.SocketException: reset\)"):
        jars.ensure("connector", java(tmp_path, writes=GOOD[:7], code=1, says="java.net.SocketException: reset"))
    assert left_in(cache) == []


def test_no_network_is_one_sentence(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"UnknownHostException.*: check the network and run again\.$"):
        jars.ensure("connector", java(tmp_path, writes=None, says="java.net.UnknownHostException: repo"))


def test_a_jar_altered_in_the_cache_is_refused(cache: Path, tmp_path: Path) -> None:
    folder = jars.ensure("connector", java(tmp_path, writes=GOOD))
    (folder / "a-1.jar").write_bytes(b"something else")
    with pytest.raises(EmbeddedError, match=rf"sha256 differs\): delete {folder} and run again"):
        jars.ensure("connector", java(tmp_path, writes=GOOD))


def test_a_jar_that_is_missing_or_foreign_is_named(cache: Path, tmp_path: Path) -> None:
    folder = jars.ensure("connector", java(tmp_path, writes=GOOD))
    (folder / "evil.jar").write_bytes(b"")
    with pytest.raises(EmbeddedError, match=r"evil\.jar does not belong there"):
        jars.ensure("connector", java(tmp_path, writes=GOOD))
    (folder / "evil.jar").unlink()
    (folder / "a-1.jar").unlink()
    with pytest.raises(EmbeddedError, match=r"a-1\.jar is missing"):
        jars.ensure("connector", java(tmp_path, writes=GOOD))


def test_a_full_disk_is_said_before_the_download(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 5 * 2**20))
    with pytest.raises(EmbeddedError, match="has 5 MB free and the jars need"):
        jars.ensure("connector", java(tmp_path, writes=GOOD))


def test_every_jar_of_the_stack_has_its_sum() -> None:
    sums = jars.expected()
    assert set(sums) == set(stack()["jars"])
    for coordinate in stack()["jars"]["connector"]:
        _, artifact, version = coordinate.split(":")
        assert f"{artifact}-{version}.jar" in sums["connector"]
    assert len(sums["connector"]) == len(stack()["jars"]["connector"])
    assert f"kafka_2.13-{stack()['versions']['kafka']}.jar" in sums["broker"]
