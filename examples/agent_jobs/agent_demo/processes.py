"""The processes of the demonstration: the two managers, the page, and the command line of Pitboss."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HERE = Path(__file__).resolve().parent.parent
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
_LIMIT = 30.0
_LOOK = 0.05
_OWN = ("PITBOSS_", "WORKER_", "APP_CORE_", "AGENT_")


class Processes:
    """All of them work in the example's folder; their files are in another one."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        # Nothing that this machine says about a worker counts.
        others = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        self._environment = {**others, **settings}
        self._running: dict[str, subprocess.Popen[Any]] = {}

    def start(self, name: str, *command: str) -> None:
        """Start Python with these arguments."""
        environment = {**self._environment, "PITBOSS_LOGS": str(self.folder / "logs" / name)}
        with self.log(name).open("a") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *command], cwd=HERE, env=environment, stdout=log, stderr=log
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def announced(self, name: str, pattern: str) -> str:
        """What a process says in its log."""
        self.until(lambda: re.search(pattern, self.log(name).read_text()) is not None, f"{name} has started")
        found = re.search(pattern, self.log(name).read_text())
        assert found is not None
        return found[1]

    def pitboss(self, *arguments: str) -> Any:
        """What a command of Pitboss prints, as JSON."""
        environment = {**self._environment, "PITBOSS_STORE": f"sqlite:///{self.folder / 'agent.db'}"}
        done = subprocess.run(
            [PITBOSS, *arguments, "--json"], cwd=HERE, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"pitboss {' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def kill(self, name: str) -> None:
        """As a crash: nothing is put away."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> dict[str, int]:
        """Ask all to stop; gives their exit codes."""
        for process in self._running.values():
            process.terminate()
        return {name: _ended(process) for name, process in self._running.items()}

    def until(self, true: Callable[[], bool], what: str, limit: float = _LIMIT) -> None:
        ends = time.monotonic() + limit
        while not true():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} has ended: {self.log(name).read_text()[-2000:]}")
            if time.monotonic() > ends:
                raise RuntimeError(f"not in {limit:g} seconds: {what}; the logs are in {self.folder}")
            time.sleep(_LOOK)


class JsonClient:
    """Sends JSON to the page, as a browser would, or to the HTTP API of Pitboss."""

    def __init__(self, url: str) -> None:
        self._url = url

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        request = Request(f"{self._url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=_LIMIT) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)


def _ended(process: "subprocess.Popen[Any]") -> int:
    """Its exit code. A process that does not end in time is killed."""
    try:
        return process.wait(_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
