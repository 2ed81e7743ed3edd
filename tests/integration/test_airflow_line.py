"""The real line: Airflow's scheduler runs spillway_streams, which starts, restarts and stops a real pipeline."""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests
from spillway.embedded import Stack

from tests.support.airflow_rest import Airflow, moment
from tests.support.embedded import cli, nothing_runs
from tests.support.line import Line, driver_log, until
from tests.support.live import Feed

YAML = """
pipeline: airline
trigger: 1s
lineage: true
operators:
  pass:
    function: tests.support.operators:slow_pass
    schema: n bigint not null, key string not null
    key: key
    buckets: 2
edges:
  - {topic: airline.in, to: pass, partitions: 2}
applications:
  pass: {operators: [pass], node: n2, executors: 1}
"""


@pytest.fixture(scope="module")
def full(run_root: Path) -> Iterator[Stack]:
    stack = Stack(run_root / "airflow", services=("postgres", "kafka", "spark", "airflow"))
    try:
        stack.up()
        yield stack
        stack.down()
        assert nothing_runs(stack)
    finally:
        stack.clean()


def generation(line: Line) -> int:
    return int(line.sql("select generation from spillway.application where pipeline = 'airline'")[0][0])


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_airflow_starts_restarts_and_stops_what_is_declared(full: Stack) -> None:
    airflow = Airflow(full)
    airflow.pause("spillway_qod", "spillway_capacity", "spillway_rescale")
    with Line(full, YAML, converge_here=False) as line:
        until(line.running, 180, "spillway_streams starts the application\n" + driver_log(full))
        assert generation(line) == 1
        feed = Feed(line, "airline.in", lambda n: (b"%d" % n, json.dumps({"n": n, "key": f"k{n}"}).encode()), 200, every_s=1.0)
        feed.start()
        until(
            lambda: line.sql("select count(*) from spillway.batch_metric where pipeline = 'airline'")[0][0] > 2,
            120,
            "batches flow",
        )

        before = generation(line)
        killed = line.sql("select now()")[0][0]
        assert line.kill(line.drivers()) == 2, "one JVM, one Python process"
        until(lambda: generation(line) > before, 90, "a new generation is launched")
        launched = line.sql("select launched_at from spillway.application where pipeline = 'airline'")[0][0]
        runs = [(moment(r["start_date"]), r["end_date"]) for r in airflow.runs("spillway_streams") if r["start_date"]]
        assert any(start <= launched and (end is None or moment(end) >= killed) for start, end in runs), "a run has done it"
        begun = [start for start, _ in runs if killed <= start <= launched]
        assert len(begun) <= 2, f"back within two runs, but it took {len(begun)}"  # none: the run of that moment saw it
        until(line.running, 120, "the new generation runs")

        sent = feed.finish()
        until(lambda: line.caught_up("airline.in:pass"), 120, "all is read")
        generations = generation(line)
        known = len(airflow.runs("spillway_streams"))
        until(lambda: len(airflow.runs("spillway_streams")) >= known + 2, 60, "two more runs", every_s=2)
        assert generation(line) == generations, "a run that finds everything as declared does nothing"

        line.stop(90)
        seen = collections.Counter(r["lineage"] for r in line.records("airline.pass.out"))
        source = {f"airline.in-{partition}-{offset}" for partition, offset, *_ in line.consume("airline.in")}
        assert len(source) == sent and seen.keys() == source and set(seen.values()) == {1}
        bad = [r for r in airflow.runs("spillway_streams") if r["state"] not in ("success", "running", "queued")]
        assert not bad, bad
        held = airflow.call("GET", "/dags/spillway_streams/dagRuns/~/taskInstances", params={"limit": 100})["task_instances"]
        longest = max(t["duration"] or 0.0 for t in held)
        assert longest < 60, f"a task held its slot for {longest:.0f} s: it must not live as long as the job"


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_housekeeping_runs_in_airflow_and_cleans_its_own_runs(full: Stack) -> None:
    airflow = Airflow(full)
    run = airflow.trigger("spillway_housekeeping")
    state = until(
        lambda: next(
            (
                r["state"]
                for r in airflow.runs("spillway_housekeeping")
                if r["dag_run_id"] == run and r["state"] in ("success", "failed")
            ),
            None,
        ),
        120,
        "the run ends",
        every_s=2,
    )
    assert state == "success"
    import psycopg2

    with psycopg2.connect(full.env["SPILLWAY_DSN_READ"]) as connection, connection.cursor() as cursor:
        cursor.execute("select text from spillway.event where actor = 'housekeeping' order by id desc limit 2")
        said = " ".join(r[0] for r in cursor.fetchall())
    assert "partitions" in said and "old runs stay" not in said, said


@pytest.mark.integration
def test_every_endpoint_is_behind_the_login(full: Stack) -> None:
    airflow = Airflow(full)
    assert airflow.anonymous("/api/v2/dags") == 401
    assert airflow.anonymous("/api/v2/connections") == 401


@pytest.mark.integration
def test_the_printed_login_is_let_in_and_nobody_else(full: Stack) -> None:
    done = cli(full, "up", "--services", "airflow")
    assert done.returncode == 0, done.stderr
    user, password = full.airflow_login
    assert f"user {user}  password {password}" in done.stdout

    def token(word: str) -> int:
        login = {"username": user, "password": word}
        return requests.post(f"{full.env['SPILLWAY_AIRFLOW']}/auth/token", json=login, timeout=20).status_code

    assert (token(password), token("admin")) == (201, 401)
    for process in full.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # a task that has ended meanwhile
            command, connections = process.cmdline(), process.net_connections(kind="inet")
            for c in connections:
                inside = c.laddr and c.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1", "::1")
                assert c.status != psutil.CONN_LISTEN or inside, (command, c.laddr)
