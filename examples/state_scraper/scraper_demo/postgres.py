"""A PostgreSQL for one run: on loopback, in a temporary folder, ended with the run."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_SECONDS = 60.0
_LOOK = 0.05
_UNPRIVILEGED = 65534
_USER, _DATABASE = "washbot", "washbot_db"


class NoServer(Exception):
    """PostgreSQL is not installed, or does not start."""


@contextmanager
def serving(log: Path) -> Iterator[str]:
    """The address of the document's database, until the end of the block."""
    programs, port = _programs(), _free_port()
    with tempfile.TemporaryDirectory(prefix="scraper-", ignore_cleanup_errors=True) as name, log.open("ab") as out:
        home = Path(name)
        if os.geteuid() == 0:
            shutil.chown(home, _unprivileged())
        data = str(home / "data")
        making = (f"{programs}/initdb", "--auth=trust", f"--username={_USER}", "--no-sync", "--encoding=UTF8", data)
        subprocess.run(_as_user(*making), cwd=home, stdout=out, stderr=out, check=True)
        options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": home, "fsync": "off"}
        settings = [word for option, value in options.items() for word in ("-c", f"{option}={value}")]
        # If this program is killed, the kernel ends the server.
        leash = ("setpriv", "--pdeathsig", "INT", "--")
        command = _as_user(*leash, f"{programs}/postgres", "-D", data, *settings)
        process = subprocess.Popen(command, cwd=home, stdout=out, stderr=out)
        try:
            yield _with_database(process, port, log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_SECONDS)


def _with_database(process: "subprocess.Popen[bytes]", port: int, log: Path) -> str:
    """Wait until the server answers, and make the database."""
    url = f"postgresql://{_USER}@127.0.0.1:{port}"
    ends = time.monotonic() + _SECONDS
    while True:
        try:
            with psycopg.connect(f"{url}/postgres", autocommit=True) as server:
                server.execute(f"CREATE DATABASE {_DATABASE}".encode())
            return f"{url}/{_DATABASE}"
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > ends:
                raise NoServer(f"PostgreSQL does not start: {log} says why") from error
            time.sleep(_LOOK)


def _programs() -> Path:
    debian = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), default=None)
    found = debian or shutil.which("initdb")
    if found is None:
        raise NoServer("PostgreSQL is not installed: apt-get install postgresql, or use --sqlite")
    return Path(found).parent


def _as_user(*command: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", f"--reuid={_unprivileged()}", "--clear-groups", "--", *command]


def _unprivileged() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else pwd.getpwuid(_UNPRIVILEGED).pw_name


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
