"""What a run keeps on disk, and who may read it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import subprocess
import sys
import time
import uuid
from collections import namedtuple
from pathlib import Path

import psutil
import pytest
from spillway.embedded import EmbeddedError, Stack, services
from spillway.embedded.config import Layout, stack
from spillway.embedded.services import kafka, postgres
from spillway.embedded.services.base import Context
from spillway.embedded.state import load_secrets, read_state, write_atomic, write_state


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "home")
    layout.make()
    return layout


@pytest.fixture
def context(layout: Layout, tmp_path: Path) -> Context:
    secrets = load_secrets(layout)
    jars = {"connector": tmp_path / "c", "broker": tmp_path / "b"}
    return Context(layout=layout, ports=stack()["ports"], secrets=secrets, java_home=Path("/j"), jars=jars)


def test_a_cluster_id_is_never_taken_for_an_option(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """One random id in 64 would begin with `-`, and Kafka's tools refuse it."""
    kafka.folder(context).mkdir(parents=True)
    monkeypatch.setattr(kafka.uuid, "uuid4", lambda: uuid.UUID(int=0xF8 << 120))
    first = kafka.cluster_id(context)
    assert len(base64.urlsafe_b64decode(first + "==")) == 16 and not first.startswith("-")
    monkeypatch.undo()
    assert kafka.cluster_id(context) == first


def test_secrets_are_made_once_and_only_ours_to_read(layout: Layout) -> None:
    first = load_secrets(layout)
    assert load_secrets(layout) == first
    assert stat.S_IMODE(layout.secrets.stat().st_mode) == 0o600
    assert len(set(first.values())) == len(first)


def test_a_state_that_was_cut_off_reads_as_none(layout: Layout) -> None:
    write_state(layout, {"phase": "up"})
    assert read_state(layout) == {"phase": "up"}
    layout.state.write_text('{"phase": "u')
    assert read_state(layout) == {}


def test_a_failed_write_leaves_the_old_text_and_no_rubbish(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomic(layout.state, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(layout.state, "new")
    assert layout.state.read_text() == "old"
    assert [p.name for p in layout.run.iterdir() if p.is_file()] == ["state.json"]


def test_a_worker_sees_only_the_password_of_its_role(context: Context) -> None:
    env = services.SERVICES["worker-n1"].launch(context).env
    assert {k for k in env if k.startswith("SPILLWAY_DSN_")} == {"SPILLWAY_DSN_JOB"}
    others = {v for k, v in context.secrets.items() if k != "spillway_job"}
    assert not [k for k, v in env.items() if any(secret in v for secret in others)]
    assert env["SPILLWAY_NODE"] == "n1"


def test_no_command_line_carries_a_secret(context: Context) -> None:
    for service in services.SERVICES.values():
        if service.name != "postgres":
            command = " ".join(service.launch(context).command)
            assert not [k for k, v in context.secrets.items() if v in command], service.name


def test_airflow_logs_in_with_a_password_of_this_run(context: Context) -> None:
    env = services.SERVICES["airflow-api"].launch(context).env
    assert env["AIRFLOW_CONN_SPILLWAY_CONTROL"].startswith("postgres://spillway_control:")
    assert json.loads(env["AIRFLOW_CONN_SPILLWAY_SPARK"])["port"] == stack()["ports"]["spark_master"]
    assert "SPILLWAY_DSN_OWNER" not in env


def test_a_shell_variable_of_the_person_does_not_reach_a_service(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_MASTER_OPTS", "-Dx=y")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = services.SERVICES["kafka"].launch(context).env
    assert not {"SPARK_MASTER_OPTS", "PYTHONDONTWRITEBYTECODE"} & set(env)


def test_a_service_brings_what_it_needs() -> None:
    assert services.expand(["worker-n1"]) == ("spark-master", "worker-n1")
    assert services.expand(["airflow"])[0] == "postgres"


def test_an_unknown_service_is_named_with_what_there_is() -> None:
    with pytest.raises(
        EmbeddedError, match="There is no service called kafak: the services and groups are spark, airflow, postgres"
    ):
        services.expand(["kafak"])


def test_a_full_disk_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 3 * 2**20))
    stack = Stack(tmp_path / "home")
    with pytest.raises(EmbeddedError, match="has 3 MB free and the services need 500"):
        stack.up()
    assert stack.processes() == []


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match=r"cannot be used \(.*\): set SPILLWAY_HOME to a folder you may write\."):
        Stack(tmp_path / "file" / "home").up()


def test_down_before_any_up_does_nothing(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home")
    assert stack.down() == 0
    assert not stack.alive()
    with pytest.raises(EmbeddedError, match="start the services first"):
        _ = stack.env


def test_the_pid_file_of_a_dead_postgres_nobody_reaped_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "postmaster.pid"
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as dead:
        while psutil.Process(dead.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        lock.write_text(f"{dead.pid}\n{tmp_path}\n")
        postgres.forget_the_dead(tmp_path)
    assert not lock.exists()


@pytest.mark.parametrize("text", [f"{os.getpid()}\n/data\n", "", "rubbish\n"], ids=["living", "empty", "rubbish"])
def test_the_pid_file_of_a_living_process_is_left_to_postgres(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "postmaster.pid"
    lock.write_text(text)
    postgres.forget_the_dead(tmp_path)
    assert lock.read_text() == text
