"""Kubernetes and YARN: `spark-submit` in cluster mode, through the Airflow Spark provider's hook and its connection.

The hook builds the command and hands the application over; it is told not to stay for its end. The handle is a name chosen here
(Kubernetes: the driver pod) or the application id that YARN gives.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import requests

from spillway.act.launch import DriverStatus, Found, LauncherUnreachable, LaunchRefused, LaunchSpec, Sighting, program
from spillway.act.launch.conf import Cluster, cluster_from, kubernetes, pod_name, yarn

CONNECTION = "spillway_spark"
KUBE_CLIENT = "airflow.providers.cncf.kubernetes.kube_client"
TIMEOUT_S = (5.0, 30.0)
PHASES = {
    "Pending": DriverStatus.PENDING,
    "Running": DriverStatus.RUNNING,
    "Succeeded": DriverStatus.FINISHED,
    "Failed": DriverStatus.FAILED,
}
YARN_STATES = {
    **dict.fromkeys(("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"), DriverStatus.PENDING),
    "RUNNING": DriverStatus.RUNNING,
    "FINISHED": DriverStatus.FINISHED,
    "FAILED": DriverStatus.FAILED,
    "KILLED": DriverStatus.FAILED,
}
YARN_LIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


class Pods(Protocol):
    """The three calls of the Kubernetes client's CoreV1Api that are used."""

    def read_namespaced_pod(self, name: str, namespace: str) -> Any: ...
    def delete_namespaced_pod(self, name: str, namespace: str) -> Any: ...
    def list_namespaced_pod(self, namespace: str, *, label_selector: str) -> Any: ...


def submit_launcher(kind: str, environment: Mapping[str, str]) -> KubernetesLauncher | YarnLauncher:
    connection = environment.get("SPILLWAY_SPARK_CONNECTION", CONNECTION)
    app = environment.get("SPILLWAY_APP") or (f"local://{program()}" if kind == "kubernetes" else program())
    cluster = cluster_from(environment, master=kind)
    if kind == "yarn":
        manager = environment.get("SPILLWAY_YARN_RM", "")
        if not manager:
            raise ValueError(
                "SPILLWAY_YARN_RM not set: the yarn launcher needs the address of the resource manager's web service."
            )
        return YarnLauncher(cluster, connection=connection, app=app, manager=manager)
    return KubernetesLauncher(
        cluster, connection=connection, app=app, namespace=environment.get("SPILLWAY_K8S_NAMESPACE", "default")
    )


def _submit(hook: Any, app: str, spec: LaunchSpec) -> None:
    try:
        hook.submit(app)
    except FileNotFoundError as error:
        raise LaunchRefused(f"{spec.name} was not submitted: spark-submit is not on the PATH.") from error
    except Exception as error:  # the hook raises AirflowException, RuntimeError and ValueError alike
        raise LaunchRefused(f"{spec.name} was not submitted: {error}") from error


def _hook(connection: str, spec: LaunchSpec, conf: dict[str, str], **more: Any) -> Any:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    return SparkSubmitHook(
        conf=conf, conn_id=connection, name=spec.name, application_args=spec.arguments, deploy_mode="cluster", **more
    )


class KubernetesLauncher:
    name = "kubernetes"

    def __init__(self, cluster: Cluster, *, connection: str, app: str, namespace: str, pods: Pods | None = None) -> None:
        self._cluster = cluster
        self._connection = connection
        self._app = app
        self._namespace = namespace
        self._connect = _kube_client() if pods is None else lambda: pods
        self._pods = pods

    def hook(self, spec: LaunchSpec) -> Any:
        conf = {**kubernetes(spec, self._cluster), "spark.kubernetes.namespace": self._namespace}
        return _hook(self._connection, spec, conf, track_driver_via_k8s_api=True)

    def submit(self, spec: LaunchSpec) -> str:
        _submit(self.hook(spec), self._app, spec)
        return pod_name(spec)

    def status(self, handle: str) -> DriverStatus:
        try:
            pod = self._client().read_namespaced_pod(handle, self._namespace)
        except Exception as error:
            return DriverStatus.UNKNOWN if _gone(error) else DriverStatus.UNREACHABLE
        return PHASES.get(pod.status.phase, DriverStatus.UNKNOWN)

    def kill(self, handle: str) -> None:
        try:
            self._client().delete_namespaced_pod(handle, self._namespace)
        except Exception as error:
            if not _gone(error):
                raise LauncherUnreachable(f"Kubernetes did not take the deletion of pod {handle}: {error}") from error

    def find(self, store: str) -> Sighting:
        try:
            pods = self._client().list_namespaced_pod(self._namespace, label_selector=f"spillway-store={store},spark-role=driver")
        except Exception as error:
            raise LauncherUnreachable(f"Kubernetes does not list the drivers in namespace {self._namespace}: {error}") from error
        return Sighting(
            found=tuple(
                Found(handle=pod.metadata.name, name=(pod.metadata.annotations or {}).get("spillway-name", ""))
                for pod in pods.items
                if pod.status.phase in ("Pending", "Running")
            )
        )

    def _client(self) -> Pods:
        if self._pods is None:
            self._pods = self._connect()
        return self._pods


def _kube_client() -> Callable[[], Pods]:
    """How to reach the cluster. Looked for when the launcher is made: what is not installed does not come back by waiting."""
    try:
        found: Callable[[], Pods] = importlib.import_module(KUBE_CLIENT).get_kube_client
    except ImportError as error:
        raise ValueError(
            f"The kubernetes launcher needs {error.name or KUBE_CLIENT}, which is not installed: "
            "install apache-airflow-providers-cncf-kubernetes where Airflow's tasks run."
        ) from error
    return found


def _gone(error: Exception) -> bool:
    return getattr(error, "status", None) == 404


class YarnLauncher:
    name = "yarn"

    def __init__(self, cluster: Cluster, *, connection: str, app: str, manager: str) -> None:
        self._cluster = cluster
        self._connection = connection
        self._app = app
        self._apps = f"{manager.rstrip('/')}/ws/v1/cluster/apps"

    def hook(self, spec: LaunchSpec) -> Any:
        conf = {**yarn(spec, self._cluster), "spark.yarn.submit.waitAppCompletion": "false"}
        return _hook(self._connection, spec, conf)

    def submit(self, spec: LaunchSpec) -> str:
        _submit(self.hook(spec), self._app, spec)
        handle = next((f.handle for f in self.find(spec.store).found if f.name == spec.name), None)
        if handle is None:
            raise LaunchRefused(
                f"{spec.name} was submitted to YARN and is not in its list of applications: see the log of this task."
            )
        return handle

    def status(self, handle: str) -> DriverStatus:
        try:
            answer = requests.get(f"{self._apps}/{handle}", timeout=TIMEOUT_S)
            if answer.status_code == 404:
                return DriverStatus.UNKNOWN
            answer.raise_for_status()
            app = answer.json()["app"]
        except (requests.RequestException, ValueError, KeyError):
            return DriverStatus.UNREACHABLE
        status = YARN_STATES.get(app["state"], DriverStatus.UNKNOWN)
        return DriverStatus.FAILED if status is DriverStatus.FINISHED and app.get("finalStatus") != "SUCCEEDED" else status

    def kill(self, handle: str) -> None:
        try:
            answer = requests.put(f"{self._apps}/{handle}/state", json={"state": "KILLED"}, timeout=TIMEOUT_S)
            if answer.status_code != 404:
                answer.raise_for_status()
        except requests.RequestException as error:
            raise LauncherUnreachable(f"YARN did not take the end of {handle}: {error}") from error

    def find(self, store: str) -> Sighting:
        query = {"applicationTags": f"spillway-{store}", "states": YARN_LIVE}
        try:
            answer = requests.get(self._apps, params=query, timeout=TIMEOUT_S)
            answer.raise_for_status()
            apps = (answer.json().get("apps") or {}).get("app", [])
        except (requests.RequestException, ValueError) as error:
            raise LauncherUnreachable(f"YARN does not list its applications at {self._apps}: {error}") from error
        return Sighting(found=tuple(Found(handle=app["id"], name=app["name"]) for app in apps))
