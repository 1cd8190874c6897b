"""The installation of the demonstration: a folder with `.env`, and the document's commands in it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from scrape_yp.state_assignments import get_states_for_worker
from scraper_demo.site import Site

HERE = Path(__file__).resolve().parent.parent
LAUNCHER = HERE / "scripts" / "run_state_workers.py"
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
LIMIT = 180.0
_LOOK = 0.05
_OWN = re.compile(r"PITBOSS_|PROXY_|PROXIES_|MAX_|MIN_|DATABASE_URL|SITE_URL|WORKER_COUNT|RETRY_|PAGE_|BROWSER_PATH")


class Unfinished(RuntimeError):
    """The demonstration did not come to its end."""


class Killed(NamedTuple):
    """A worker that was killed, and the processes of its browser."""

    worker: int
    pid: int
    children: tuple[int, ...]


class Installation:
    """Its own `.env`, proxies and logs; settings of the caller do not count."""

    def __init__(self, folder: Path, settings: Mapping[str, object], **variables: str) -> None:
        self.folder = folder
        others = {name: value for name, value in os.environ.items() if not _OWN.match(name)}
        store = {"PITBOSS_STORE": str(settings["DATABASE_URL"])}
        self.environment = {**others, "PYTHONPATH": str(HERE), **store, **variables}
        shutil.copy(HERE / "pitboss.toml", folder)
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._manager: subprocess.Popen[bytes] | None = None

    def python(self, *arguments: str) -> str:
        """What a Python command prints."""
        return self._output([sys.executable, *arguments])

    def pitboss(self, *arguments: str) -> Any:
        """The JSON document that a command of Pitboss prints."""
        return json.loads(self._output([PITBOSS, *arguments, "--json"]))

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.pitboss("tasks", "list", "queue:targets", "--limit", "1000")["tasks"]
        return found

    def _output(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    @contextmanager
    def launched(self, *options: str) -> Iterator[None]:
        """Run the launcher, which becomes the manager, until the end of the block. Then it is asked to stop."""
        with self.log.open("wb") as log:
            command = [sys.executable, str(LAUNCHER), "--yes", *options]
            self._manager = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            self._manager.terminate()
            try:
                self._manager.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self._manager.kill()

    @property
    def log(self) -> Path:
        return self.folder / "launch.log"

    @property
    def exit_code(self) -> int | None:
        return None if self._manager is None else self._manager.poll()

    def kill_worker(self, worker: int, site: Site) -> Killed:
        """Kill a worker with SIGKILL while it waits for a page."""
        pid = self.pid_of(worker)
        with site.halting(get_states_for_worker(worker)):
            self.until(site.waiting.is_set, f"worker {worker} asks for a page")
            children = tuple(_descendants(pid))
            os.kill(pid, signal.SIGKILL)
        return Killed(worker, pid, children)

    def pid_of(self, worker: int) -> int:
        """The process of a worker, whose name counts from 1 on."""
        managers = self.pitboss("ps")["managers"]
        (found,) = (
            one["pid"] for manager in managers for one in manager["workers"] if one["name"].endswith(f"-{worker + 1}")
        )
        return int(found)

    def until(self, true: Callable[[], bool], what: str, progress: Callable[[], object] = lambda: None) -> None:
        """Wait, as long as there is progress: a busy machine may need many times the usual time."""
        ends, seen = time.monotonic() + LIMIT, progress()
        while not true():
            if self.exit_code is not None:
                raise Unfinished(f"the manager has ended: {self.log.read_text()[-2000:]}")
            if (found := progress()) != seen:
                ends, seen = time.monotonic() + LIMIT, found
            if time.monotonic() > ends:
                raise Unfinished(f"no progress in {LIMIT:g} seconds: {what}; the logs are in {self.folder}")
            time.sleep(_LOOK)


def alive(pid: int) -> bool:
    """Whether the process exists, and is more than an entry that its parent has not read."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _descendants(child)
