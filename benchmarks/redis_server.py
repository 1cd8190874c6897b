"""A private Redis for the peers: a free port, a temporary folder, Redis's built-in defaults."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.servers.postgres import free_port

_START_SECONDS = 10.0


class RedisServer:
    """Runs without a configuration file: occasional snapshots, no append-only file, no sync at a write."""

    def __init__(self) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise FileNotFoundError("no redis-server found; `scripts/setup.sh redis` installs it")
        self._folder = Path(tempfile.mkdtemp(prefix="pitboss-redis-"))
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        # The kernel ends it when its parent dies, so a killed benchmark leaves no server behind.
        leash = ["setpriv", "--pdeathsig", "INT", "--"]
        self._process = subprocess.Popen(
            [*leash, binary, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.ask("PING")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, command: str) -> str:
        """Send one command without arguments that need quoting; returns the first line of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.makefile("rb").readline().decode().strip()
