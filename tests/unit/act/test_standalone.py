"""The REST submission as it goes over the wire; a real master is asked in tests/integration."""

from __future__ import annotations

import http.server
import json
import threading
from types import SimpleNamespace

import pytest
from spillway.act.launch import DriverStatus, Found, LauncherUnreachable, LaunchRefused, LaunchSpec, Sighting, launcher_from
from spillway.act.launch.conf import Cluster, standalone
from spillway.act.launch.standalone import StandaloneLauncher

SPEC = LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="7f3a", node="n1")
MASTER = "spark://127.0.0.1:7077"


@pytest.fixture
def master():
    """Answers as a master and its worker do (shapes recorded from Spark 4.2.0)."""
    state = SimpleNamespace(url=MASTER, accepts=True, drivers=[], logs={}, states={}, posted=[], code=200, worker_page=None)

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else None
            path, _, query = self.path.partition("?")
            content: object
            if path == "/json/":
                worker = {"id": "worker-1", "webuiaddress": state.worker_page or state.here}
                content = {"url": state.url, "workers": [worker], "activedrivers": state.drivers, "status": "ALIVE"}
            elif path == "/log/":
                driver = query.split("driverId=")[1].split("&")[0]
                content = state.logs.get(driver, "")
            elif path == "/v1/submissions/create":
                state.posted.append(sent)
                content = {"success": state.accepts, "submissionId": "driver-1", "message": "no room"}
            else:
                found = state.states.get(path.rsplit("/", 1)[1])
                content = {"success": found is not None} | ({"driverState": found} if found else {})
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(state.code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    state.here = f"http://127.0.0.1:{server.server_port}"
    state.launcher = StandaloneLauncher(Cluster(master=MASTER), rest=state.here, ui=state.here, app="/app/run.py")
    yield state
    server.shutdown()
    server.server_close()


def test_the_submission(master):
    assert master.launcher.submit(SPEC) == "driver-1"
    [body] = master.posted
    assert body == {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4.2.0",
        "appResource": "file:///app/run.py",
        "mainClass": "org.apache.spark.deploy.SparkSubmit",
        "appArgs": [
            "--master",
            MASTER,
            "/app/run.py",
            "--pipeline",
            "taxi",
            "--application",
            "heavy",
            "--generation",
            "4",
        ],
        "environmentVariables": {},
        "sparkProperties": {**standalone(SPEC, Cluster(master=MASTER)), "spark.submit.deployMode": "cluster"},
    }


def test_the_version_is_the_one_that_is_installed():
    import pyspark
    from spillway.act.launch.standalone import SPARK_VERSION

    assert pyspark.__version__ == SPARK_VERSION


def test_a_refusal_is_told_in_the_masters_words(master):
    master.accepts = False
    with pytest.raises(LaunchRefused, match="refused spillway:taxi:heavy:4: no room"):
        master.launcher.submit(SPEC)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("SUBMITTED", DriverStatus.PENDING), ("RUNNING", DriverStatus.RUNNING), ("FINISHED", DriverStatus.FINISHED),
        ("KILLED", DriverStatus.FAILED), ("FAILED", DriverStatus.FAILED), ("ERROR", DriverStatus.FAILED),
        (None, DriverStatus.UNKNOWN),
    ],
)  # fmt: skip
def test_states(master, said, status):
    master.states["driver-1"] = said
    assert master.launcher.status("driver-1") is status


def test_a_strangers_master_gets_nothing(master):
    master.url = "spark://127.0.0.1:7078"
    with pytest.raises(LauncherUnreachable, match=r"is the page of spark://127.0.0.1:7078, not of spark://127.0.0.1:7077"):
        master.launcher.submit(SPEC)
    assert master.posted == []
    assert master.launcher.status("driver-1") is DriverStatus.UNREACHABLE


def test_something_that_is_no_master_is_unreachable(master):
    master.code = 503
    assert master.launcher.status("driver-1") is DriverStatus.UNREACHABLE
    nobody = StandaloneLauncher(Cluster(master=MASTER), rest="http://127.0.0.1:1", ui="http://127.0.0.1:1", app="x")
    assert nobody.status("driver-1") is DriverStatus.UNREACHABLE
    with pytest.raises(LauncherUnreachable):
        nobody.find("7f3a")


def test_drivers_are_found_by_the_launch_command_in_their_logs(master):
    command = 'Launch Command: "java" "-Dspark.app.name={}" "-Dspark.spillway.store={}" "…DriverWrapper"'
    master.logs = {
        "ours": command.format("spillway:taxi:heavy:4", "7f3a"),
        "theirs": command.format("spillway:taxi:heavy:4", "other"),
        "early": "",
    }
    master.drivers = [{"id": name, "worker": "worker-1"} for name in master.logs] + [{"id": "queued", "worker": "None"}]
    sighting = master.launcher.find("7f3a")
    assert sighting.found == (Found(handle="ours", name="spillway:taxi:heavy:4"),)
    assert sighting.unidentified == 2


def test_a_worker_that_does_not_answer_hides_names_only(master):
    master.worker_page = "http://127.0.0.1:1"
    master.drivers = [{"id": "a", "worker": "worker-1"}, {"id": "b", "worker": "worker-1"}]
    assert master.launcher.find("7f3a") == Sighting(unidentified=2)


def test_the_environment_is_checked():
    with pytest.raises(ValueError, match="SPILLWAY_SPARK_REST, SPILLWAY_SPARK_UI not set"):
        launcher_from({"SPILLWAY_SPARK_MASTER": MASTER})
    with pytest.raises(ValueError, match="SPILLWAY_LAUNCHER is 'mesos': use one of standalone"):
        launcher_from({"SPILLWAY_LAUNCHER": "mesos"})
