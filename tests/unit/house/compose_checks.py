"""What must be true of docker-compose.yml. Each check gives the sentences that are wrong; none means it holds."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spillway.embedded.config import REPO, Layout
from spillway.embedded.services import airflow, spark
from spillway.embedded.services.base import Context

HERE = Path(__file__).parent
CODE = "/opt/spillway"
AGREED = {  # what the embedded mode calls the services that have a port, and which of stack.toml's ports they publish
    "postgres": ("postgres",),
    "kafka": ("kafka",),
    "spark-master": ("spark_master", "spark_rest", "spark_ui"),
    "spark-worker-n1": ("worker_n1_ui",),
    "spark-worker-n2": ("worker_n2_ui",),
    "airflow-api-server": ("airflow",),
}
SERVICES = {
    "postgres", "kafka", "init", "spark-master", "spark-worker-n1", "spark-worker-n2", "agent-n1", "agent-n2",
    "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer", "cli",
}  # fmt: skip
ONE_SHOTS = {"init", "cli"}
ROLE_OF = {"spark-worker": "spark-worker", "agent": "agent", "airflow": "airflow", "init": "init", "cli": "cli"}
SECRET = re.compile(
    r"PASSWORD$|PASSWORD_|SECRET|FERNET|SPILLWAY_DSN|SQL_ALCHEMY_CONN|AIRFLOW_CONN_(SPILLWAY_CONTROL|AIRFLOW_METADATA)"
)
VARIABLE = re.compile(r"\$\{(\w+)(?:(:\?|:-)([^}]*))?\}")
# Where something lies, not what it is: the embedded mode has a run folder, a container has its own file system.
PLACES = {
    "AIRFLOW_HOME",
    "AIRFLOW__CORE__DAGS_FOLDER",
    "AIRFLOW__CORE__PLUGINS_FOLDER",
    "AIRFLOW__API__HOST",
    "AIRFLOW__API__PORT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The files that have to agree."""

    compose: dict[str, Any]
    text: str
    stack: dict[str, Any]
    example: str
    dockerfile: str
    requirements: str
    release: str
    """Version of the project."""

    @property
    def services(self) -> dict[str, Any]:
        return dict(self.compose["services"])

    @property
    def ours(self) -> dict[str, Any]:
        """Those that run the image built here."""
        return {n: s for n, s in self.services.items() if "build" in s}


def context(house: House) -> Context:
    """A run of the embedded mode on the preferred ports, to be compared with."""
    names = ("spillway_owner", "spillway_control", "spillway_job", "spillway_read", "airflow")
    secrets = dict.fromkeys((*names, "airflow_fernet", "airflow_secret_key", "airflow_jwt"), "x")
    return Context(
        layout=Layout(Path("/run-folder")), ports=house.stack["ports"], secrets=secrets, java_home=Path("java"),
        jars={"connector": Path("jars"), "broker": Path("jars")},
    )  # fmt: skip


def options(text: str) -> dict[str, str]:
    return dict(part.removeprefix("-D").partition("=")[::2] for part in shlex.split(text))


def role(service: str) -> str:
    return next((r for prefix, r in ROLE_OF.items() if service == prefix or service.startswith(f"{prefix}-")), service)


def schema(house: House) -> Iterator[str]:
    from jsonschema import Draft202012Validator

    rules = json.loads((HERE / "compose-spec.json").read_text(encoding="utf-8"))
    for error in Draft202012Validator(rules).iter_errors(house.compose):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def parts(house: House) -> Iterator[str]:
    if set(house.services) != SERVICES:
        yield f"the services are {sorted(house.services)}"
    for node in house.stack["nodes"]:
        if not {f"spark-worker-{node}", f"agent-{node}"} <= set(house.services):
            yield f"node {node} of stack.toml has no worker or no agent"


def health(house: House) -> Iterator[str]:
    for name, service in house.services.items():
        if name in ONE_SHOTS:
            if service.get("restart") != "no":
                yield f"{name} runs once and must not be restarted"
            continue
        check = service.get("healthcheck") or {}
        if not check.get("test") or check.get("disable"):
            yield f"{name} has no health check"
        elif missing := {"interval", "timeout", "retries", "start_period"} - set(check):
            yield f"the health check of {name} lacks {sorted(missing)}"
        if service.get("restart") != "unless-stopped":
            yield f"{name} is not restarted"
    for name, service in house.services.items():
        if not service.get("init") or not service.get("stop_grace_period"):
            yield f"{name} has no init or no stop_grace_period"
        for needed, how in (service.get("depends_on") or {}).items():
            wanted = "service_completed_successfully" if needed == "init" else "service_healthy"
            if how.get("condition") != wanted:
                yield f"{name} must wait for {needed} with {wanted}"
    for name in house.ours:
        if name not in ("init", "spark-master") and "init" not in waits_for(house, name):
            yield f"{name} does not wait for init"


def waits_for(house: House, name: str) -> set[str]:
    direct = set(house.services[name].get("depends_on") or {})
    return direct.union(*(waits_for(house, other) for other in direct)) if direct else set()


def loopback(house: House) -> Iterator[str]:
    for name, service in house.services.items():
        published = []
        for entry in service.get("ports") or []:
            address, _, rest = str(entry).partition(":")
            if address != "127.0.0.1":
                yield f"{name} publishes {entry} beyond loopback"
            published.append(rest.split(":")[0])
        wanted = [str(house.stack["ports"][port]) for port in AGREED.get(name, ())]
        if sorted(published) != sorted(wanted):
            yield f"{name} publishes {published}, stack.toml says {wanted}"
        if str(service.get("network_mode", "")) == "host":
            yield f"{name} uses the host's network"


def versions(house: House) -> Iterator[str]:
    want = house.stack["versions"]
    images = {n: str(s.get("image", "")) for n, s in house.services.items()}
    for name, image in images.items():
        if not re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z]+)?(@sha256:[0-9a-f]{64})?", image):
            yield f"{name}: image {image} is not pinned by an exact version"
    if images.get("kafka", "").partition(":")[2].partition("@")[0] != want["kafka"]:
        yield f"kafka is {images.get('kafka')}, stack.toml says {want['kafka']}"
    if not images.get("postgres", "").startswith(f"postgres:{want['postgres']}."):
        yield f"postgres is {images.get('postgres')}, stack.toml says {want['postgres']}"
    for name in house.ours:
        if images[name] != f"spillway:{house.release}":
            yield f"{name} runs {images[name]}, the project is {house.release}"
    base = re.search(r"^FROM python:(\d+\.\d+)\.\d+-slim", house.dockerfile, re.M)
    if base is None or base[1] not in want["python"]:
        yield f"the Dockerfile's Python is {base[1] if base else 'not an exact one'}, stack.toml says {want['python']}"
    if f"openjdk-{want['java']}-jre-headless" not in house.dockerfile:
        yield f"the Dockerfile does not install Java {want['java']}"
    for package, version in (("apache-airflow", want["airflow"]), ("pyspark", want["spark"])):
        if not re.search(rf"^{package}=={re.escape(version)} ", house.requirements, re.M):
            yield f"requirements.txt does not pin {package} {version}"
    if "--require-hashes" not in house.dockerfile or "USER spillway" not in house.dockerfile:
        yield "the Dockerfile installs without hashes, or runs as root"


def settings(house: House) -> Iterator[str]:
    run, s = context(house), house.services
    given = dict(x.removeprefix("-c").partition("=")[::2] for x in s["postgres"]["command"][1:])
    if given != house.stack["postgres"]["settings"]:
        yield f"postgres: settings differ in {sorted(set(given.items()) ^ set(house.stack['postgres']['settings'].items()))}"
    kafka = s["kafka"]["environment"]
    for key, value in house.stack["kafka"]["settings"].items():
        variable, text = "KAFKA_" + key.upper().replace(".", "_"), str(value).lower() if isinstance(value, bool) else str(value)
        if kafka.get(variable) != text:
            yield f"kafka: {variable} is {kafka.get(variable)}, stack.toml says {text}"
    heap = house.stack["kafka"]["heap_mb"]
    if kafka.get("KAFKA_HEAP_OPTS") != f"-Xmx{heap}m -Xms{heap // 4}m":
        yield f"kafka: the heap is {kafka.get('KAFKA_HEAP_OPTS')}, the embedded mode takes {heap} MB"
    yield from _daemon("spark-master", s["spark-master"], spark.launch_master(run), "SPARK_MASTER_OPTS")
    for node in house.stack["nodes"]:
        name = f"spark-worker-{node}"
        yield from _daemon(name, s[name], spark.worker(node).launch(run), "SPARK_WORKER_OPTS")
        tag = json.loads(house.compose["configs"][f"node-{node}"]["content"])
        amount = house.stack["spark"]["worker_tag_amount"]
        wanted = [{"id": {"componentName": "spark.worker", "resourceName": node}, "addresses": [str(i) for i in range(amount)]}]
        if tag != wanted:
            yield f"{name}: its tag is {tag}"
        if s[name]["environment"].get("SPILLWAY_NODE") != node or VARIABLE.sub(r"\3", s[name]["cpuset"]) != str(
            house.stack["nodes"][node]
        ):
            yield f"{name} is not confined and tagged as node {node} of stack.toml"
        if not str(s[f"agent-{node}"]["environment"].get("SPILLWAY_NODES")).startswith(f"{node}="):
            yield f"agent-{node} measures another node"
        if s[f"agent-{node}"].get("pid") != f"service:{name}":
            yield f"agent-{node} does not see the processes of {name}"


def _daemon(name: str, service: dict[str, Any], embedded: Any, opts: str) -> Iterator[str]:
    """A Spark daemon: its flags and properties as in the embedded mode, apart from hosts and folders."""
    env = service["environment"]
    ours, theirs = options(env[opts]), options(embedded.env[opts])
    for key in sorted(set(ours) | set(theirs)):
        if key != "spark.worker.resourcesFile" and ours.get(key) != theirs.get(key):
            yield f"{name}: {key} is {ours.get(key)}, the embedded mode has {theirs.get(key)}"
    for variable in ("SPARK_DAEMON_JAVA_OPTS", "SPARK_DAEMON_MEMORY"):
        if env.get(variable) != embedded.env[variable]:
            yield f"{name}: {variable} is {env.get(variable)}, the embedded mode has {embedded.env[variable]}"
    mine, other = service["command"][1:], embedded.command[1:]
    for flag in ("--port", "--webui-port", "--cores", "--memory"):
        pair = [c[c.index(flag) + 1] if flag in c else None for c in (mine, other)]
        if pair[0] != pair[1]:
            yield f"{name}: {flag} is {pair[0]}, the embedded mode has {pair[1]}"


def environment(house: House) -> Iterator[str]:
    ports = house.stack["ports"]
    at = {
        "kafka": f"kafka:{ports['kafka']}",
        "spark_master": f"spark://spark-master:{ports['spark_master']}",
        "spark_rest": f"http://spark-master:{ports['spark_rest']}",
        "spark_ui": f"http://spark-master:{ports['spark_ui']}",
        "checkpoints": "file:///var/lib/spillway/checkpoints",
        "jars": "/opt/jars",
        "airflow": f"http://airflow-api-server:{ports['airflow']}",
    }
    for name, service in house.ours.items():
        env = service["environment"]
        for key, template in house.stack["environment"].items():
            if env.get(key) != template.format(**at):
                yield f"{name}: {key} is {env.get(key)}, stack.toml says {template.format(**at)}"
    theirs = {k for k in airflow.environment(context(house)) if k.startswith(("AIRFLOW", "GX_"))} - PLACES
    for name in (n for n in house.ours if n.startswith("airflow") or n == "init"):
        env = house.services[name]["environment"]
        if missing := theirs - set(env):
            yield f"{name} lacks {sorted(missing)}, which the embedded mode sets"
        for key, value in house.stack["airflow"]["environment"].items():
            if env.get(key) != value:
                yield f"{name}: {key} is {env.get(key)}, stack.toml says {value}"
    path = airflow.scheduler_environment(context(house))["PYTHONPATH"].replace(str(REPO), CODE)
    if (given := house.services["airflow-scheduler"]["environment"].get("PYTHONPATH")) != path:
        yield f"airflow-scheduler: PYTHONPATH is {given}, the embedded mode has {path}"


def folders(house: House) -> Iterator[str]:
    wanted = {f"./{f}:{CODE}/{f}:ro" for f in house.stack["folders"]["mounted"]}
    declared, used = set(house.compose["volumes"]), set()
    for name, service in house.services.items():
        entries = [str(v) for v in service.get("volumes") or []]
        bound = {v for v in entries if v.startswith((".", "/", "~"))}
        if name in house.ours and bound != wanted:
            yield f"{name} mounts {sorted(bound ^ wanted)} otherwise than stack.toml says"
        used |= {v.partition(":")[0] for v in entries if v not in bound}
    if used != declared:
        yield f"volumes {sorted(used ^ declared)} are declared or used, not both"
    for folder in house.stack["folders"]["mounted"]:
        if not re.search(rf"^COPY {folder} {folder}$", house.dockerfile, re.M):
            yield f"the Dockerfile does not copy {folder}"
    if not re.search(r"jars\.ensure\('connector'", house.dockerfile):
        yield "the Dockerfile does not take the connector jars by sha256"


def secrets(house: House) -> Iterator[str]:
    allowed = {r: set(who) for r, who in house.stack["secrets"].items()}
    for name, service in house.services.items():
        for key, value in (service.get("environment") or {}).items():
            found = re.fullmatch(r"SPILLWAY_DSN_(\w+)", key)
            if found and role(name) not in allowed.get(found[1].lower(), set()):
                yield f"{name} may not see {key}"
            if SECRET.search(key) and "FILE" not in key and not re.search(r"\$\{\w+:\?", str(value)):
                yield f"{name}: {key} is not taken from a required variable"
    lines = [line for line in house.example.splitlines() if line and not line.startswith("#")]
    offered = dict(line.partition("=")[::2] for line in lines)
    used = {variable: kind for variable, kind, _ in VARIABLE.findall(house.text)}
    for variable in sorted(set(used) ^ set(offered)):
        yield f"{variable} is {'in .env.example and not used' if variable in offered else 'not in .env.example'}"
    for variable, kind in used.items():
        if kind not in (":?", ":-"):
            yield f"{variable} may be unset without a word"
        if kind == ":?" and offered.get(variable):
            yield f"{variable} is a secret and .env.example gives a value"


CHECKS: tuple[Callable[[House], Iterator[str]], ...] = (
    schema, parts, health, loopback, versions, settings, environment, folders, secrets,
)  # fmt: skip
