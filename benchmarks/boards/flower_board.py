"""Flower, which learns of tasks by the events of a Celery worker and keeps them in memory."""

from collections.abc import Iterator
from typing import Any

from benchmarks.boards.base import Board, List, Search, running, until
from benchmarks.boards.plan import WORD
from benchmarks.environments import PINS, interpreter
from benchmarks.redis_server import RedisServer

_APP = "benchmarks.boards.celery_app"
# As flower.js asks: its columns, 15 rows, the newest first.
_COLUMNS = ("name", "uuid", "state", "received", "runtime", "worker")
_PAGE: dict[str, str | int] = {
    "start": 0,
    "length": 15,
    "order[0][column]": _COLUMNS.index("received"),
    "order[0][dir]": "desc",
    **{f"columns[{n}][data]": name for n, name in enumerate(_COLUMNS)},
}
# It looks at all tasks to answer, and takes no event meanwhile.
_LOOK_SECONDS = 3
_LISTS: dict[List, str] = {"finished": "state:SUCCESS", "failed": "state:FAILURE"}
_SEARCHES: dict[Search, str] = {"text": WORD, "parameter": f"kwargs:word={WORD}"}


class FlowerBoard(Board):
    versions = PINS["flower"]
    how = "the JSON of its page, `POST /tasks/datatable` (15 rows); no retry"

    def start(self) -> None:
        redis = self.stack.enter_context(RedisServer())
        # By default Redis ends the connection of a subscriber that is 32 MB behind, and Flower would miss events.
        assert redis.ask('CONFIG SET client-output-buffer-limit "pubsub 0 0 0"') == "+OK"
        python, env = str(interpreter("flower")), {"BENCH_STORE": redis.url, "PYTHONPATH": "."}
        celery = (python, "-m", "celery", "-A", _APP)
        all_tasks = f"--max_tasks={2 * (self.tasks + self.failed)}"
        self.serve(*celery, "flower", "--address=127.0.0.1", f"--port={self.port}", all_tasks, env=env)
        with running(*celery, "worker", "-E", "--pool", "solo", "--loglevel", "CRITICAL", env=env):
            self.run(python, "-m", _APP, str(self.tasks), env=env)
            until(self._holds_all, every=_LOOK_SECONDS)

    def listed(self, which: List) -> int:
        return len(self._page(_LISTS[which])["data"])

    def searched(self, how: Search) -> Iterator[int]:
        yield len(self._page(_SEARCHES[how])["data"])

    def _holds_all(self) -> bool:
        return self._number("finished") == self.tasks and self._number("failed") == self.failed

    def _number(self, which: List) -> int:
        return int(self._page(_LISTS[which])["recordsFiltered"])

    def _page(self, search: str) -> dict[str, Any]:
        form = {"draw": 1, "search[value]": search, **_PAGE}
        answer: dict[str, Any] = self.client.post("/tasks/datatable", data=form).raise_for_status().json()
        return answer
