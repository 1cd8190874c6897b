"""Bull Board, the usual dashboard of BullMQ."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.boards.base import LIMIT_SECONDS, Board, List
from benchmarks.boards.plan import jobs
from benchmarks.environments import BUILD
from benchmarks.redis_server import RedisServer

_SOURCE = Path(__file__).with_name("bull")
_FOLDER = BUILD / "bull"


class BullBoard(Board):
    versions = tuple(
        f"{name} {number}"
        for name, number in json.loads((_SOURCE / "package.json").read_text())["dependencies"].items()
    )
    how = (
        "the JSON of its page, `/api/queues?activeQueue=…&status=…` (10 rows); no search but by id; the button *Retry "
        "all* (`/api/queues/work/retry/failed`)"
    )

    def start(self) -> None:
        redis = self.stack.enter_context(RedisServer())
        self._program = str(installed() / "board.mjs")
        self._env = {"REDIS_PORT": str(redis.port), "NODE_ENV": "production"}
        subprocess.run(
            ["node", self._program, "put"],
            env={**os.environ, **self._env},
            input="\n".join(json.dumps(one) for one in jobs(self.tasks)).encode(),
            check=True,
            timeout=LIMIT_SECONDS,
        )
        self.fail_again()
        self.serve("node", self._program, "serve", str(self.port), env=self._env)

    def listed(self, which: List) -> int:
        return len(self._queue("completed" if which == "finished" else "failed")["jobs"])

    def _queue(self, status: str) -> dict[str, Any]:
        answer = self.get("/api/queues", activeQueue="work", status=status, page=1, jobsPerPage=10)
        found: dict[str, Any] = answer.json()["queues"][0]
        return found

    def retry(self) -> int:
        answer = self.client.put("/api/queues/work/retry/failed").raise_for_status().json()
        if answer["retried"] != self.failed:
            raise RuntimeError(f"Bull Board retried {answer['retried']} of {self.failed} jobs")
        return 1

    def fail_again(self) -> None:
        self.run("node", self._program, "work", env=self._env)


def installed() -> Path:
    """The folder of the program and its packages, which npm installs if they are missing or have other versions."""
    stamp, wanted = _FOLDER / "installed.json", (_SOURCE / "package.json").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(_FOLDER, ignore_errors=True)
        _FOLDER.mkdir(parents=True)
        (_FOLDER / "package.json").write_text(wanted)
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=_FOLDER, check=True, stdout=subprocess.DEVNULL)
        stamp.write_text(wanted)
    shutil.copy(_SOURCE / "board.mjs", _FOLDER)
    return _FOLDER
