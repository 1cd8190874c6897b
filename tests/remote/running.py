"""Run a worker in a thread, with time limits that suit tests, or with a clock that the test moves."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pitboss.remote import AsyncWorker, Worker
from tests.remote.stub_api import LIMIT, StubAPI


def settings(**more: Any) -> dict[str, Any]:
    return {"poll_interval": 0.05, "request_timeout": 5, **more}


class Running:
    def __init__(self, worker: Worker | AsyncWorker) -> None:
        self.worker = worker
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.code = self.worker.run()

    def join(self) -> int | None:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the worker does not end"
        return self.code


@contextmanager
def running(worker: Worker | AsyncWorker) -> Iterator[Running]:
    run = Running(worker)
    try:
        yield run
    finally:
        worker.should_stop = True
        run.join()


class Echo(Worker):
    """Returns its params."""

    def process_task(self, task: dict[str, Any]) -> Any:
        return {"said": task["params"]}


def echo(api: StubAPI, **more: Any) -> Echo:
    return Echo(api.url, "w1", settings(**more))


class Time:
    """A clock that only the pauses of a client move."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.now += seconds
