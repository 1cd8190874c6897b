"""The worker for coroutines: tasks run as asyncio tasks in one thread."""

import asyncio
import inspect
from contextlib import suppress
from typing import Any

from pitboss.remote.client import AsyncAPIClient
from pitboss.remote.health import HealthReport
from pitboss.remote.logs import log_context, logger
from pitboss.remote.loop import WorkLoop
from pitboss.remote.signals import StopSignals
from pitboss.remote.tasks import Task
from pitboss.remote.timeouts import in_thread

UNWIND = 2.0  # how long cancelled handlers may take to clean up


class AsyncWorker(WorkLoop):
    """Like `Worker`, but its methods are to be awaited. `process_task` may be a coroutine or a plain function."""

    def _prepare(self) -> None:
        super()._prepare()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._lanes: set[asyncio.Task[None]] = set()
        self._client: AsyncAPIClient | None = None
        self._client_loop: asyncio.AbstractEventLoop | None = None

    @property
    def client(self) -> AsyncAPIClient:
        """The API, for calls of your own such as `await self.client.create_task(...)`."""
        with suppress(RuntimeError):  # connections belong to the loop in which they were opened
            loop = asyncio.get_running_loop()
            if loop is not self._client_loop:
                self._client, self._client_loop = None, loop
        if self._client is None:
            self._client = AsyncAPIClient(**self._connection)
        return self._client

    async def health_check(self) -> HealthReport:
        """Whether the API can be reached, and all that `check_services` tells. It is true if all is well."""
        return await self._check_health()

    async def claim_task(self) -> Task | None:
        """The next task, or None. Raises APIConnectionError if the API cannot be reached."""
        return await self._claim()

    async def complete_task(self, task_id: object, result: Any) -> bool:
        """Report the result of a task. True if it was accepted, False if the claim is over."""
        return await self._reports.complete(task_id, result)

    async def fail_task(self, task_id: object, error: str | BaseException, **details: Any) -> bool:
        """Report that a task failed. Details: error_type, retryable, traceback, retry_after."""
        return await self._reports.fail(task_id, error, details)

    async def release_task(self, task_id: object, delay: float | None = None, reason: str | None = None) -> bool:
        """Give a task back, for `delay` seconds at least. It costs no attempt. False if the claim is over."""
        return await self._reports.give_back(task_id, {"delay": delay, "reason": reason})

    async def update_progress(self, task_id: object, percent: float, message: str | None = None) -> bool:
        """Report how far a task is, 0 to 100. False if the claim is over."""
        return await self._reports.progress(task_id, percent, message)

    def run(self) -> int:
        """Process tasks in an event loop of its own. In a loop that runs already, await `run_async`."""
        return asyncio.run(self.run_async())

    async def run_async(self) -> int:
        """Process tasks until a stop. Returns 0, or 1 if the API could not be reached."""
        self._check_handler()
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main
        self._loop, self._awake, self._stop_now = loop, asyncio.Event(), False

        def force() -> None:
            self._stop_now = True
            loop.call_soon_threadsafe(main.cancel)

        code = 0
        try:
            grace = self.config.shutdown_grace
            with log_context(worker_id=self.worker_id), StopSignals(self._ask_to_stop, force, grace):
                code = await self._session()
        except asyncio.CancelledError:
            if not self._stop_now:
                raise
            main.uncancel()
        finally:
            self._stop_now = True
            await self._cancel_lanes()
            await self._end()
            await self.close()
            self._loop = None
        return code

    async def close(self) -> None:
        """Close the connections. A later call opens them again."""
        if self._client:
            await self._client.close()
            self._client = None

    def _ask_to_stop(self) -> None:
        self.should_stop = True

    @property
    def _busy(self) -> int:
        return len(self._lanes)

    async def _start(self, task: Task) -> None:
        lane = asyncio.create_task(self._handle(task))
        self._lanes.add(lane)
        lane.add_done_callback(self._lane_ended)

    def _lane_ended(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        self._awake.set()
        if not lane.cancelled() and (error := lane.exception()):
            logger.error("A task ended with an error of the worker itself", exc_info=error)

    async def _cancel_lanes(self) -> None:
        lanes = set(self._lanes)
        for lane in lanes:
            lane.cancel()
        if lanes:
            await asyncio.wait(lanes, timeout=UNWIND)

    async def _process(self, task: Task) -> Any:
        """A plain function runs in a thread, so that it does not block the loop."""
        if inspect.iscoroutinefunction(self.process_task):
            return await self.process_task(task)
        return await asyncio.wrap_future(in_thread(self.process_task, task))

    async def _wait(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()

    def _wake(self) -> None:
        if self._loop:
            self._loop.call_soon_threadsafe(self._awake.set)
