"""A PgBouncer in front of the tests' PostgreSQL server, in the mode that takes most away: one transaction at a time."""

import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import psycopg

from tests.servers.postgres import PostgresServer, ServerError, free_port, unprivileged_user

START_SECONDS = 10.0
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 100
{more}
"""


def find_program() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ServerError("no pgbouncer found; `make pgbouncer` installs it")
    return found


class PgBouncer:
    """`more` are further lines of its settings."""

    def __init__(self, server: PostgresServer, more: str = "") -> None:
        self._user = unprivileged_user()
        self._group = pwd.getpwnam(self._user).pw_gid if self._user else None
        self._folder = Path(tempfile.mkdtemp(prefix="pitboss-bouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._settings = self._folder / "pgbouncer.ini"
        self._settings.write_text(SETTINGS.format(server=server.port, port=self.port, more=more), encoding="utf-8")
        if self._user:
            shutil.chown(self._folder, self._user, self._group)

    def dsn(self, server_dsn: str) -> str:
        """The address of a database of the server, through here."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{server_dsn.rsplit('/', 1)[1]}"

    def __enter__(self) -> Self:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", find_program(), str(self._settings)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=subprocess.STDOUT,
                user=self._user,
                group=self._group,
                extra_groups=[] if self._user else None,
            )
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.dsn("/postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return
        raise ServerError(f"pgbouncer did not come up:\n{(self._folder / 'log').read_text(encoding='utf-8')}")
