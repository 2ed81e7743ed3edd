"""The embedded services for real: what fails says so in one sentence, what ends leaves nothing, what is killed comes back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest
from spillway.act.launch import LaunchSpec
from spillway.act.launch.conf import cluster_from, standalone
from spillway.embedded import EmbeddedError, Stack
from spillway.embedded.config import HOST, REPO
from spillway.embedded.processes import Identity

from tests.support.embedded import cli, nothing_runs

pytestmark = pytest.mark.integration

Home = Callable[..., Stack]


@pytest.fixture
def home(run_root: Path, unique: Callable[[str], str]) -> Iterator[Home]:
    """Makes stacks in folders of their own and removes them."""
    made: list[Stack] = []

    def make(*services: str) -> Stack:
        made.append(Stack(run_root / unique("own"), services=services))
        return made[-1]

    yield make
    for stack in made:
        stack.clean()


def query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(dsn, connect_timeout=5)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def command_line(process: psutil.Process) -> str:
    """Empty for one that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_until(what: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


# ---- what is wrong is said, and nothing stays ----


def test_a_foreign_process_on_a_demanded_port(home: Home) -> None:
    stack = home("kafka")
    with socket.socket() as foreign:
        foreign.bind((HOST, 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        done = cli(stack, "up", "--services", "kafka", SPILLWAY_PORT_KAFKA=str(port))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"Port {port} for kafka (SPILLWAY_PORT_KAFKA) is in use by process {os.getpid()}"
    )
    assert nothing_runs(stack)


def test_a_foreign_process_that_takes_the_port_after_it_was_chosen(home: Home) -> None:
    """The service cannot listen, and nobody takes the stranger for it."""
    stack = home("postgres")
    stack.up()
    port = stack.state()["ports"]["postgres"]
    stack.stop("postgres")
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind((HOST, port))
        foreign.listen()
        starter = threading.Thread(target=stack.start, args=("postgres",))
        starter.start()
        wait_until(lambda: "postgres ended with code 1 while starting" in stack.state()["services"]["postgres"]["reason"])
        assert stack.state()["services"]["postgres"]["health"] != "healthy"
    starter.join(120)
    assert stack.state()["services"]["postgres"]["health"] == "healthy"
    assert stack.state()["services"]["postgres"]["restarts"] >= 1


def test_postgres_data_that_are_broken(home: Home) -> None:
    stack = home("postgres")
    stack.up()
    stack.down()
    control = next(stack.layout.data.glob("postgres/global/pg_control"))
    control.write_bytes(b"")
    done = cli(stack, "up", "--services", "postgres")
    assert done.returncode == 1
    assert re.fullmatch(r"postgres .* while starting \(.*pg_control.*\): see .*/postgres\.log\.", done.stderr.splitlines()[-1])
    assert nothing_runs(stack)
    (stack.layout.data / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match="was made by Postgres 12, this is 18: run `make clean` to start afresh"):
        stack.up()
    assert nothing_runs(stack)


def test_kafka_data_that_are_broken(home: Home) -> None:
    stack = home("kafka")
    stack.layout.make()
    log = stack.layout.data / "kafka" / "log"
    log.mkdir(parents=True)
    (log / "meta.properties").write_text("version=1\ncluster.id=somebody-elses\nnode.id=7\n")
    with pytest.raises(EmbeddedError, match=r"kafka ended with code 1 while starting .*: see .*kafka\.log\."):
        stack.up()
    assert nothing_runs(stack)


@pytest.mark.parametrize("service", ["kafka", "spark-master"])
def test_a_java_that_breaks(home: Home, service: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\ncase "$1" in -version) echo \'openjdk version "17"\' >&2;; '
        "--list-modules) echo jdk.incubator.vector;; *) echo 'Error: broken java' >&2; exit 3;; esac\n"
    )
    java.chmod(0o755)
    stack = home(service)
    done = cli(stack, "up", "--services", service, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith(f"see {stack.layout.log(service)}.")
    assert "code" in last
    assert nothing_runs(stack)


def test_a_java_too_old(home: Home, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    stack = home("kafka")
    done = cli(stack, "up", "--services", "kafka", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.strip() == f"JAVA_HOME is {tmp_path}, a Java 11: Spark needs 17 or newer; change or unset JAVA_HOME."
    assert nothing_runs(stack)


def test_airflow_that_cannot_start(home: Home) -> None:
    stack = home("airflow")
    stack.layout.make()
    (stack.layout.airflow / "airflow.cfg").write_text("this is not a configuration\n")
    with pytest.raises(EmbeddedError, match=r"Airflow cannot make its tables .*: see .*airflow-migrate\.log\."):
        stack.up()
    assert nothing_runs(stack)


def test_an_interrupt_while_starting(home: Home) -> None:
    stack = home("kafka")
    command = [sys.executable, "-m", "spillway.embedded", "--home", str(stack.layout.home), "up", "--services", "kafka"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPO) as process:
        assert process.stdout is not None
        while "kafka starting" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert nothing_runs(stack)


# ---- what is killed ----


def test_two_runs_side_by_side_and_data_outlive_kill_9_of_the_supervisor(home: Home) -> None:
    one, other = home("postgres", "kafka"), home("postgres")
    one.up()
    other.up()
    assert not set(one.state()["ports"].values()) & set(other.state()["ports"].values())
    query(one.env["SPILLWAY_DSN_CONTROL"], "insert into spillway.event (actor, kind, text) values ('test', 'note', 'kept')")
    assert query(other.env["SPILLWAY_DSN_READ"], "select text from spillway.event") == []

    before = [Identity.of(pid) for pid in one.pids().values()]
    assert len(before) == 2
    psutil.Process(one.state()["supervisor"]["pid"]).kill()
    wait_until(lambda: not one.alive())
    assert all(i.process() for i in before)

    one.up()
    assert not any(i.process() for i in before)
    assert query(one.env["SPILLWAY_DSN_READ"], "select text from spillway.event") == [("kept",)]
    assert other.pids().keys() == {"postgres"}
    one.down()
    assert nothing_runs(one)
    assert query(other.env["SPILLWAY_DSN_READ"], "select 1") == [(1,)]


def test_a_killed_service_is_back_and_a_stopped_one_stays_away(home: Home) -> None:
    stack = home("postgres")
    stack.up()
    first = stack.kill("postgres")
    wait_until(lambda: stack.pids().get("postgres") not in (None, first))
    stack.wait_healthy("postgres")
    assert query(stack.env["SPILLWAY_DSN_READ"], "select 1") == [(1,)]
    row = stack.state()["services"]["postgres"]
    assert row["restarts"] == 1

    stack.stop("postgres")
    time.sleep(2)
    assert stack.pids() == {}
    assert cli(stack, "status").returncode == 0
    stack.start("postgres")
    assert query(stack.env["SPILLWAY_DSN_READ"], "select 1") == [(1,)]
    stack.up()
    assert stack.state()["services"]["postgres"]["restarts"] == 1


def quick(stack: Stack) -> dict[str, str]:
    """Settings with which a driver and its executors start from the prepared classes."""
    cluster = cluster_from(stack.env, stack.env["SPILLWAY_SPARK_MASTER"])
    spec = LaunchSpec(pipeline="none", application="endless", generation=1, store="none")
    return {k: v for k, v in standalone(spec, cluster).items() if k.endswith(("extraJavaOptions", "extraClassPath"))}


def test_nothing_of_a_spark_application_is_left(home: Home, tmp_path: Path) -> None:
    """A driver, its executor and its Python worker run; the supervisor and a worker are killed; `down` finds them all."""
    stack = home("spark")
    stack.up()
    program = tmp_path / "endless.py"
    program.write_text(
        "import time\nfrom pyspark.sql import SparkSession\n"
        "s = SparkSession.builder.getOrCreate()\n"
        "s.sparkContext.parallelize([1], 1).map(lambda x: time.sleep(600)).collect()\n"
    )
    master = stack.env["SPILLWAY_SPARK_MASTER"]
    properties = {
        "spark.master": master,
        "spark.app.name": "endless",
        "spark.submit.deployMode": "cluster",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.cores.max": "1",
        "spark.executor.resource.n2.amount": "1",
        "spark.ui.enabled": "false",
        **quick(stack),
    }
    body = {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4.2.0",
        "appResource": f"file:{program}",
        "mainClass": "org.apache.spark.deploy.SparkSubmit",
        "appArgs": [
            "--master",
            master,
            "--conf",
            "spark.executor.resource.n2.amount=1",
            "--conf",
            "spark.cores.max=1",
            str(program),
        ],
        "environmentVariables": {},
        "sparkProperties": properties,
    }
    request = urllib.request.Request(
        f"{stack.env['SPILLWAY_SPARK_REST']}/v1/submissions/create",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["success"]

    def commands() -> str:
        return " ".join(map(command_line, stack.processes()))

    wait_until(lambda: "CoarseGrainedExecutorBackend" in commands() and "pyspark.daemon" in commands(), 90)
    executor = next(p for p in stack.processes() if "CoarseGrainedExecutorBackend" in command_line(p))
    assert executor.environ()["SPILLWAY_NODE"] == "n2"
    assert executor.cpu_affinity() == psutil.Process(stack.pids()["worker-n2"]).cpu_affinity()
    before = stack.processes()
    assert len(before) > 3
    psutil.Process(stack.state()["supervisor"]["pid"]).kill()
    stack.kill("worker-n1")
    stack.down()
    assert [
        command_line(process) for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ] == []
    assert nothing_runs(stack)
    assert str(program) not in " ".join(map(command_line, psutil.process_iter()))
