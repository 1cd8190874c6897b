"""An event loop in a thread of its own, so that sync and async callers share one engine.

Never `asyncio.run` in the caller: notebooks and async frameworks already run a loop there.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from math import inf
from typing import Any, TypeVar

from pitboss.model.errors import TimedOutWaiting

T = TypeVar("T")


class PrivateLoop:
    """Runs coroutines on the private loop. The first use starts it, `close` ends it."""

    def __init__(self, name: str = "pitboss-client") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, T], *, limit: float, what: str) -> T:
        """Block this thread until the work is done, for at most `limit` seconds."""
        if self._thread is threading.current_thread():
            work.close()
            raise RuntimeError(
                f"{what}: a sync call from the client's own loop would wait for itself; use the async one"
            )
        future = self.submit(work)
        try:
            # A thread cannot wait for an infinite number of seconds, only without a limit.
            return future.result(None if limit == inf else limit)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise TimedOutWaiting(
                f"{what} did not end within {limit:g} s",
                why="the store is slow, blocked or out of reach; the call may or may not have happened",
                fix="repeat it (enqueueing the same ids twice is harmless) or look at the store",
            ) from error

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work from the caller's loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
