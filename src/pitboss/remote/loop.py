"""What a worker does with tasks, written once for `Worker` and `AsyncWorker`: claim, process, report, stop.

Everything here is a coroutine. In a `Worker` all calls block, so that its coroutines never suspend (see `finish`).
"""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pitboss.remote.base import BaseWorker
from pitboss.remote.client import settled, without_password
from pitboss.remote.errors import APIConnectionError, APIError, StopNow, WorkerError, kind_of
from pitboss.remote.logs import log_context, logger
from pitboss.remote.tasks import DEFAULT_TIME_LIMIT, Task, is_failure, running, tasks_in

LONGEST_WAIT = 5.0  # a stop waits for the claim that is under way
ERROR_PAUSE = 5.0
NOT_FOUND = 404
TOO_FAST = 429
MOST_AT_ONCE = 100


class WorkLoop(BaseWorker):
    def _prepare(self) -> None:
        self._active = self._stop_now = False
        self._prefetched: deque[Task] = deque()

    @property
    def _busy(self) -> int:
        """How many tasks run."""
        raise NotImplementedError

    async def _start(self, task: Task) -> None:
        raise NotImplementedError

    async def _process(self, task: Task) -> Any:
        raise NotImplementedError

    async def _wait(self, seconds: float | None) -> None:
        """Until a task ends, a stop is asked for, or the time is over; it may return earlier."""
        raise NotImplementedError

    async def _session(self) -> int:
        """From the health check until no more tasks are to be claimed and all of them have ended. The exit code."""
        report = await settled(self.health_check())
        if not report:
            logger.error("Health check failed: %s", dict(report) if isinstance(report, Mapping) else report)
            return 1
        await self._register_worker()
        self._active = True
        self._keeper.start()
        logger.info("Worker started: %s", without_password(self.api_url))
        code = await self._poll()
        while self._busy:
            await self._wait(None)
        logger.info("Worker ended: %s", self.metrics.report())
        return code

    # Claim.

    async def _poll(self) -> int:
        while not self.should_stop and self._runs_left() > 0:
            if self._room() < 1:
                await self._wait(None)
            elif self.consecutive_errors >= self.max_consecutive_errors:
                logger.critical("Cannot claim tasks after %d attempts", self.consecutive_errors)
                return 1
            elif (task := await self._next_task()) and not self.should_stop:
                await self._start(task)
        return 0

    def _runs_left(self) -> float:
        return self.config.max_runs - self.stats["processed"] if self.config.max_runs else float("inf")

    def _room(self) -> float:
        """How many more tasks may start now."""
        return min(self.config.concurrency, self._runs_left()) - self._busy

    async def _next_task(self) -> Task | None:
        began = time.monotonic()
        try:
            task = await settled(self.claim_task())
        except (APIConnectionError, APIError) as error:
            await self._claim_failed(error)
            return None
        self.consecutive_errors = 0
        if task is None:
            passed = time.monotonic() - began
            if passed < self._long_poll() / 2:  # the server does not wait for tasks
                await self._pause(self.config.poll_interval - passed)
            return None
        return task if isinstance(task, Task) else Task(task, self.worker_id, DEFAULT_TIME_LIMIT)

    def _long_poll(self) -> float:
        return min(self.config.poll_interval, LONGEST_WAIT)

    async def _claim_failed(self, error: APIConnectionError | APIError) -> None:
        if self.should_stop:
            return
        if error.status != TOO_FAST:  # a server that is busy is not lost
            self.consecutive_errors += 1
        logger.warning("Cannot claim (%d of %d): %s", self.consecutive_errors, self.max_consecutive_errors, error)
        if error.status == NOT_FOUND:  # the server does not know the types: it has a new store
            self._types_registered = False
            with suppress(WorkerError):
                await self._register_types()
        if self.consecutive_errors < self.max_consecutive_errors:
            await self._pause(max(error.retry_after or 0.0, min(self.config.poll_interval, ERROR_PAUSE)))

    async def _pause(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self.should_stop and (left := ends - time.monotonic()) > 0:
            await self._wait(left)

    async def _claim(self) -> Task | None:
        while self._prefetched:
            task = self._prefetched.popleft()
            if not task.claim_lost:
                return task
            self._forget_lost(task)
        answer = await settled(self._ask())
        tasks = tasks_in(answer, self.worker_id, self.config.claim_timeout)
        for task in tasks:
            self._keeper.hold(task)
        with self._lock:
            self.metrics.tasks_claimed += len(tasks)
        self._prefetched.extend(tasks[1:])
        return tasks[0] if tasks else None

    def _ask(self) -> Any:
        """The claim: of the types that settings choose, else of declared ones, else of all. Outside of `run` it asks
        for one task."""
        config, selection = self.config, dict[str, Any]()
        if config.task_type_ids:
            selection["task_type_ids"] = list(config.task_type_ids)
        elif config.type_pattern:
            selection["type_pattern"] = config.type_pattern
        elif self.task_types:
            selection["types"] = list(self.task_types)
        wanted = min(self._room() + config.prefetch, self._runs_left() - self._busy) if self._active else 1
        if wanted > 1:
            selection["limit"] = min(int(wanted), MOST_AT_ONCE)
        if config.claim_timeout:
            selection["claim_timeout"] = config.claim_timeout
        wait = self._long_poll() if self._active else 0
        return self.client.claim(self.worker_id, wait=wait, give_up=lambda: self.should_stop, **selection)

    # Process and report.

    async def _handle(self, task: Task) -> None:
        with running(task), log_context(worker_id=self.worker_id, task_id=task.id):
            if task.cancel_requested:  # while it was prefetched
                await self._reports.release([task], "cancelled before it started")
                return
            logger.info("Processing task %s", task.id)
            result, error = None, None
            try:
                result = await self._process(task)
            except BaseException as raised:
                if self._stop_now or isinstance(raised, StopNow | GeneratorExit):
                    raise  # it is released, not reported
                error = raised
                trace = raised if kind_of(raised)[0] == "unknown" else None
                logger.error("Failed to process task %s: %s", task.id, raised, exc_info=trace)
            await self._settle(task, result, error)

    async def _settle(self, task: Task, result: Any, error: BaseException | None) -> None:
        seconds = time.monotonic() - task.started
        accepted: Any = False
        try:
            if task.claim_lost or task.ended_by:  # the handler may have reported by itself
                accepted = bool(task.ended_by)
            elif error is not None:
                accepted = await settled(self.fail_task(task["id"], error))
            else:
                accepted = await settled(self.complete_task(task["id"], result))
        except Exception:
            logger.exception("Task %s is not reported: it will run again when its claim has ended", task.id)
            self._keeper.drop(task)
            return
        self._keeper.drop(task)
        if task.claim_lost:
            self._forget_lost(task)
        elif task.ended_by == "release":
            logger.info("Task %s was given back after %.3f s", task.id, seconds)
        else:
            self._count(task, seconds, failed=error is not None or is_failure(result) or accepted is False)

    def _count(self, task: Task, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.stats["failed" if failed else "processed"] += 1
            if failed:
                self.metrics.tasks_failed += 1
            else:
                self.metrics.tasks_completed += 1
                self.metrics.total_processing_time += seconds
        logger.info("Task %s %s in %.3f s", task.id, "failed" if failed else "completed", seconds)

    def _forget_lost(self, task: Task) -> None:
        self._keeper.drop(task)
        with self._lock:
            self.claims_lost += 1
        logger.warning("Task %s is not reported: its claim was lost", task.id)

    # Stop.

    async def _end(self) -> None:
        """Give back what is still held, and say goodbye."""
        if not self._active:
            return
        self._active = False
        self._prefetched.clear()
        with log_context(worker_id=self.worker_id):
            held = [task for task in self._keeper.held() if not task.claim_lost]
            await self._reports.release(held, "the worker stopped")
        self._keeper.stop()
        with suppress(WorkerError):
            await settled(self.client.set_worker_status(self.worker_id, "offline"))
