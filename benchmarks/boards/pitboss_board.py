"""Pitboss on SQLite or PostgreSQL: `pitboss serve`, and a manager with two workers, idle while pages are read."""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version

from benchmarks.boards.base import Board, List, Search, running, until
from benchmarks.boards.plan import WORD, pages
from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.model.ids import IdMaker
from pitboss.model.queue import HandlerInfo, QueueChange
from pitboss.model.states import State
from pitboss.model.task import NewTask
from tests.servers.postgres import PostgresServer

_PITBOSS = (sys.executable, "-c", "from pitboss.cli.main import main; main()")
_KEPT = {f"PITBOSS_RETENTION__{state}": "forever" for state in ("COMPLETED", "FAILED", "CANCELLED")}
_QUEUE = "default"
_ROW = re.compile(r'name="_pick" value="')
_NEXT = re.compile(r'rel="next" href="[^"]*after=([^"&]+)')
_LISTS: dict[List, str] = {"finished": "state:completed", "failed": "state:failed"}
_SEARCHES: dict[Search, str] = {"text": WORD, "parameter": f"args.word:{WORD}"}


class PitbossBoard(Board):
    versions = (f"pitboss {version('pitboss')}",)
    how = (
        "the HTML page `/ui/tasks?q=…` (50 rows); a search compares 20,000 tasks an answer and goes on with `after`; "
        "the button *Retry all* (`/ui/act/tasks/retry`), until the manager has retried all"
    )

    def start(self) -> None:
        self._runner = self.stack.enter_context(asyncio.Runner())
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="pitboss-boards-"))
        url = self._url(folder)
        self._store = wiring.make_engine(url)
        self._runner.run(self._filled(self._store))
        self.stack.callback(lambda: self._runner.run(self._store.close()))
        env = {"PITBOSS_LOGS": f"{folder}/logs", "PITBOSS_STORE": url, **_KEPT}
        up = ("up", "benchmarks.boards.pitboss_app:app", "--workers", "2", "--no-http", "--quiet")
        self.stack.enter_context(running(*_PITBOSS, *up, env=env))
        until(lambda: self._count(State.COMPLETED) == self.tasks)
        self.fail_again()
        self.serve(*_PITBOSS, "serve", "--port", str(self.port), "--quiet", env=env)

    def _url(self, folder: str) -> str:
        return f"sqlite:///{folder}/store.db"

    async def _filled(self, store: Store) -> None:
        await store.open()
        await store.register([HandlerInfo(name="work", policy='{"max_attempts":1}')])
        make_id = IdMaker(store.clock.now, wiring.randbits())
        for page in pages(self.tasks):
            await store.put([NewTask(id=make_id(), handler="work", params=json.dumps(one)) for one in page])

    def listed(self, which: List) -> int:
        return len(_ROW.findall(self.get("/ui/tasks", q=_LISTS[which]).text))

    def searched(self, how: Search) -> Iterator[int]:
        query = {"q": _SEARCHES[how]}
        while True:
            text = self.get("/ui/tasks", **query).text
            yield len(_ROW.findall(text))
            more = _NEXT.search(text)
            if more is None:
                return
            query["after"] = more[1]

    def retry(self) -> int:
        form = {"filter": _LISTS["failed"]}
        headers = {"Origin": str(self.client.base_url).rstrip("/"), "HX-Request": "true"}
        self.client.post("/ui/act/tasks/retry", data=form, headers=headers).raise_for_status()
        until(lambda: self._count(State.FAILED) == 0)
        return 1

    def fail_again(self) -> None:
        """Afterwards the queue is paused, so that retried tasks wait."""
        self._pause(False)
        until(lambda: self._count(State.FAILED) == self.failed)
        self._pause(True)

    def _pause(self, paused: bool) -> None:
        self._runner.run(self._store.change_queue(_QUEUE, QueueChange(paused=paused)))

    def _count(self, state: State) -> int:
        queues = self._runner.run(self._store.queues())
        return sum(one.counts.get(state, 0) for one in queues)


class PitbossPostgresBoard(PitbossBoard):
    def _url(self, folder: str) -> str:
        return self.stack.enter_context(PostgresServer()).create_database()
