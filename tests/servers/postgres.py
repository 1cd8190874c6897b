"""A real PostgreSQL server of our own: a free port, a temporary folder, an unprivileged user.

It can be stopped, killed and restarted, because what Pitboss promises is about exactly these moments.
"""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

import psutil
import psycopg
from psycopg import sql

StopMode = Literal["smart", "fast", "immediate"]

STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
# What must survive a crash is kept here: the folder for temporary files may be in memory.
DISK = Path("/var/tmp")
# After a crash it reads its log since the last checkpoint, which can be long on a busy disk.
START_SECONDS = 120.0
STOP_SECONDS = 30.0


_UNPRIVILEGED = 65534


class ServerError(Exception):
    """The PostgreSQL server of the tests could not be found, started or stopped."""


def find_binaries(debian_folder: Path = Path("/usr/lib/postgresql")) -> Path:
    """The folder of the newest server binaries. None is an error: a skipped test proves nothing."""
    debian = debian_folder.glob("*/bin/initdb")
    found = max(debian, key=lambda path: float(path.parts[-3]), default=None) or shutil.which("initdb")
    if found is None:
        raise ServerError("no PostgreSQL server binaries found (initdb); `make postgres` installs them")
    return Path(found).parent


def unprivileged_user() -> str | None:
    """Whom to become: PostgreSQL refuses to run as root. None: we are not root, stay as we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else pwd.getpwuid(_UNPRIVILEGED).pw_name


def free_port() -> int:
    """Below the range that the kernel hands to outgoing connections, which could take it while we restart."""
    for port in random.sample(range(20_000, 32_000), k=100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError("no free port on 127.0.0.1")


def _is_dead(process: psutil.Process) -> bool:
    """A zombie has given up its memory; when init reaps it does not matter here, and may take seconds."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class PostgresServer:
    """Not `durable`: commits do not wait for the disk, for tests in which no server dies.

    `environment` is added to that of the server.
    """

    def __init__(self, *, durable: bool = True, environment: Mapping[str, str] | None = None) -> None:
        self._durable, self._environment = durable, {**os.environ, **(environment or {})}
        self._binaries = find_binaries()
        self._user = unprivileged_user()
        self._group = pwd.getpwnam(self._user).pw_gid if self._user else None
        # Not under pytest's folder: that one is closed to other users, and too long for a socket path.
        self.folder = Path(tempfile.mkdtemp(prefix="pitboss-pg-", dir=DISK if durable else None))
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.port = free_port()
        if self._user:
            shutil.chown(self.folder, self._user, self._group)

    def __enter__(self) -> Self:
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        return self._dsn("postgres")

    def _dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start the server and return once it answers."""
        if self._process is not None:
            raise ServerError("the server is already running")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "max_connections": 200,
            "fsync": "on" if self._durable else "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        # A test run that is killed must not leave a server behind: the kernel tells it when its parent dies.
        leash = ["setpriv", "--pdeathsig", "INT", "--"]
        command = [*leash, str(self._binaries / "postgres"), "-D", str(self._data), *options]
        with self._log.open("ab") as log:
            self._process = self._spawn(command, log.fileno())
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill9()
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        process = self._running()
        process.send_signal(STOP_SIGNALS[mode])
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ServerError(f"the server did not stop ({mode}):\n{self._log_tail()}") from error
        self._process = None

    def kill9(self) -> None:
        """End the postmaster and all its children without warning, as a crash of the machine would."""
        process = self._running()
        if process.poll() is None:
            # Halted first, so that it starts no child between our look and our blow, and repairs nothing.
            process.send_signal(signal.SIGSTOP)
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            # A child that lingers holds the shared memory, and the next start would be refused.
            deadline = time.monotonic() + STOP_SECONDS
            while alive := [child for child in family if not _is_dead(child)]:
                if time.monotonic() > deadline:
                    raise ServerError(f"still alive after kill -9: {alive}")
                time.sleep(0.005)
        process.wait(STOP_SECONDS)
        self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same port with the same data."""
        self.stop(mode)
        self.start()

    def create_database(self, language: str = "") -> str:
        """A new empty database; returns its dsn. It sorts as people who speak the language do, else by code point."""
        self._databases += 1
        name = f"test_{self._databases}"
        statement = sql.SQL("create database {}").format(sql.Identifier(name))
        if language:
            sorting = sql.SQL(" template template0 locale_provider icu icu_locale {}")
            statement += sorting.format(sql.Literal(language))
        self._execute(statement)
        return self._dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Remove a database even while it has connections."""
        self._execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(dsn.rpartition("/")[2])))

    def close(self) -> None:
        """End the server and remove its folder; harmless to repeat."""
        if self._process is not None:
            try:
                # Not kill -9: that leaves its shared memory in /dev/shm.
                self.stop("immediate")
            except ServerError:
                self.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _initialise(self) -> None:
        # --no-sync: no test crashes initdb. The server itself has its own setting.
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        command = [str(self._binaries / "initdb"), "-D", str(self._data), *options]
        with self._log.open("ab") as log:
            code = self._spawn(command, log.fileno()).wait(START_SECONDS * 2)
        if code != 0:
            raise ServerError(f"initdb ended with {code}:\n{self._log_tail()}")

    def _spawn(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for pytest, which then closes the server in good order.
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=self._user,
            group=self._group,
            extra_groups=[] if self._user else None,
            start_new_session=True,
            env=self._environment,
        )

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.dsn, connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return
        raise ServerError(f"the server did not come up on port {self.port}:\n{self._log_tail()}")

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process

    def _log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-20:])
