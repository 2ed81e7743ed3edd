"""Keeps set by hand, on a real Postgres."""

from __future__ import annotations

import select
import time
from typing import Any

import pytest
from spillway.store import Refused, connect, pipelines, settings

from tests.support.database import Database
from tests.support.taxi import apply, parse

pytestmark = pytest.mark.integration


def notifications(conn: Any, timeout_s: float = 5.0) -> list[str]:
    deadline = time.monotonic() + timeout_s
    while not conn.notifies and time.monotonic() < deadline:
        select.select([conn], [], [], 0.2)
        conn.poll()
    return [n.payload for n in conn.notifies]


def test_keep_is_heard_by_a_listening_job(database: Database, control: Any) -> None:
    apply(control)
    job = connect("job", dsn=database.dsn("job"), autocommit=True)
    with job.cursor() as cursor:
        cursor.execute("listen spillway_setting")
    published = settings.set_keep(control, "taxi", "union:bill", 0.5, ttl_s=60, by="tester", reason="rush")
    assert notifications(job) == ["taxi"]
    with job.cursor() as cursor:
        cursor.execute("select keep, decision_id, ttl_s, issued_by, reason from spillway.edge_setting")
        assert cursor.fetchall() == [(0.5, published.decision_id, 60.0, "tester", "rush")]
    job.close()
    assert published.warning is None


def test_stop_is_heard_by_a_listening_job(database: Database, control: Any) -> None:
    apply(control)
    job = connect("job", dsn=database.dsn("job"), autocommit=True)
    with job.cursor() as cursor:
        cursor.execute("listen spillway_application")
    pipelines.set_desired(control, "taxi", "running", "tester")
    assert sorted(notifications(job)) == ["taxi/front", "taxi/heavy"]
    job.close()


def test_every_keep_has_its_decision_and_its_history(database: Database, control: Any) -> None:
    apply(control)
    ids = [settings.set_keep(control, "taxi", "union:light", k, by="tester").decision_id for k in (0.9, 0.8, 1.0)]
    assert ids == sorted(set(ids))
    assert database.sql("read", "select decision_id, keep from spillway.setting_history order by 1") == list(
        zip(ids, (0.9, 0.8, 1.0), strict=True)
    )


def test_keep_below_a_floor_is_done_and_said(control: Any) -> None:
    apply(control)
    published = settings.set_keep(control, "taxi", "yellow:union", 0.4, by="tester", reason="drill")
    assert published.warning == "query bill falls to accuracy 0.4, below its floor 0.5"
    assert published.setting.reason == "drill; query bill falls to accuracy 0.4, below its floor 0.5"
    both = settings.set_keep(control, "taxi", "union:light", 0.25, by="tester")
    assert both.warning == (
        "query bill falls to accuracy 0.4, below its floor 0.5; query light falls to accuracy 0.1, below its floor 0.2"
    ), "keeps multiply along the way"


@pytest.mark.parametrize(
    ("edge", "keep", "ttl_s", "words"),
    [
        ("union:bill", 1.01, None, "keep 1.01 is outside [0, 1]: give the share of events to keep."),
        ("union:bill", -0.1, None, "keep -0.1 is outside [0, 1]: give the share of events to keep."),
        ("union:bill", float("nan"), None, "keep nan is outside [0, 1]: give the share of events to keep."),
        (
            "union:bil",
            0.5,
            None,
            "pipeline taxi has no edge union:bil: its edges are yellow:union, union:bill, union:light, weather:light.",
        ),
        ("union:bill", 0.5, 0.0, "a time to live of 0 s is not possible: give more than 0 s, or none for a keep that stays."),
    ],
)
def test_keep_that_is_refused(database: Database, control: Any, edge: str, keep: float, ttl_s: float | None, words: str) -> None:
    apply(control)
    with pytest.raises(Refused) as raised:
        settings.set_keep(control, "taxi", edge, keep, ttl_s, "tester")
    assert str(raised.value) == words
    assert database.sql("read", "select count(*) from spillway.edge_setting") == [(0,)]


def test_expired_keep_falls_back_as_declared(database: Database, control: Any) -> None:
    apply(control)
    for edge in ("union:bill", "union:light"):
        settings.set_keep(control, "taxi", edge, 0.5, ttl_s=60, by="tester")
    database.sql("control", "update spillway.edge_setting set issued_at = now() - interval '61 s'")
    control.rollback()
    keeps = settings.effective(parse(), settings.current(control, "taxi"))
    assert keeps == {"yellow:union": 1.0, "weather:light": 1.0, "union:bill": 1.0, "union:light": 0.5}


def test_clear(control: Any) -> None:
    apply(control)
    for edge in ("union:bill", "union:light", "yellow:union"):
        settings.set_keep(control, "taxi", edge, 0.8, by="tester")
    assert settings.clear(control, "taxi", "tester", "union:bill") == ["union:bill"]
    assert settings.clear(control, "taxi", "tester") == ["yellow:union", "union:light"]
    assert settings.clear(control, "taxi", "tester") == []
    assert {s.keep for s in settings.current(control, "taxi").values()} == {1.0}
    with pytest.raises(Refused, match="pipeline taxi has no edge x"):
        settings.clear(control, "taxi", "tester", "x")


def test_settings_of_a_removed_edge_go(control: Any) -> None:
    apply(control)
    settings.set_keep(control, "taxi", "yellow:union", 0.8, by="tester")
    apply(control, ("topic: yellow", "topic: green"))
    assert settings.current(control, "taxi") == {}
