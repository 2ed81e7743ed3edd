"""`spark-submit` for Kubernetes and YARN: the exact command, and what is made of the cluster's answers."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from spillway.act.launch import DriverStatus, Found, LauncherUnreachable, LaunchRefused, LaunchSpec
from spillway.act.launch.conf import Cluster, kubernetes, yarn
from spillway.act.launch.submit import KUBE_CLIENT, KubernetesLauncher, YarnLauncher, submit_launcher

SPEC = LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="7f3a", node="fast")
CLUSTER = Cluster(master="", jars="/opt/jars")
ARGUMENTS = ["--pipeline", "taxi", "--application", "heavy", "--generation", "4"]


def pairs(properties: dict[str, str]) -> list[str]:
    return [part for key, value in properties.items() for part in ("--conf", f"{key}={value}")]


@pytest.fixture
def spark_connections(monkeypatch):
    from airflow.providers.apache.spark.hooks import spark_submit

    k8s = {"conn_type": "spark", "host": "k8s://https://10.0.0.1", "port": 6443}
    monkeypatch.setenv("AIRFLOW_CONN_K8S", json.dumps(k8s))
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"queue": "streams"}}))
    # The hook looks for the Kubernetes provider even to build a command; building needs nothing of it.
    monkeypatch.setattr(spark_submit, "kube_client", SimpleNamespace(), raising=False)


def test_the_kubernetes_command(spark_connections):
    launcher = KubernetesLauncher(CLUSTER, connection="k8s", app="local:///app/run.py", namespace="streams", pods=Cluster404({}))
    command = launcher.hook(SPEC)._build_spark_submit_command("local:///app/run.py")
    namespace = {"spark.kubernetes.namespace": "streams"}
    assert command == [
        "spark-submit", "--master", "k8s://https://10.0.0.1:6443", *pairs({**kubernetes(SPEC, CLUSTER), **namespace}),
        *pairs(namespace), "--name", "spillway:taxi:heavy:4", "--deploy-mode", "cluster",
        "--conf", "spark.kubernetes.submission.waitAppCompletion=false", "local:///app/run.py", *ARGUMENTS,
    ]  # fmt: skip


def test_the_yarn_command(spark_connections):
    launcher = YarnLauncher(CLUSTER, connection="yarn", app="/app/run.py", manager="http://rm:8088")
    command = launcher.hook(SPEC)._build_spark_submit_command("/app/run.py")
    assert command == [
        "spark-submit", "--master", "yarn", *pairs(yarn(SPEC, CLUSTER)), "--conf", "spark.yarn.submit.waitAppCompletion=false",
        "--name", "spillway:taxi:heavy:4", "--queue", "streams", "--deploy-mode", "cluster", "/app/run.py", *ARGUMENTS,
    ]  # fmt: skip


def test_a_missing_spark_submit_is_said(spark_connections, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    launcher = KubernetesLauncher(CLUSTER, connection="k8s", app="local:///app/run.py", namespace="streams", pods=Cluster404({}))
    with pytest.raises(LaunchRefused, match="spark-submit is not on the PATH"):
        launcher.submit(SPEC)


class Gone(Exception):
    status = 404


class Cluster404:
    """CoreV1Api as far as it is used: pods by name."""

    def __init__(self, phases: dict[str, str]) -> None:
        self.pods = {
            name: SimpleNamespace(
                metadata=SimpleNamespace(name=name, annotations={"spillway-name": "spillway:taxi:heavy:4"}),
                status=SimpleNamespace(phase=phase),
            )
            for name, phase in phases.items()
        }
        self.selectors: list[str] = []

    def read_namespaced_pod(self, name, namespace):
        if name not in self.pods:
            raise Gone
        return self.pods[name]

    def delete_namespaced_pod(self, name, namespace):
        if self.pods.pop(name, None) is None:
            raise Gone

    def list_namespaced_pod(self, namespace, *, label_selector):
        self.selectors.append(label_selector)
        return SimpleNamespace(items=list(self.pods.values()))


def test_kubernetes_phases_kill_and_find():
    phases = {"a": "Pending", "b": "Running", "c": "Succeeded", "d": "Failed"}
    pods = Cluster404(phases)
    launcher = KubernetesLauncher(CLUSTER, connection="k8s", app="x", namespace="streams", pods=pods)
    assert [launcher.status(name) for name in (*phases, "nobody")] == [
        DriverStatus.PENDING, DriverStatus.RUNNING, DriverStatus.FINISHED, DriverStatus.FAILED, DriverStatus.UNKNOWN,
    ]  # fmt: skip
    assert [f.handle for f in launcher.find("7f3a").found] == ["a", "b"]
    assert pods.selectors == ["spillway-store=7f3a,spark-role=driver"]
    launcher.kill("b")
    launcher.kill("b")
    assert launcher.status("b") is DriverStatus.UNKNOWN


def test_a_kubernetes_that_does_not_answer_is_unreachable():
    class Away:
        def __getattr__(self, _):
            raise ConnectionError("no route")

    launcher = KubernetesLauncher(CLUSTER, connection="k8s", app="x", namespace="streams", pods=Away())
    assert launcher.status("a") is DriverStatus.UNREACHABLE
    with pytest.raises(LauncherUnreachable):
        launcher.find("7f3a")


@pytest.fixture
def resource_manager():
    apps = {
        "application_1_1": {
            "id": "application_1_1",
            "name": "spillway:taxi:heavy:4",
            "state": "RUNNING",
            "finalStatus": "UNDEFINED",
        }
    }
    seen: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            seen.append((self.command, self.path))
            name = path.removeprefix("/ws/v1/cluster/apps").strip("/").split("/")[0]
            if self.command == "PUT":
                self.rfile.read(int(self.headers["Content-Length"]))
                apps[name]["state"] = apps[name]["finalStatus"] = "KILLED"
            body = {"app": apps.get(name)} if name else {"apps": {"app": list(apps.values())} if query else None}
            content = json.dumps(body).encode()
            self.send_response(404 if name and name not in apps else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = answer

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", apps=apps, seen=seen)
    server.shutdown()
    server.server_close()


def test_yarn_states_kill_and_find(resource_manager):
    launcher = YarnLauncher(CLUSTER, connection="yarn", app="x", manager=resource_manager.url)
    assert launcher.find("7f3a").found == (Found(handle="application_1_1", name="spillway:taxi:heavy:4"),)
    assert "applicationTags=spillway-7f3a" in resource_manager.seen[-1][1]
    assert launcher.status("application_1_1") is DriverStatus.RUNNING
    assert launcher.status("application_9_9") is DriverStatus.UNKNOWN
    launcher.kill("application_1_1")
    assert launcher.status("application_1_1") is DriverStatus.FAILED
    resource_manager.apps["application_1_1"] |= {"state": "FINISHED", "finalStatus": "SUCCEEDED"}
    assert launcher.status("application_1_1") is DriverStatus.FINISHED
    resource_manager.apps["application_1_1"]["finalStatus"] = "FAILED"
    assert launcher.status("application_1_1") is DriverStatus.FAILED


def test_a_yarn_that_does_not_answer_is_unreachable():
    launcher = YarnLauncher(CLUSTER, connection="yarn", app="x", manager="http://127.0.0.1:1")
    assert launcher.status("application_1_1") is DriverStatus.UNREACHABLE
    with pytest.raises(LauncherUnreachable):
        launcher.kill("application_1_1")


def test_the_environment_chooses(monkeypatch):
    with pytest.raises(ValueError, match="SPILLWAY_YARN_RM not set"):
        submit_launcher("yarn", {})
    assert replace(SPEC, generation=5).name.endswith(":5")
    monkeypatch.setitem(sys.modules, KUBE_CLIENT, SimpleNamespace(get_kube_client=lambda: Cluster404({"a": "Running"})))
    launcher = submit_launcher("kubernetes", {})
    assert (launcher.name, launcher.status("a")) == ("kubernetes", DriverStatus.RUNNING)


def test_a_kubernetes_client_that_is_not_installed_is_said_when_the_launcher_is_made(monkeypatch):
    monkeypatch.setitem(sys.modules, KUBE_CLIENT, None)  # as if it were not there
    with pytest.raises(ValueError, match=r"is not installed: install apache-airflow-providers-cncf-kubernetes where Airflow's"):
        submit_launcher("kubernetes", {})


def test_a_kubernetes_that_cannot_be_connected_to_is_unreachable(monkeypatch):
    def refuse():
        raise OSError("no configuration")

    monkeypatch.setitem(sys.modules, KUBE_CLIENT, SimpleNamespace(get_kube_client=refuse))
    launcher = submit_launcher("kubernetes", {})
    assert launcher.status("a") is DriverStatus.UNREACHABLE
    with pytest.raises(LauncherUnreachable, match="no configuration"):
        launcher.find("7f3a")
