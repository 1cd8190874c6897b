"""pgqueuer's own dashboard, `pgq web`."""

import re

from benchmarks.boards.base import Board, List
from benchmarks.environments import PINS, interpreter
from tests.servers.postgres import PostgresServer

_APP = "benchmarks.boards.pgqueuer_app"
_ROW = re.compile(r'name="ids" value="(\d+)"')


class PgqueuerBoard(Board):
    versions = PINS["pgqueuer-web"]
    how = (
        "the HTML page `/failures` (100 held jobs and the log of 100 exceptions); no list of finished jobs, no search; "
        "retried by the form of that page, 100 at a time"
    )

    def start(self) -> None:
        server = self.stack.enter_context(PostgresServer())
        self._python = interpreter("pgqueuer-web")
        self._env = {"PGQUEUER_DSN": server.create_database(), "PYTHONPATH": "."}
        self.run(str(self._python), "-m", _APP, str(self.tasks), env=self._env)
        self.fail_again()
        self.serve(self._tool(), "web", "--port", str(self.port), env=self._env)

    def _tool(self) -> str:
        return str(self._python.with_name("pgq"))

    def listed(self, which: List) -> int | None:
        return len(self._held()) if which == "failed" else None

    def _held(self) -> list[str]:
        return _ROW.findall(self.get("/failures").text)

    def retry(self) -> int:
        requests = 1
        while held := self._held():
            self.client.post("/jobs/requeue", data={"ids": held}).raise_for_status()
            requests += 2
        return requests

    def fail_again(self) -> None:
        options = ("--mode", "drain", "--batch-size", "1000", "--log-level", "CRITICAL")
        self.run(self._tool(), "run", f"{_APP}:main", *options, env=self._env)
