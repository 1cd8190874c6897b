"""The processes of the demonstration: the server and the workers."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
_LIMIT = 30.0
_LOOK = 0.05


def create_key(store: str, name: str, *roles: str) -> str:
    """What `pitboss keys create` prints."""
    options = [option for role in roles for option in ("--role", role)]
    command = [PITBOSS, "keys", "create", name, *options, "--store", store]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def serving_tasks(store: str, folder: Path) -> Iterator[str]:
    """`pitboss serve` on a free port, until the end of the block; gives the URL of its API."""
    path = folder / "serve.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            [PITBOSS, "serve", "--store", store, "--port", "0", "--quiet"], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield f"{_announced(process, path)}/api"
    finally:
        process.terminate()
        _ended(process)


def _announced(process: "subprocess.Popen[Any]", log: Path) -> str:
    """The address that the server logs as soon as it listens."""
    ends = time.monotonic() + _LIMIT
    while process.poll() is None and time.monotonic() < ends:
        if found := re.search(r"the HTTP API is at (\S+)", log.read_text()):
            return found[1]
        time.sleep(_LOOK)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


class Workers:
    """The worker processes by name. Each logs to a file of its own in the folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._processes: dict[str, subprocess.Popen[Any]] = {}

    def start(self, name: str) -> None:
        # In the demonstration's folder, so that no .env beside worker.py counts.
        environment = {**os.environ, **self._environment, "WORKER_ID": name}
        with (self._folder / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, HERE / "worker.py"], cwd=self._folder, env=environment, stdout=log, stderr=log
            )

    def kill(self, name: str, held: Callable[[], str | None]) -> str:
        """Kill a worker while it holds a task; gives that task.

        The worker is frozen for each look. A second look makes sure that its last report is not still on the way.
        """
        process = self._processes[name]
        ends = time.monotonic() + _LIMIT
        while time.monotonic() < ends:
            process.send_signal(signal.SIGSTOP)
            time.sleep(_LOOK)
            task = held()
            time.sleep(4 * _LOOK if task else 0)
            if task is not None and held() == task:
                process.kill()
                process.wait()
                return task
            process.send_signal(signal.SIGCONT)
            time.sleep(_LOOK)
        raise RuntimeError(f"{name} never held a task")

    def running(self) -> bool:
        return any(process.poll() is None for process in self._processes.values())

    def stop(self) -> dict[str, int]:
        """Ask those that run to stop; gives the exit codes of all."""
        for process in self._processes.values():
            process.terminate()
        return {name: _ended(process) for name, process in self._processes.items()}


def _ended(process: "subprocess.Popen[Any]") -> int:
    """Its exit code. A process that does not end in time is killed."""
    try:
        return process.wait(_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
