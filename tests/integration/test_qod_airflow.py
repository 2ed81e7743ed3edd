"""Cycles under the real Airflow: its scheduler runs them on time, and a backfill replays past windows beside them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from spillway.act.replay import replay
from spillway.embedded import Stack
from spillway.policy import Policy
from spillway.store.decisions import Run

from tests.support.airflow_rest import Airflow, moment
from tests.support.line import until
from tests.support.recorded import Recording, store

pytestmark = pytest.mark.integration
SERVICES = ("postgres", "airflow")


class Site(Airflow):
    """With the store beside it."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.stack = stack

    def backfill(self, start: datetime, end: datetime, behaviour: str, *, name: str = "past", active: int = 1) -> None:
        """Waits for its end; only one at a time is possible, and Airflow notices an end only now and then."""
        body = {
            "dag_id": "spillway_qod", "from_date": start.isoformat(), "to_date": end.isoformat(), "max_active_runs": active,
            "reprocess_behavior": behaviour, "run_backwards": False, "dag_run_conf": {"replay": name},
        }  # fmt: skip
        number = self.call("POST", "/backfills", json=body)["id"]
        until(lambda: self.call("GET", f"/backfills/{number}")["completed_at"], 180, "the backfill ends", every_s=2.0)

    def connect(self, role: str) -> Any:
        return psycopg2.connect(self.stack.env[f"SPILLWAY_DSN_{role.upper()}"])

    def sql(self, role: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self.connect(role)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(text, values)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()


@pytest.fixture(scope="module")
def site(run_root: Path) -> Iterator[Site]:
    stack = Stack(run_root / "qod", services=SERVICES)
    try:
        stack.up()
        site = Site(stack)
        site.pause("spillway_streams", "spillway_capacity", "spillway_rescale")
        yield site
    finally:
        stack.clean()


DECIDED = "select interval_end, status, output from spillway.decision where origin = 'replay' and replay = %s order by 1"


@pytest.mark.timeout(600)
def test_cycles_run_on_time_and_a_backfill_replays_the_past_beside_them(site: Site) -> None:
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=6)
    store(site, Recording(start=began, seconds=1500.0, rush=(150.0, 1500.0), name="rec"))
    published = "select count(*) from spillway.decision where origin = 'live' and status = 'published'"
    until(lambda: site.sql("read", published)[0][0] >= 4, 180, "cycles publish")
    [(least,)] = site.sql("read", "select keep from spillway.edge_setting where edge = 'front:heavy'")
    assert least < 1.0

    lengths = []
    for run in site.runs("spillway_qod", "scheduled"):
        if run["state"] == "success":
            assert run["data_interval_start"].split(".")[0][-3:-1] in ("00", "15", "30", "45"), "aligned"
            lengths.append(seconds(run["start_date"], run["end_date"]))
    assert sorted(lengths)[len(lengths) // 2] < 10.0

    first, last = began + timedelta(seconds=120), began + timedelta(seconds=180)
    before = site.sql("read", "select max(id) from spillway.event where kind = 'refused'")
    site.backfill(first, last, "none")
    decided = site.sql("read", DECIDED, "past")
    assert [d[0] for d in decided] == [first + timedelta(seconds=15 * n) for n in range(1, 6)], "each window, none beyond"
    assert decided[-1][2]["queries"]["heavy"]["desired"] < 1.0
    site.backfill(first, last, "completed")
    assert site.sql("read", DECIDED, "past") == decided
    replayed = "select count(*) from spillway.setting_history join spillway.decision on id = decision_id where origin = 'replay'"
    assert site.sql("read", replayed) == [(0,)]
    assert site.sql("read", "select max(id) from spillway.event where kind = 'refused'") == before

    first, last = began + timedelta(seconds=195), began + timedelta(seconds=240)
    site.backfill(first, last, "completed", name="hasty", active=4)
    runs = [r for r in site.runs("spillway_qod", "backfill") if moment(r["data_interval_start"]) >= first]
    green = {moment(r["data_interval_end"]) for r in runs if r["state"] == "success"}
    connection = site.connect("control")
    replay(connection, first, last + timedelta(seconds=15), Run(origin="replay", replay="ordered", policy=Policy()))
    connection.close()
    assert len(runs) == 4
    assert site.sql("read", DECIDED, "hasty") == [d for d in site.sql("read", DECIDED, "ordered") if d[0] in green], (
        "windows that were not decided in order are red, and the green ones are as they should be"
    )

    number = site.sql("read", published)[0][0]
    until(lambda: site.sql("read", published)[0][0] > number, 31, "the live cycles went on meanwhile", every_s=1.0)


def seconds(begin: str, end: str) -> float:
    return (moment(end) - moment(begin)).total_seconds()
