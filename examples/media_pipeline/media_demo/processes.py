"""The manager of the demonstration, its HTTP API, and a worker that is killed in the middle of its work."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent.parent
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
LIMIT = 60.0
_LOOK = 0.01
_OWN = ("PITBOSS_", "MEDIA_", "FFMPEG_", "DOWNLOAD_WORKERS")


class Killed(NamedTuple):
    """A worker that was killed, and the ffmpeg that it ran."""

    worker: int
    ffmpeg: int


class Manager:
    """`pitboss up` in the example's folder, with settings of the demonstration only."""

    def __init__(self, folder: Path, *options: str, **settings: str) -> None:
        self.folder = folder
        self._options = options
        others = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        self.environment = {**others, **settings, "PITBOSS_LOGS": str(folder / "logs")}
        self._process: subprocess.Popen[Any] | None = None
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the end of the block. Then it is asked to stop, as by Ctrl-C."""
        with self.log.open("w") as log:
            command = [PITBOSS, "up", "--port", "0", "--verbose", *self._options]
            self._process = subprocess.Popen(command, cwd=HERE, env=self.environment, stdout=log, stderr=log)
        try:
            self.url = self._announced(r"the HTTP API is at (http://[\d.:]+)")
            yield
        finally:
            self._process.terminate()
            try:
                self._process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self._process.kill()

    @property
    def log(self) -> Path:
        return self.folder / "manager.log"

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def tasks(self) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/tasks?limit=1000", timeout=LIMIT) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["tasks"]
        return found

    def pitboss(self, *arguments: str) -> str:
        """What a command of Pitboss prints, on both of its outputs."""
        done = subprocess.run(
            [PITBOSS, *arguments], cwd=HERE, env=self.environment, capture_output=True, text=True, check=False
        )
        return f"{done.stdout}{done.stderr}".strip()

    def kill_in_ffmpeg(self, pool: str) -> Killed:
        """Kill the worker of a pool with SIGKILL while it runs ffmpeg.

        ffmpeg is halted first. Otherwise a fast machine might have finished it before its worker dies.
        """
        worker = self._pid_of(pool)
        halted = list[int]()

        def halt() -> bool:
            halted.extend(_halted_ffmpegs(worker))
            return bool(halted)

        self.until(halt, f"{pool} runs ffmpeg")
        os.kill(worker, signal.SIGKILL)
        return Killed(worker, halted[0])

    def until(self, true: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + LIMIT
        while not true():
            if self.exit_code is not None:
                raise RuntimeError(f"pitboss up has ended: {self.log.read_text()[-2000:]}")
            if time.monotonic() > ends:
                raise RuntimeError(f"not in {LIMIT:g} seconds: {what}; the logs are in {self.folder}")
            time.sleep(_LOOK)

    def _pid_of(self, pool: str) -> int:
        return int(self._announced(rf"worker {pool}-1 is ready.*?pid (\d+)"))

    def _announced(self, pattern: str) -> str:
        self.until(lambda: re.search(pattern, self.log.read_text()) is not None, pattern)
        found = re.search(pattern, self.log.read_text())
        assert found is not None
        return found[1]


def alive(pid: int) -> bool:
    """Whether the process exists, and is more than an entry that its parent has not read."""
    with suppress(OSError, IndexError):
        return _state(pid) != "Z"
    return False


def _halted_ffmpegs(worker: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{worker}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().strip() == "ffmpeg":
                    os.kill(child, signal.SIGSTOP)
                    yield child


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
