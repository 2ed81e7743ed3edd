from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from spillway.observe.processes import EXECUTOR, Processes, Role, node_of, role_of

# As they are on a worker of Spark 4.2.0, shortened in the middle.
EXECUTOR_LINE = [
    "/usr/lib/jvm/bin/java", "-cp", "/jars/*", "-Xmx512M", "-Dspark.driver.port=40135", EXECUTOR, "--driver-url",
    "spark://CoarseGrainedScheduler@127.0.0.1:40135", "--executor-id", "1", "--hostname", "127.0.0.1", "--cores", "2", "--app-id",
    "app-20261116044355-0000", "--worker-url", "spark://Worker@127.0.0.1:27101", "--resourceProfileId", "0",
]  # fmt: skip
DRIVER_LINE = [
    "/usr/lib/jvm/bin/java", "-cp", "/jars/*", "-Xmx512M", "-Dspark.master=spark://127.0.0.1:7077",
    "-Dspark.app.name=spillway:taxi:heavy:12", "org.apache.spark.deploy.worker.DriverWrapper", "spark://Worker@127.0.0.1:27101",
    "driver-1/run.py", "org.apache.spark.deploy.SparkSubmit", "-c", "spark.app.name=spillway:taxi:heavy:12", "run.py",
]  # fmt: skip


def test_an_executor_tells_its_application_and_number():
    assert role_of(EXECUTOR_LINE) == Role(executor="1", spark_app="app-20261116044355-0000")


def test_a_driver_tells_its_name():
    assert role_of(DRIVER_LINE) == Role(executor="driver", name="spillway:taxi:heavy:12")


def test_a_driver_that_spark_submit_started_tells_its_name():
    line = ["java", "org.apache.spark.deploy.SparkSubmit", "--conf", "spark.app.name=spillway:taxi:heavy:1", "run.py"]
    assert role_of(line) == Role(executor="driver", name="spillway:taxi:heavy:1")


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["java", EXECUTOR],
        ["java", EXECUTOR, "--executor-id"],
        ["java", "-Dspark.app.name=someone-elses", "org.apache.spark.deploy.SparkSubmit"],
        ["java", "org.apache.spark.deploy.worker.Worker", "spark://m:1"],
        ["grep", "spark.app.name=spillway:taxi:heavy:1"],
    ],
)
def test_the_rest_is_nothing_to_us(line):
    assert role_of(line) is None


def test_the_word_of_the_worker_counts_more_than_the_cores():
    two = {"n1": frozenset({0}), "n2": frozenset({1})}
    assert node_of({"SPILLWAY_NODE": "n2"}, [0], two) == "n2"
    assert node_of({"SPILLWAY_NODE": "another-machine"}, [0], two) == "n1"
    assert node_of({}, [0, 1], {"all": frozenset({0, 1, 2})}) == "all"
    assert node_of({}, [0, 1], two) is None


BUSY = "import os, sys, time\nt = time.process_time()\nwhile time.process_time() - t < float(sys.argv[1]): pass\n"
PARENT = BUSY + "import subprocess\nsubprocess.Popen([sys.executable, '-c', sys.argv[2], '0.3'])\ntime.sleep(60)\n"


def test_cpu_of_an_executor_and_of_the_python_workers_it_starts():
    me = os.getpid()
    meter = Processes({f"node-{me}": frozenset(range(os.cpu_count() or 1)), "other": frozenset()}, time.monotonic())

    def measure():
        meter.rescan()
        return meter.measure(time.monotonic())

    environment = {**os.environ, "SPILLWAY_NODE": f"node-{me}"}
    measure()
    command = [
        sys.executable,
        "-c",
        PARENT,
        "0.3",
        BUSY + "time.sleep(60)",
        EXECUTOR,
        "--executor-id",
        "7",
        "--app-id",
        f"app-{me}",
    ]
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        role = Role(executor="7", spark_app=f"app-{me}")
        used, deadline = 0.0, time.monotonic() + 30
        while used < 0.6 and time.monotonic() < deadline:
            time.sleep(0.2)
            used += sum(u.cpu_pct / 100 * u.window_s for u in measure() if u.role == role)
        assert 0.6 <= used < 1.5
        time.sleep(0.5)
        [idle] = [u for u in measure() if u.role == role]
        assert idle.cpu_pct < 20
        assert idle.rss_bytes > 10_000_000
        assert idle.node == f"node-{me}"
    finally:
        os.killpg(child.pid, 9)
        child.wait()
    assert [u for u in measure() if u.role == role] == []
