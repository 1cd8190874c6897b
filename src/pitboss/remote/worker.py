"""The worker for plain functions: tasks run in this thread, or in threads with `concurrency`."""

import inspect
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from pitboss.remote.client import APIClient, finish
from pitboss.remote.errors import StopNow, TaskProcessingError
from pitboss.remote.health import HealthReport
from pitboss.remote.logs import log_context, logger
from pitboss.remote.loop import WorkLoop
from pitboss.remote.signals import StopSignals
from pitboss.remote.tasks import Task

_SIGNALS_WITHIN = 0.5


class Worker(WorkLoop):
    """Claims tasks and processes them. Subclass it and implement `process_task`."""

    def _prepare(self) -> None:
        super()._prepare()
        # SimpleQueues, because a signal handler may put into them.
        self._awake: SimpleQueue[None] = SimpleQueue()
        self._work: SimpleQueue[Task | None] = SimpleQueue()
        self._lanes: list[threading.Thread] = []
        self._started = 0
        self._client: APIClient | None = None

    @property
    def client(self) -> APIClient:
        """The API, for calls of your own such as `self.client.create_task(...)`."""
        if self._client is None:
            self._client = APIClient(**self._connection)
        return self._client

    def health_check(self) -> HealthReport:
        """Whether the API can be reached, and all that `check_services` tells. It is true if all is well."""
        return finish(self._check_health())

    def claim_task(self) -> Task | None:
        """The next task, or None. Raises APIConnectionError if the API cannot be reached."""
        return finish(self._claim())

    def complete_task(self, task_id: object, result: Any) -> bool:
        """Report the result of a task. True if it was accepted, False if the claim is over."""
        return finish(self._reports.complete(task_id, result))

    def fail_task(self, task_id: object, error: str | BaseException, **details: Any) -> bool:
        """Report that a task failed. Details: error_type, retryable, traceback, retry_after."""
        return finish(self._reports.fail(task_id, error, details))

    def release_task(self, task_id: object, delay: float | None = None, reason: str | None = None) -> bool:
        """Give a task back, for `delay` seconds at least. It costs no attempt. False if the claim is over."""
        return finish(self._reports.give_back(task_id, {"delay": delay, "reason": reason}))

    def update_progress(self, task_id: object, percent: float, message: str | None = None) -> bool:
        """Report how far a task is, 0 to 100. False if the claim is over."""
        return finish(self._reports.progress(task_id, percent, message))

    def run(self) -> int:
        """Process tasks until a stop. Returns 0, or 1 if the API could not be reached."""
        self._check_handler()
        if inspect.iscoroutinefunction(self.process_task):
            raise TypeError(f"{type(self).__name__}.process_task is async: derive from AsyncWorker")
        self._stop_now, code = False, 0
        try:
            grace = self.config.shutdown_grace
            with log_context(worker_id=self.worker_id), StopSignals(self._ask_to_stop, self._force_stop, grace):
                self._open_lanes()
                code = finish(self._session())
        except StopNow:
            self._stop_now = True
            for task in self._keeper.held():
                task.cancel_event.set()
        finally:
            finish(self._end())
            self._close_lanes()
            self.close()
        return code

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        if self._client:
            self._client.close()
            self._client = None

    def _ask_to_stop(self) -> None:
        self.should_stop = True

    def _force_stop(self) -> None:
        raise StopNow

    @property
    def _busy(self) -> int:
        return self._started

    async def _start(self, task: Task) -> None:
        if not self._lanes:
            await self._handle(task)
            return
        with self._lock:
            self._started += 1
        self._work.put(task)

    async def _process(self, task: Task) -> Any:
        try:
            return self.process_task(task)
        except GeneratorExit as error:  # from here it would end the worker's own coroutine
            raise TaskProcessingError("the handler raised GeneratorExit") from error

    async def _wait(self, seconds: float | None) -> None:
        # Not for longer: a signal that arrives just before a thread waits for a lock does not wake it.
        with suppress(Empty):
            self._awake.get(timeout=_SIGNALS_WITHIN if seconds is None else min(seconds, _SIGNALS_WITHIN))

    def _wake(self) -> None:
        self._awake.put(None)

    def _open_lanes(self) -> None:
        """One task at a time runs in this thread: SIGALRM, and libraries that are bound to a thread, work there."""
        number = self.config.concurrency if self.config.concurrency > 1 else 0
        self._lanes = [
            threading.Thread(target=self._lane, name=f"pitboss-lane-{n}", daemon=True) for n in range(number)
        ]
        for lane in self._lanes:
            lane.start()

    def _close_lanes(self) -> None:
        """They are daemons: after a stop at once, no exit waits for a handler."""
        for _ in self._lanes:
            self._work.put(None)
        if not self._stop_now:
            for lane in self._lanes:
                lane.join()
        self._lanes = []

    def _lane(self) -> None:
        while (task := self._work.get()) is not None:
            try:
                finish(self._handle(task))
            except BaseException:
                if not self._stop_now:
                    logger.exception("Task %s ended with an error of the worker itself", task.id)
            finally:
                with self._lock:
                    self._started -= 1
                self._wake()
