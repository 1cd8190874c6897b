"""What a dashboard implements to be measured."""

import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Self

import httpx

from tests.servers.postgres import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 3600.0
List = Literal["finished", "failed"]
Search = Literal["text", "parameter"]


class Board(ABC):
    """One dashboard with its store, its data and its servers, all of which end when it is left.

    What it cannot do returns None.
    """

    versions: Sequence[str]
    how: str
    """What is asked, for the report."""

    def __init__(self, tasks: int) -> None:
        self.tasks, self.failed = tasks, tasks // 10
        self.port = free_port()
        self.stack = ExitStack()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=LIMIT_SECONDS)

    def __enter__(self) -> Self:
        try:
            self.stack.enter_context(self.client)
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None:
        """Fill the store by running the jobs, and start the dashboard."""

    def listed(self, which: List) -> int | None:
        """Read the first page of a list; how many jobs it shows."""
        return None

    def searched(self, how: Search) -> Iterator[int] | None:
        """Search for the word; how many jobs each answer shows, until the dashboard has no more."""
        return None

    def retry(self) -> int | None:
        """Retry all failed jobs, until all wait; how many requests it took."""
        return None

    def fail_again(self) -> None:
        """Run the retried jobs, which fail again."""
        raise NotImplementedError

    def run(self, *command: str, env: Mapping[str, str]) -> None:
        """Run a program to its end."""
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS
        )

    def serve(self, *command: str, env: Mapping[str, str]) -> None:
        """Start the dashboard; it answers on the port when this returns."""
        server = self.stack.enter_context(running(*command, env=env))
        until(lambda: _answers(server, self.port))

    def get(self, path: str, **query: str | int) -> httpx.Response:
        return self.client.get(path, params=query).raise_for_status()


@contextmanager
def running(*command: str, env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that ends with the block. The kernel ends it if this process dies before."""
    leash = ["setpriv", "--pdeathsig", "TERM", "--"]
    process = subprocess.Popen(
        [*leash, *command],
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true: Callable[[], bool], every: float = 0.01) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true after {LIMIT_SECONDS:g} s")
        time.sleep(every)


def _answers(server: "subprocess.Popen[bytes]", port: int) -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"{server.args!r} ended with {server.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
