"""Spark standalone: drivers handed to the master's REST submission server.

`spark-submit --deploy-mode cluster` refuses Python on standalone, but the submission server runs any main class, and
`SparkSubmit` in client mode, inside the cluster, is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import requests

from spillway.act.launch import DriverStatus, Found, LauncherUnreachable, LaunchRefused, LaunchSpec, Sighting, program
from spillway.act.launch.conf import STORE, Cluster, cluster_from, standalone

SPARK_VERSION = "4.2.0"
TIMEOUT_S = (2.0, 10.0)
LAUNCH_COMMAND_BYTES = 64 * 1024
STATES = {
    "SUBMITTED": DriverStatus.PENDING,
    "RUNNING": DriverStatus.RUNNING,
    "RELAUNCHING": DriverStatus.RUNNING,
    "FINISHED": DriverStatus.FINISHED,
    "KILLED": DriverStatus.FAILED,
    "FAILED": DriverStatus.FAILED,
    "ERROR": DriverStatus.FAILED,
}


class StandaloneLauncher:
    name = "standalone"

    def __init__(self, cluster: Cluster, *, rest: str, ui: str, app: str) -> None:
        self._cluster = cluster
        self._rest = rest.rstrip("/")
        self._ui = ui.rstrip("/")
        self._app = app
        self._http = requests.Session()
        self._http.trust_env = False
        self._identified = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> StandaloneLauncher:
        missing = [n for n in ("SPILLWAY_SPARK_MASTER", "SPILLWAY_SPARK_REST", "SPILLWAY_SPARK_UI") if not environment.get(n)]
        if missing:
            raise ValueError(f"{', '.join(missing)} not set: the standalone launcher needs the master's three addresses.")
        return cls(
            cluster_from(environment, environment["SPILLWAY_SPARK_MASTER"]),
            rest=environment["SPILLWAY_SPARK_REST"],
            ui=environment["SPILLWAY_SPARK_UI"],
            app=environment.get("SPILLWAY_APP") or program(),
        )

    def submit(self, spec: LaunchSpec) -> str:
        self._identify()
        body = {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": SPARK_VERSION,
            "appResource": f"file://{self._app}",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": ["--master", self._cluster.master, self._app, *spec.arguments],
            "environmentVariables": {},
            "sparkProperties": {**standalone(spec, self._cluster), "spark.submit.deployMode": "cluster"},
        }
        answer = self._call("POST", f"{self._rest}/v1/submissions/create", json=body)
        if not answer.get("success"):
            raise LaunchRefused(f"The Spark master at {self._rest} refused {spec.name}: {answer.get('message', answer)}.")
        return str(answer["submissionId"])

    def status(self, handle: str) -> DriverStatus:
        try:
            self._identify()
            answer = self._call("GET", f"{self._rest}/v1/submissions/status/{handle}")
        except LauncherUnreachable:
            return DriverStatus.UNREACHABLE
        return STATES.get(str(answer.get("driverState")), DriverStatus.UNKNOWN)

    def kill(self, handle: str) -> None:
        self._identify()
        self._call("POST", f"{self._rest}/v1/submissions/kill/{handle}")

    def find(self, store: str) -> Sighting:
        """The master does not tell the name of a driver; the worker that runs it has it in the head of the driver's log.

        A worker that does not answer hides its drivers' names, and nothing else: the other applications are not to wait for it.
        """
        master = self._master()
        pages = {w["id"]: w["webuiaddress"] for w in master["workers"]}
        found, unidentified = [], 0
        for driver in master["activedrivers"]:
            page = pages.get(driver.get("worker"))
            head = self._log_head(page, driver["id"]) if page else None
            if head is None:
                pages.pop(driver.get("worker"), None)
            if not head:
                unidentified += 1
            elif (name := name_in(head, store)) is not None:
                found.append(Found(handle=driver["id"], name=name))
        return Sighting(found=tuple(found), unidentified=unidentified)

    def _log_head(self, page: str, driver: str) -> str | None:
        """Empty when nothing is written yet, None when the worker does not answer."""
        query = {"driverId": driver, "logType": "stderr", "offset": "0", "byteLength": str(LAUNCH_COMMAND_BYTES)}
        try:
            answer = self._http.get(f"{page}/log/", params=query, timeout=TIMEOUT_S)
        except requests.RequestException:
            return None
        return answer.text if answer.ok and "Launch Command:" in answer.text else ""

    def _identify(self) -> None:
        """A master that took over the address must not be given our drivers: Spark itself would not notice."""
        if not self._identified:
            self._master()
            self._identified = True

    def _master(self) -> dict[str, Any]:
        master = self._call("GET", f"{self._ui}/json/")
        if master.get("url") != self._cluster.master:
            raise LauncherUnreachable(
                f"{self._ui} is the page of {master.get('url', 'something else')}, not of {self._cluster.master}: "
                "check SPILLWAY_SPARK_MASTER and SPILLWAY_SPARK_UI."
            )
        if master.get("status", "ALIVE") != "ALIVE":
            raise LauncherUnreachable(f"The Spark master {self._cluster.master} is {master['status']}, not ALIVE.")
        return master

    def _call(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, url, timeout=TIMEOUT_S, **more)
            content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise LauncherUnreachable(f"{url} does not answer as a Spark master would: {error}.") from error
        if not isinstance(content, dict) or answer.status_code >= 500:
            raise LauncherUnreachable(f"{url} answered {answer.status_code}, not as a Spark master would.")
        return content


def name_in(launch_command: str, store: str) -> str | None:
    """The application's name in a driver's launch command, if it is a driver of this store.

    >>> name_in('"java" "-Dspark.app.name=spillway:taxi:heavy:4" "-Dspark.spillway.store=7f3a" …', "7f3a")
    'spillway:taxi:heavy:4'
    >>> name_in('"java" "-Dspark.app.name=spillway:taxi:heavy:4" "-Dspark.spillway.store=other" …', "7f3a")
    """
    values = dict(re.findall(r"-D(spark\.app\.name|" + re.escape(STORE) + r')=([^"\s]+)', launch_command))
    return values.get("spark.app.name") if values.get(STORE) == store else None
