"""Converging for real: a standalone cluster, Postgres, drivers that die."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import requests
from spillway.act.launch import DriverStatus, LauncherUnreachable, LaunchSpec, launcher_from
from spillway.act.launch.conf import Cluster
from spillway.act.launch.local import LocalLauncher
from spillway.act.launch.standalone import StandaloneLauncher
from spillway.act.streams import StreamsFailed, converge
from spillway.decide.streams import Kind, Reason
from spillway.model.topology import Application, Operator, Parallelism, Pipeline
from spillway.policy import Policy

pytestmark = [pytest.mark.integration, pytest.mark.spark]
DRIVER = str(Path(__file__).resolve().parents[1] / "support" / "beating_driver.py")
POLICY = Policy(healthy_s=1.0)


def until(what: Callable[[], Any], message: str, timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while True:
        if found := what():
            return found
        assert time.monotonic() < deadline, message
        time.sleep(0.3)


class World:
    """One declared pipeline `name` with one application `main` on n2, and passes of converge over it."""

    def __init__(self, stack: Any) -> None:
        self.env = {**stack.env, "SPILLWAY_APP": DRIVER, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.launcher = StandaloneLauncher.from_environment(self.env)
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.conn = psycopg2.connect(self.env["SPILLWAY_DSN_CONTROL"])
        self.other = psycopg2.connect(self.env["SPILLWAY_DSN_CONTROL"])
        self.other.autocommit = True
        pipeline = Pipeline(
            name=self.name,
            operators=(Operator(name="a", function="x:y", parallelism=Parallelism(max=3)),),
            edges=(),
            applications=(Application(name="main", operators=("a",), node="n2", slots=1),),
        )
        self.sql(
            "insert into spillway.pipeline_version values (%s, 1, %s, '', 'd', now(), 'test')", self.name, pipeline.to_json()
        )
        self.sql("insert into spillway.pipeline values (%s, 1, 'running', now(), 'test')", self.name)
        self.sql(
            "insert into spillway.application (pipeline, application, version, desired, node, executors)"
            " values (%s, 'main', 1, 'running', 'n2', 1)",
            self.name,
        )

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.other.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else []

    def converge(self, launcher: Any = None, policy: Policy = POLICY) -> list[Any]:
        """The actions of this pipeline; other ones in the store are none of this test's business."""
        return [a for a in converge(self.conn, launcher or self.launcher, policy) if a.pipeline == self.name]

    def row(self) -> tuple[int, str | None, int]:
        [found] = self.sql("select generation, handle, attempts from spillway.application where pipeline = %s", self.name)
        return found  # type: ignore[return-value]

    def beats(self, generation: int) -> tuple[str, int] | None:
        found = self.sql(
            "select state, pid from spillway.heartbeat where pipeline = %s and generation = %s", self.name, generation
        )
        return found[0] if found else None  # type: ignore[return-value]

    def running(self, generation: int) -> int:
        """The process id of the driver's JVM, once it beats."""
        until(lambda: (self.beats(generation) or [""])[0] == "running", f"generation {generation} gives no heartbeat")
        return self.beats(generation)[1]  # type: ignore[index]

    def events(self) -> list[str]:
        return [kind for (kind,) in self.sql("select kind from spillway.event where pipeline = %s order by id", self.name)]

    def master(self) -> dict[str, Any]:
        return requests.get(self.env["SPILLWAY_SPARK_UI"] + "/json/", timeout=5).json()  # type: ignore[no-any-return]

    def executors(self) -> int:
        apps = [a for a in self.master()["activeapps"] if a["name"].startswith(f"spillway:{self.name}:")]
        return sum(a["cores"] for a in apps)  # one slot each

    def close(self) -> None:
        self.sql("update spillway.application set desired = 'stopped' where pipeline = %s", self.name)
        [(store,)] = self.sql(
            "select substr(md5(c.system_identifier::text || '/' || d.oid::text), 1, 12) from pg_control_system() c, pg_database d"
            " where d.datname = current_database()"
        )
        for found in self.launcher.find(store).found:
            if found.name.startswith(f"spillway:{self.name}:"):
                self.launcher.kill(found.handle)
        self.sql("delete from spillway.pipeline where pipeline = %s", self.name)
        self.conn.close()
        self.other.close()


@pytest.fixture
def world(stack: Any) -> Iterator[World]:
    found = World(stack)
    yield found
    found.close()


def said(actions: list[Any]) -> list[tuple[Kind, Reason]]:
    return [(a.kind, a.reason) for a in actions]


def test_start_kill_restart_and_stop_with_room_for_more_executors(world):
    assert said(world.converge()) == [(Kind.START, Reason.NEVER_LAUNCHED)]
    assert said(world.converge()) == [(Kind.WAIT, Reason.STARTING)]
    jvm = world.running(1)
    first = world.row()
    assert first[0] == 1
    assert world.launcher.status(first[1]) is DriverStatus.RUNNING
    until(lambda: world.converge() and world.row()[2] == 0, "never healthy and settled")
    assert said(world.converge()) == [(Kind.NOTHING, Reason.HEALTHY)]

    [driver] = [d for d in world.master()["activedrivers"] if d["id"] == first[1]]
    tagged = {w["id"] for w in world.master()["workers"] if "n2" in w["resources"]}
    assert {driver["worker"]} == tagged
    assert until(world.executors, "no executor") == 1, "only what was asked for, though there is room for three"

    os.kill(jvm, signal.SIGKILL)
    until(lambda: world.launcher.status(first[1]) is DriverStatus.FAILED, "the master does not see the driver die")
    assert said(world.converge()) == [(Kind.RESTART, Reason.DRIVER_DIED)]
    assert world.beats(1)[0] in ("failed", "fenced")
    world.running(2)
    assert world.row()[0] == 2
    assert world.row()[1] != first[1]

    until(lambda: world.executors() == 1, "one executor again")
    # The room that the launch leaves, not the product: the driver of this test asks for executors, Spillway's own does not.
    world.sql("update spillway.application set executors = 3 where pipeline = %s", world.name)
    until(lambda: world.executors() == 3, "the launch left no room for three executors")

    world.sql("update spillway.application set desired = 'stopped' where pipeline = %s", world.name)
    world.sql("update spillway.pipeline set desired = 'stopped', changed_at = now() where pipeline = %s", world.name)
    until(lambda: world.launcher.status(world.row()[1]) is DriverStatus.FINISHED, "it does not stop by itself")
    assert said(world.converge()) == [(Kind.NOTHING, Reason.STOPPED)]
    assert [e for e in world.events() if e != "healthy"] == ["started", "restarted"]


class Crashing:
    """The launcher, with the process that uses it dying at one moment."""

    def __init__(self, launcher: StandaloneLauncher, *, before_submit: bool) -> None:
        self.name, self._launcher, self._before = launcher.name, launcher, before_submit

    def submit(self, spec: LaunchSpec) -> str:
        if not self._before:
            self._launcher.submit(spec)
        raise KeyboardInterrupt("the task was killed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)


def test_a_crash_between_submission_and_record_is_healed_by_adoption(world):
    with pytest.raises(KeyboardInterrupt):
        world.converge(Crashing(world.launcher, before_submit=False))
    assert world.row()[:2] == (1, None)
    until(lambda: said(world.converge()) == [(Kind.ADOPT, Reason.SUBMISSION_FOUND)], "the submission is not found")
    generation, handle, _ = world.row()
    assert (generation, world.launcher.status(handle)) == (1, DriverStatus.RUNNING)
    world.running(1)
    assert [k for k, _ in said(world.converge())] in ([Kind.NOTHING], [Kind.SETTLE])
    assert len([d for d in world.master()["activedrivers"] if d["id"] == handle]) == 1

    world.sql("delete from spillway.pipeline where pipeline = %s", world.name)
    actions = world.converge()
    assert said(actions) == [(Kind.KILL, Reason.UNDECLARED)]
    assert world.launcher.status(handle).dead


def test_a_crash_before_the_submission_is_healed_by_another_launch(world):
    with pytest.raises(KeyboardInterrupt):
        world.converge(Crashing(world.launcher, before_submit=True))
    assert world.row()[:2] == (1, None)
    quick = replace(POLICY, backoff_first_s=0.0)
    assert said(world.converge(policy=quick)) == [(Kind.START, Reason.SUBMISSION_LOST)]
    assert world.row()[0] == 2


def test_while_the_master_is_away_nothing_is_launched(world):
    nowhere = {**world.env, "SPILLWAY_SPARK_UI": "http://127.0.0.1:1", "SPILLWAY_SPARK_REST": "http://127.0.0.1:1"}
    for _ in range(2):
        assert said(world.converge(launcher_from(nowhere))) == [(Kind.WAIT, Reason.LAUNCHER_UNREACHABLE)]
    assert world.row()[0] == 0
    assert world.events() == ["launcher_unreachable"], "told once"


def test_a_refused_launch_is_recorded_and_raised(world):
    class Away(Crashing):
        def submit(self, spec: LaunchSpec) -> str:
            raise LauncherUnreachable("the master went away.")

    with pytest.raises(StreamsFailed, match="the master went away"):
        world.converge(Away(world.launcher, before_submit=True))
    assert world.events() == ["failed"]
    assert world.row() == (1, None, 1)


def test_two_passes_at_once_do_not_launch_twice(world):
    with world.other.cursor() as cursor:
        cursor.execute("select pg_advisory_lock(hashtext('spillway.streams'))")
        assert world.converge() == []
        cursor.execute("select pg_advisory_unlock(hashtext('spillway.streams'))")


# ---- the contract every launcher keeps ---------------------------------------------------------------------------------


@pytest.fixture(params=["standalone", "local"])
def launcher(request, stack, tmp_path, monkeypatch):
    env = {**stack.env, "SPILLWAY_APP": DRIVER, "SPARK_LOCAL_IP": "127.0.0.1"}
    if request.param == "standalone":
        return StandaloneLauncher.from_environment(env)
    monkeypatch.setenv("SPILLWAY_DSN_JOB", env["SPILLWAY_DSN_JOB"])
    cluster = Cluster(master="local[1]", jars=env["SPILLWAY_JARS"], local_ip="127.0.0.1")
    return LocalLauncher(cluster, folder=tmp_path, app=DRIVER)


def test_every_launcher_submits_finds_kills_and_tells(launcher, world):
    store = uuid.uuid4().hex[:12]
    spec = LaunchSpec(pipeline=world.name, application="main", generation=0, store=store, slots=1)
    assert launcher.find(store).found == ()
    handle = launcher.submit(spec)
    until(lambda: launcher.status(handle) is DriverStatus.RUNNING, "it never runs")
    found = until(lambda: launcher.find(store).found, "it is not found by its name")
    assert [(f.handle, f.name) for f in found] == [(handle, spec.name)]
    assert launcher.find("another").found == ()
    world.running(0)
    launcher.kill(handle)
    until(lambda: launcher.status(handle) is DriverStatus.FAILED, "it does not die")
    assert launcher.find(store).found == ()
    launcher.kill(handle)  # once more is no error
